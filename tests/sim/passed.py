"""What the store says of the offsets that the front of a window has passed: all are settled but
those aside.
"""

from __future__ import annotations

from collections.abc import Sequence

from dispatcher.core.records.offset_bits import offsets_in
from dispatcher.core.steps import AsideSet, Change, CursorMoved


class Passed:
    def __init__(self, cursor: int, front: int, settled: set[int]) -> None:
        self._seen = cursor  # before it all are settled
        self._front = front
        self._aside: dict[int, list[int]] = {}
        for offset in range(cursor, front):
            if offset not in settled:
                self._aside.setdefault(offset // 512, []).append(offset)

    def settled_by(self, changes: Sequence[Change]) -> list[int]:
        """The offsets that these changes settle; some of them may have been before."""
        before = self._seen
        for change in changes:
            match change:
                case CursorMoved():
                    self._seen, self._front = change.cursor, change.front
                case AsideSet():
                    self._aside[change.stretch] = offsets_in(change.stretch, change.data)
                case _:
                    pass
        aside = {offset for offsets in self._aside.values() for offset in offsets}
        assert all(self._seen <= offset < self._front for offset in aside), f"{aside} aside"
        return [offset for offset in range(before, self._front) if offset not in aside]
