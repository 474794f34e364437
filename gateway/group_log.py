"""The log of events that a group's clients can cause as often as they like: one line per group and
kind in 10 s, with the count and the first event as the example (gateway/core/share/group_lines.py).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

import structlog

from gateway.core.share.group_lines import GroupLines, Line

log = structlog.get_logger("keyway.groups")

_ERRORS = frozenset({"dead_letters_not_written", "log_tail_lost", "window_fenced"})


@dataclass(slots=True)
class GroupLog:
    now_ms: Callable[[], int]
    _lines: GroupLines = field(default_factory=GroupLines)

    def note(self, group: str, kind: str, count: int = 1, **example: object) -> None:
        """`count` events; `example` describes the first of them."""
        line = self._lines.note(group, kind, count, example, self.now_ms())
        if line is not None:
            _write([line])

    def write_due(self) -> None:
        """Writes the lines that are due. Called a few times a second."""
        _write(self._lines.due(self.now_ms()))

    def write_rest(self) -> None:
        """Writes what is left, when the node stops."""
        _write(self._lines.rest())


def _write(lines: Iterable[Line]) -> None:
    for line in lines:
        write = log.error if line.kind in _ERRORS else log.warning
        write(line.kind, group=line.group, count=line.count, **line.example)
