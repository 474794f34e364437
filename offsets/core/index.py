"""The index of one partition: its records, by segments of some thousand.

It is built once, by reading the log from its start, and then follows the log's end. A segment knows
of each stream its lowest and highest origin, and the earliest timestamp. That is enough to find any
record by reading one segment again, and it takes no memory for single records. Segments are columns
of numbers, so that a question about many of them is one slice.

Retention removes segments from the front. What they told about progress is kept, because a group
beyond them has passed them all the same. Compaction may take any record: a second reading then has
fewer records than the segment says, and every rule in translate.py holds for those left.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping
from typing import Final

from offsets.core.limits import SEGMENT_RECORDS, SEGMENTS_MAX
from offsets.core.model import Cut, Range, Rows, Stream

NONE_LOW: Final = (1 << 63) - 1  # of a stream that a segment has no record of
NONE_HIGH: Final = -1
EPOCH_NOT_KNOWN: Final = -1


class Spans:
    """The records of one stream in each segment. `upto`: the highest origin up to there."""

    __slots__ = ("high", "low", "records", "upto")

    def __init__(self, segments: int) -> None:
        self.low = array("q", [NONE_LOW]) * segments
        self.high = array("q", [NONE_HIGH]) * segments
        self.upto = array("q", [NONE_HIGH]) * segments
        self.records = array("q", [0]) * segments

    def open(self) -> None:
        self.low.append(NONE_LOW)
        self.high.append(NONE_HIGH)
        self.upto.append(self.upto[-1] if self.upto else NONE_HIGH)
        self.records.append(0)

    def add(self, origin: int) -> None:
        """To the last segment."""
        self.records[-1] += 1
        if origin < self.low[-1]:
            self.low[-1] = origin
        if origin > self.high[-1]:
            self.high[-1] = origin
            self.upto[-1] = max(origin, self.upto[-1])

    def low_from(self, number: int) -> int:
        """The lowest origin in segment `number` and in the later ones."""
        return min(self.low[number:], default=NONE_LOW)

    def halve(self) -> None:
        self.low = _paired(self.low, min)
        self.high = _paired(self.high, max)
        self.upto = _paired(self.upto, max)
        self.records = _paired(self.records, int.__add__)

    def drop(self, count: int) -> None:
        for column in (self.low, self.high, self.upto, self.records):
            del column[:count]


class PartitionIndex:
    """`own`: the stream of the records that were produced here. `start`: the log's start when the
    index began; nothing is known of records before it.

    Columns: `firsts`, `lasts`: offsets of a segment's first and last record; `earliest`, `latest`,
    `last_ms`: timestamps; `late`: how far a copied record was behind the latest timestamp before
    it, at most; `records`.
    """

    def __init__(
        self,
        own: Stream,
        start: int,
        *,
        segment_records: int = SEGMENT_RECORDS,
        segments_max: int = SEGMENTS_MAX,
    ) -> None:
        self.own = own
        self.start = start  # of the log, as far as is known now
        self.end = start  # the next offset to read
        self.whole = start == 0  # it has seen every record there ever was
        self.firsts, self.lasts = array("q"), array("q")
        self.earliest, self.latest, self.last_ms = array("q"), array("q"), array("q")
        self.late, self.records = array("q"), array("q")
        self.spans: dict[Stream, Spans] = {}
        self.passed: dict[Stream, int] = {}  # highest origin of segments that retention took
        self.passed_last_ms: int | None = None
        self.copies = 0  # records from elsewhere seen so far
        self.former_end = 0  # of the log in an earlier life of the topic, as far as is known
        self.cut: Cut | None = None  # that this log had, in this life of the topic
        self.cut_at: int | None = None  # the first record behind it, once it has been read
        self.epoch = EPOCH_NOT_KNOWN  # of the leader under which the last record was written
        self.latest_ms: int | None = None
        self.segment_records = segment_records
        self._segments_max = segments_max
        self._late: tuple[int, int, int] = (-1, 0, 0)  # the end and window of the last answer

    def __repr__(self) -> str:
        return f"<index of {self.own}: {len(self)} segments, {self.start}..{self.end}>"

    def __len__(self) -> int:
        """The number of its segments."""
        return len(self.firsts)

    @property
    def streams(self) -> set[Stream]:
        """The streams of the records that are there."""
        return set(self.spans)

    @property
    def behind_last(self) -> tuple[int, int]:
        """The offset behind the last record, and that record's epoch. Up to `end` there may be
        markers, whose epochs nobody tells.
        """
        return (self.lasts[-1] + 1, self.epoch) if self.lasts else (self.end, EPOCH_NOT_KNOWN)

    def read_epoch(self, offset: int, epoch: int | None) -> None:
        """A record has this epoch. They are told in the order of the log."""
        if self.cut is not None and self.cut_at is None and (epoch or 0) > self.cut.epoch:
            self.cut_at = offset

    @property
    def replaced(self) -> Range | None:
        """The own records that took the places of lost ones."""
        if self.cut is None or self.cut_at is None or self.cut_at >= self.cut.end:
            return None
        return self.cut_at, self.cut.end - 1

    def extend(self, rows: Rows, end: int) -> None:
        """`rows` follow those read so far, up to (not including) offset `end`."""
        assert not len(rows) or self.end <= rows.offsets[0], "rows were read before"
        for offset, timestamp, stream, origin in zip(
            rows.offsets, rows.timestamps, rows.streams, rows.origins, strict=True
        ):
            self._add(offset, timestamp, stream, origin)
        self.end = max(self.end, end)
        while len(self) > self._segments_max:
            self._halve()

    def _add(self, offset: int, timestamp: int, stream: Stream, origin: int) -> None:
        latest = self.latest_ms if self.latest_ms is not None else timestamp
        late = 0
        if stream != self.own:
            self.copies += 1
            late = max(0, latest - timestamp)
        self.latest_ms = max(latest, timestamp)
        if not self.records or self.records[-1] >= self.segment_records:
            self._open(offset, timestamp)
        self.lasts[-1], self.last_ms[-1] = offset, timestamp
        if timestamp < self.earliest[-1]:
            self.earliest[-1] = timestamp
        if timestamp > self.latest[-1]:
            self.latest[-1] = timestamp
        if late > self.late[-1]:
            self.late[-1] = late
        self.records[-1] += 1
        spans = self.spans.get(stream)
        if spans is None:
            spans = self.spans[stream] = Spans(len(self))
        spans.add(origin)

    def _open(self, offset: int, timestamp: int) -> None:
        for column in (self.firsts, self.lasts):
            column.append(offset)
        for column in (self.earliest, self.latest, self.last_ms):
            column.append(timestamp)
        self.late.append(0)
        self.records.append(0)
        for spans in self.spans.values():
            spans.open()

    def _halve(self) -> None:
        self.segment_records *= 2
        self.firsts = _paired(self.firsts, min)
        self.lasts = _paired(self.lasts, max)
        self.earliest = _paired(self.earliest, min)
        self.latest = _paired(self.latest, max)
        self.last_ms = _paired(self.last_ms, lambda _, later: later)
        self.late = _paired(self.late, max)
        self.records = _paired(self.records, int.__add__)
        for spans in self.spans.values():
            spans.halve()

    def forget(self, log_start: int) -> None:
        """Retention or DeleteRecords took everything before `log_start`."""
        self.start = max(self.start, log_start)
        self.end = max(self.end, log_start)
        gone = bisect_left(self.lasts, log_start)
        if not gone:
            return
        self.passed_last_ms = self.last_ms[gone - 1]
        for stream, spans in list(self.spans.items()):
            if spans.upto[gone - 1] != NONE_HIGH:
                self.passed[stream] = max(spans.upto[gone - 1], self.passed.get(stream, NONE_HIGH))
            spans.drop(gone)
            if not any(spans.records):
                del self.spans[stream]
        for column in (
            *(self.firsts, self.lasts, self.earliest, self.latest),
            *(self.last_ms, self.late, self.records),
        ):
            del column[:gone]

    def compare(self, processed: int, log_end: int) -> bool:
        """Takes in that a group has processed the own records before `processed`, in a life that is
        not told, while the log ends at `log_end`. Returns True if the topic must have had an
        earlier life here, and that was not known.
        """
        if processed <= max(log_end, self.former_end):
            return False
        self.former_end = processed
        return True

    # -------------------------------------------------------------------------------- questions

    def at(self, offset: int) -> int:
        """The number of the first segment that ends at or after `offset`."""
        return bisect_left(self.lasts, offset)

    def highest(self, stream: Stream, before: int) -> int:
        """The highest origin in the segments before number `before`, or NONE_HIGH."""
        return self.spans[stream].upto[before - 1] if before else NONE_HIGH

    def not_covered(self, vector: Mapping[Stream, int]) -> Iterator[int]:
        """The segments with an origin that is not before its stream's in `vector`, in order."""
        sought = [(spans, vector.get(stream, 0)) for stream, spans in self.spans.items()]
        first = min((bisect_left(spans.upto, since) for spans, since in sought), default=len(self))
        for number in range(first, len(self)):
            if any(spans.high[number] >= since for spans, since in sought):
                yield number

    def late_ms(self, window_ms: int) -> int:
        """How late a copied record came, at most, among those of the last `window_ms`."""
        if self.latest_ms is None:
            return 0
        if self._late[:2] != (self.end, window_ms):
            since = self.latest_ms - window_ms
            columns = zip(self.late, self.latest, strict=True)
            found = max((late for late, latest in columns if latest >= since), default=0)
            self._late = (self.end, window_ms, found)
        return self._late[2]


def _paired(column: array[int], join: Callable[[int, int], int]) -> array[int]:
    """Joins neighbours in pairs. The last one stays alone if it has no neighbour."""
    rest = column[len(column) - len(column) % 2 :]
    return array("q", map(join, column[::2], column[1::2])) + rest
