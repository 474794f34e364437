"""Windows without members, which leave memory when that lasts.

A window is idle from the first tick that finds no members: a member that leaves and one that joins
between two ticks leave no idle window. While it is idle, the group's position may be set elsewhere,
so a window that wakes looks its position up again. The node and the simulation share this.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from typing import Generic, TypeVar

Item = TypeVar("Item", bound=Hashable)  # a window


class IdleWindows(Generic[Item]):
    def __init__(self, has_members: Callable[[Item], bool], idle_ms_max: int) -> None:
        self._has_members = has_members
        self._idle_ms_max = idle_ms_max
        self._maybe: dict[Item, None] = {}  # to be looked at by the next tick
        self._since_ms: dict[Item, int] = {}  # the longest idle first

    def look_at(self, windows: Iterable[Item]) -> None:
        """Their members have changed, or they are new."""
        self._maybe.update(dict.fromkeys(windows))

    def woken(self, window: Item) -> bool:
        """Members are there. Returns whether it was idle."""
        return self._since_ms.pop(window, None) is not None

    def tick(self, now_ms: int) -> list[Item]:
        """The windows whose idle time is over. Each may leave memory once `WindowLife.may_leave`
        says so, unless members have come meanwhile (`still_idle`).
        """
        maybe, self._maybe = self._maybe, {}
        for window in maybe:
            if self._has_members(window):
                self._since_ms.pop(window, None)
            elif window not in self._since_ms:
                self._since_ms[window] = now_ms
        until_ms = now_ms - self._idle_ms_max
        idle: list[Item] = []
        for window, since_ms in self._since_ms.items():
            if since_ms > until_ms:
                break
            idle.append(window)
        return idle

    def still_idle(self, window: Item) -> bool:
        return window in self._since_ms and not self._has_members(window)

    def forget(self, window: Item) -> None:
        """The window is closed."""
        self._maybe.pop(window, None)
        self._since_ms.pop(window, None)
