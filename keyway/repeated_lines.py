"""Log lines that a stranger can cause: one at once, and the others of the same kind as a count."""

from __future__ import annotations

from collections.abc import Callable, Hashable

REPEATED_LINES_MS = 10_000  # between two log lines of one kind that strangers cause


class RepeatedLines:
    def __init__(self, now_ms: Callable[[], int]) -> None:
        self._now_ms = now_ms
        self._last_ms: dict[Hashable, int] = {}  # by kind; there are few
        self._left_out: dict[Hashable, int] = {}

    def due(self, kind: Hashable) -> int | None:
        """None: not now. Else how many lines of this kind were left out since the last one."""
        now_ms, last_ms = self._now_ms(), self._last_ms.get(kind)
        if last_ms is not None and now_ms - last_ms < REPEATED_LINES_MS:
            self._left_out[kind] = self._left_out.get(kind, 0) + 1
            return None
        self._last_ms[kind] = now_ms
        return self._left_out.pop(kind, 0)
