"""Parked records of windows that are not up: a group that stopped must not look as if nothing
waited for an operator. The number is the last one that the window had while it was up. Of windows
that only the store has, the store is asked (gateway/operations/lag.py).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from dispatcher.store.base import WindowKey
from gateway.windows.window import Window


@dataclass(slots=True)
class ParkedCounts:
    _last: dict[str, dict[WindowKey, int]] = field(default_factory=dict)  # by group, without zeros
    _asked: set[str] = field(default_factory=set)  # groups of which the store was asked

    def of(self, key: WindowKey, window: Window | None) -> int | None:
        """None: not known."""
        core = None if window is None else window.dispatcher
        if core is not None:
            return core.held().parked
        unknown = None if key.group not in self._asked else 0
        return self._last.get(key.group, {}).get(key, unknown)

    def of_group(self, group: str, windows: Collection[Window]) -> int | None:
        """How many records of the group are parked; None: not known. `windows`: all windows of the
        group in memory.
        """
        up = {
            window.key: core.held().parked
            for window in windows
            if (core := window.dispatcher) is not None
        }
        return self.with_others(group, sum(up.values()), up, all_up=len(up) == len(windows) > 0)

    def with_others(
        self, group: str, parked: int, up: Collection[WindowKey], *, all_up: bool
    ) -> int | None:
        """Adds what the windows had that are not among `up`. None: not known."""
        parked += sum(count for key, count in self.last(group).items() if key not in up)
        return parked if parked or all_up or group in self._asked else None

    def last(self, group: str) -> Mapping[WindowKey, int]:
        """The windows with parked records, as far as is known."""
        return self._last.get(group, {})

    def groups(self) -> list[str]:
        """Groups that may have parked records in windows that are not up."""
        return list(self._last)

    def note(self, window: Window) -> None:
        """Keeps the number of a window that is up, for the time when it is not."""
        core = window.dispatcher
        if core is not None:
            self._set(window.key, core.held().parked)

    def position_set(self, key: WindowKey) -> None:
        """The position was set by hand: a window that starts anew has nothing parked."""
        self._set(key, 0)

    def stored(self, group: str, counts: Mapping[WindowKey, int | None]) -> None:
        """What the store has of all windows of the group. None: the window is up, and knows
        better.
        """
        self._asked.add(group)
        last = self._last.pop(group, {})
        for key, count in counts.items():
            self._set(key, last.get(key, 0) if count is None else count)

    def forget(self, group: str) -> None:
        self._asked.discard(group)
        self._last.pop(group, None)

    def _set(self, key: WindowKey, count: int) -> None:
        if count:
            self._last.setdefault(key.group, {})[key] = count
        elif key in (last := self._last.get(key.group, {})):
            del last[key]
            if not last:
                del self._last[key.group]
