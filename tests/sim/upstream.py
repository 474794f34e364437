"""The simulated partition: a log with holes, that grows, is compacted and truncated."""

from __future__ import annotations

from dispatcher.core.model import Key


class Log:
    def __init__(self) -> None:
        self.records: dict[int, Key] = {}
        self.start = 0
        self.end = 0
        self.gone: set[int] = set()  # compacted or truncated: nobody is owed them any more
        self.of_key: dict[bytes, list[int]] = {}
        self.keyless: list[int] = []

    def append(self, key: Key) -> int:
        offset = self.end
        self.records[offset] = key
        if key is None:
            self.keyless.append(offset)
        else:
            self.of_key.setdefault(key, []).append(offset)
        self.end += 1
        return offset

    def append_hole(self, count: int) -> None:
        self.end += count

    def remove(self, offset: int) -> None:
        """Compaction."""
        if offset in self.records:
            del self.records[offset]
            self.gone.add(offset)

    def truncate(self, start: int) -> None:
        for offset in [o for o in self.records if o < start]:
            self.remove(offset)
        self.start = max(self.start, start)
        self.end = max(self.end, start)

    def read(self, start: int, end: int) -> tuple[list[int], list[Key]]:
        records = self.records
        offsets = [offset for offset in range(start, end) if offset in records]
        return offsets, [records[offset] for offset in offsets]
