"""The index of one partition: its records, by segments of some thousand.

It is built once, by reading the log from its start, and then follows the log's end. A segment knows
of each stream its lowest and highest origin, and the earliest timestamp. That is enough to find any
record by reading one segment again, and it takes no memory for single records.

Retention takes segments away from the front; their word about progress is kept, for a group
that is behind them has passed them all the same. Compaction may take any record: a second reading
then has fewer records than the segment says, and every rule in translate.py holds for those left.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise

from offsets.core.limits import SEGMENT_RECORDS, SEGMENTS_MAX
from offsets.core.model import Rows, Stream


@dataclass(slots=True)
class Span:
    """The records of one stream in one segment."""

    low: int
    high: int
    records: int

    def add(self, other: Span) -> None:
        self.low = min(self.low, other.low)
        self.high = max(self.high, other.high)
        self.records += other.records


@dataclass(slots=True)
class Segment:
    """`first`, `last`: offsets of its first and last record. `late_ms`: how far a copied record
    was behind the latest timestamp before it, at most.
    """

    first: int
    last: int
    earliest_ms: int
    latest_ms: int
    last_ms: int
    late_ms: int = 0
    records: int = 0
    spans: dict[Stream, Span] = field(default_factory=dict)

    def add(self, other: Segment) -> None:
        """`other` comes behind it."""
        self.last, self.last_ms = other.last, other.last_ms
        self.earliest_ms = min(self.earliest_ms, other.earliest_ms)
        self.latest_ms = max(self.latest_ms, other.latest_ms)
        self.late_ms = max(self.late_ms, other.late_ms)
        self.records += other.records
        for stream, span in other.spans.items():
            mine = self.spans.get(stream)
            if mine is None:
                self.spans[stream] = Span(span.low, span.high, span.records)
            else:
                mine.add(span)


class PartitionIndex:
    """`own`: the stream of the records that were produced here. `start`: the log's start when the
    index began; nothing is known of records before it.
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
        self.segments: list[Segment] = []
        self.passed: dict[Stream, int] = {}  # highest origin of segments that retention took
        self.passed_last_ms: int | None = None
        self.copies = 0  # records from elsewhere seen so far
        self.former_end = 0  # of the log in an earlier life of the topic, as far as is known
        self._latest_ms: int | None = None
        self._segment_records = segment_records
        self._segments_max = segments_max

    def __repr__(self) -> str:
        return f"<index of {self.own}: {len(self.segments)} segments, {self.start}..{self.end}>"

    @property
    def streams(self) -> set[Stream]:
        """Of the records that are there."""
        return {stream for segment in self.segments for stream in segment.spans}

    def extend(self, rows: Rows, end: int) -> None:
        """`rows` follow those read so far, up to (not including) offset `end`."""
        assert not len(rows) or self.end <= rows.offsets[0], "rows were read before"
        for offset, timestamp, stream, origin in zip(
            rows.offsets, rows.timestamps, rows.streams, rows.origins, strict=True
        ):
            self._add(offset, timestamp, stream, origin)
        self.end = max(self.end, end)
        while len(self.segments) > self._segments_max:
            self._halve()

    def _add(self, offset: int, timestamp: int, stream: Stream, origin: int) -> None:
        latest = self._latest_ms if self._latest_ms is not None else timestamp
        late = 0
        if stream != self.own:
            self.copies += 1
            late = max(0, latest - timestamp)
        self._latest_ms = max(latest, timestamp)
        if not self.segments or self.segments[-1].records >= self._segment_records:
            self.segments.append(Segment(offset, offset, timestamp, timestamp, timestamp))
        segment = self.segments[-1]
        segment.last, segment.last_ms = offset, timestamp
        segment.earliest_ms = min(segment.earliest_ms, timestamp)
        segment.latest_ms = max(segment.latest_ms, timestamp)
        segment.late_ms = max(segment.late_ms, late)
        segment.records += 1
        span = segment.spans.get(stream)
        if span is None:
            segment.spans[stream] = Span(origin, origin, 1)
        else:
            span.low, span.high = min(span.low, origin), max(span.high, origin)
            span.records += 1

    def _halve(self) -> None:
        self._segment_records *= 2
        segments = self.segments
        for one, other in list(pairwise(segments))[::2]:
            one.add(other)
        self.segments = segments[::2]

    def forget(self, log_start: int) -> None:
        """Retention or DeleteRecords took everything before `log_start`."""
        self.start = max(self.start, log_start)
        self.end = max(self.end, log_start)
        gone = 0
        for segment in self.segments:
            if segment.last >= log_start:
                break
            gone += 1
            self.passed_last_ms = segment.last_ms
            for stream, span in segment.spans.items():
                self.passed[stream] = max(span.high, self.passed.get(stream, -1))
        del self.segments[:gone]

    def compare(self, processed: int, log_end: int) -> bool:
        """Takes in that a group has processed the own records before `processed`, of a life that is
        not told, and that the log ends at `log_end` now. True: so the topic has had an earlier life
        here, which is news.
        """
        if processed <= max(log_end, self.former_end):
            return False
        self.former_end = processed
        return True

    def at(self, offset: int) -> int:
        """The number of the first segment that ends at or after `offset`."""
        return bisect_left(self.segments, offset, key=lambda it: it.last)

    def behind(self, number: int) -> Iterator[Segment]:
        yield from self.segments[number:]

    def late_ms(self, window_ms: int) -> int:
        """How late a copied record came, at most, among those of the last `window_ms`."""
        if self._latest_ms is None:
            return 0
        since = self._latest_ms - window_ms
        return max((it.late_ms for it in self.segments if it.latest_ms >= since), default=0)
