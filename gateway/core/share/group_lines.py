"""Log lines about Key-Shared groups: one per group and kind of event in GROUP_LINE_MS.

The first event is a line at once. Those that follow within the interval are counted and become one
line at its end, with the first of them as the example; then the next interval begins. A pair of
group and kind without an event for a whole interval is forgotten, and its next event is a line at
once again.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from gateway.core.limits import GROUP_LINE_MS, GROUP_LINES_MAX

OTHER_GROUPS = "(other groups)"  # groups beyond GROUP_LINES_MAX share its lines


@dataclass(frozen=True, slots=True)
class Line:
    """`count` events since the last line of this group and kind; `example` is the first of them."""

    group: str
    kind: str
    count: int
    example: Mapping[str, object]


@dataclass(slots=True)
class _Interval:
    ends_ms: int
    count: int = 0  # events that are in no line yet
    example: Mapping[str, object] = field(default_factory=dict)


@dataclass(slots=True)
class GroupLines:
    _intervals: dict[tuple[str, str], _Interval] = field(default_factory=dict)  # by their ends

    def note(
        self, group: str, kind: str, count: int, example: Mapping[str, object], now_ms: int
    ) -> Line | None:
        """The line to write now; None: it comes with `due`, or with `rest`."""
        if (group, kind) not in self._intervals and len(self._intervals) >= GROUP_LINES_MAX:
            group = OTHER_GROUPS
        interval = self._intervals.get((group, kind))
        if interval is None:
            self._intervals[group, kind] = _Interval(now_ms + GROUP_LINE_MS)
            return Line(group, kind, count, example)
        if interval.count == 0:
            interval.example = example
        interval.count += count
        return None

    def due(self, now_ms: int) -> list[Line]:
        """The lines of intervals that are over. O(their number)."""
        lines: list[Line] = []
        while self._intervals:
            key, interval = next(iter(self._intervals.items()))
            if interval.ends_ms > now_ms:
                break
            del self._intervals[key]
            if interval.count:
                lines.append(Line(*key, interval.count, interval.example))
                self._intervals[key] = _Interval(now_ms + GROUP_LINE_MS)
        return lines

    def rest(self) -> list[Line]:
        """Everything that is in no line yet: at stop."""
        intervals, self._intervals = self._intervals, {}
        return [
            Line(*key, interval.count, interval.example)
            for key, interval in intervals.items()
            if interval.count
        ]
