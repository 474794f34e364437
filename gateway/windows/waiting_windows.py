"""Windows that are not up, or are held up by one record, for the health of the node. Probes and
dashboards ask for them every few seconds, and a node has thousands of windows: the waiting windows
of a group at rest are known from the last time.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from gateway.windows.table import WindowTable
from gateway.windows.window import Window


def holder_of(window: Window) -> int:
    """The offset that holds up all keys of the window; -1: none."""
    core = window.dispatcher
    return -1 if core is None else core.holder


@dataclass(frozen=True, slots=True)
class _Seen:
    rest: int | None
    waiting: list[Window]
    held_up: list[Window]


@dataclass(slots=True)
class WaitingWindows:
    windows: WindowTable
    _known: dict[str, _Seen] = field(default_factory=dict)  # by group

    def all(self) -> list[Window]:
        return [window for seen in self._look() for window in seen.waiting]

    def held_up(self) -> list[Window]:
        return [window for seen in self._look() for window in seen.held_up]

    def _look(self) -> list[_Seen]:
        found: list[_Seen] = []
        known: dict[str, _Seen] = {}
        for group in self.windows.names():
            rest, seen = self.windows.ticks.rest_of(group), self._known.get(group)
            if seen is None or seen.rest != rest:
                windows = self.windows.of_group(group)
                waiting = [window for window in windows if window.dispatcher is None]
                held_up = [window for window in windows if holder_of(window) >= 0]
                seen = _Seen(rest, waiting, held_up)
            if rest is not None:
                known[group] = seen
            found.append(seen)
        self._known = known
        return found
