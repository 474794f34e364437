"""Windows without members, which leave memory when that lasts.

A window is idle from the first tick that finds no members: a member that leaves and one that joins
between two ticks leave no idle window.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import takewhile

from gateway.windows.limits import WINDOW_IDLE_MS_MAX
from gateway.windows.window import Window


@dataclass(slots=True)
class IdleWindows:
    has_members: Callable[[Window], bool]
    _maybe: dict[Window, None] = field(default_factory=dict)  # to be looked at by the next tick
    _since_ms: dict[Window, int] = field(default_factory=dict)  # the longest idle first

    def look_at(self, windows: Iterable[Window]) -> None:
        """Their members have changed, or they are new."""
        self._maybe.update(dict.fromkeys(windows))

    def woken(self, window: Window) -> bool:
        """Members are there. Returns whether it was idle."""
        return self._since_ms.pop(window, None) is not None

    def tick(self, now_ms: int) -> Iterator[Window]:
        """Those that have been idle for so long that they may leave memory."""
        maybe, self._maybe = self._maybe, {}
        for window in maybe:
            if self.has_members(window):
                self._since_ms.pop(window, None)
            else:
                self._since_ms.setdefault(window, now_ms)
        until_ms = now_ms - WINDOW_IDLE_MS_MAX
        yield from [it for it, _ in takewhile(lambda it: it[1] <= until_ms, self._since_ms.items())]

    def forget(self, window: Window) -> None:
        """It is closed."""
        self._maybe.pop(window, None)
        self._since_ms.pop(window, None)
