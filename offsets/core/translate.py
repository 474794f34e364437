"""From a committed offset on one cluster to an offset on another. Both rules never go past a record
that the group has not processed; they differ in their needs.

**By timestamp.** T = the earliest timestamp of the records from the commit on, minus a margin;
with none from the commit on, the last record's timestamp minus the margin. On the target the group
goes on at the first record with a timestamp >= T. Proof: let r be a record that the group would
still get on the source. ts(r) >= T, so if r is on the target, the first record with a timestamp
>= T is r or stands before it. Nothing is asked of the order of timestamps or records, so that
reversed, equal and future ones, compaction and deleted records change nothing. If no record of the
target is that late, none that is left on the source has arrived there: the target's log end. If
the source has no record at all, there is no T, and those of the target may be later than the look
at the source: the target's log start.

This speaks of records that are on the source. A record of a third cluster may be on the target and
not on the source yet. So with records of several origins the rule holds only if the links are never
later than the margin; otherwise its answer is unsafe, and an answer of "no such record" always is.

**Exact.** The group's progress as a vector: of each stream (cluster, topic, partition of origin)
the next origin it has not processed. Records of a stream are copied in order, so everything below
has been processed. On the target the group goes on at the first record that the vector does not
cover. No timestamp is involved, and no lag of any link matters.

A topic that is deleted and created again on a cluster gives origins a second time, so the topic id
is a part of the stream. Headers of version 1 do not tell it. There, another topic id or progress
beyond the log's end tells of an earlier life. From then on, progress in the records produced there
counts as none, as long as it is not beyond all that was heard of that life.

With records out of order on the source (a link was rewound), the vector goes back to the lowest
origin that is still to come: some records come again, none is lost.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from offsets.core.index import NONE_HIGH, NONE_LOW, PartitionIndex
from offsets.core.limits import COUNTED_READS_MAX, SETTLED_RANGES_MAX, SETTLED_SPAN_OFFSETS
from offsets.core.model import Progress, Range, ReadRange, Rows, Search, Stream, joined

ANY_TIME: Final = -(1 << 63)


class Unsafe(StrEnum):
    """Why a timestamp cannot promise that nothing is lost."""

    LAG = "link-lag-above-margin"
    ORIGINS = "several-origins"
    BEFORE_START = "committed-before-log-start"


@dataclass(frozen=True, slots=True)
class SourceFacts:
    """A group's position in one partition of its source. `offset` is clamped to the log's end.

    `earliest_ms`: of the records from there on, None if there is none; `last_ms`: of the last
    record before it, None if none is known; `remaining`: records from there on; `late_ms`: the
    largest lag of a link that the log shows.
    """

    offset: int
    log_start: int
    log_end: int
    progress: Progress
    origins: int
    earliest_ms: int | None
    last_ms: int | None
    remaining: int
    late_ms: int = 0
    copies: bool = False


@dataclass(frozen=True, slots=True)
class ByTimestamp:
    """`timestamp_ms` None: the source has no record at all, so the target's log start. Never below
    0: the margin may be longer than a small timestamp, and a record may have none (-1).
    """

    timestamp_ms: int | None
    margin_ms: int
    unsafe: tuple[Unsafe, ...] = ()


@dataclass(frozen=True, slots=True)
class Located:
    """A position on the target. `replay`: records behind it that the group has processed, at most.
    `settled`: offsets behind it where they stand (a Key-Shared group can be told), with how many
    records each range has.
    """

    offset: int
    replay: int
    settled: Sequence[tuple[Range, int]] = ()
    timestamp_ms: int | None = None  # of the record there


# ------------------------------------------------------------------------------------- the source


def source_facts(
    index: PartitionIndex,
    committed: int,
    *,
    settled: Sequence[Range] = (),
    window_ms: int,
) -> Search[SourceFacts]:
    """The facts of a commit. `settled`: offsets beyond the commit that a Key-Shared group has
    settled.
    """
    offset = min(committed, index.end)
    number = index.at(offset)
    part = _Split({}, {}, None, None, 0)
    later = number  # the first segment that is wholly from `offset` on
    if number < len(index) and index.firsts[number] < offset:
        rows = yield ReadRange(index.firsts[number], index.lasts[number])
        part, later = _split(rows, index.start, offset), number + 1
    last_ms = index.last_ms[number - 1] if number else index.passed_last_ms
    vector, new = _vectors(index, offset, number, later, part)
    done: dict[Stream, list[Range]] = {}
    if settled:
        rows = yield ReadRange(offset, min(index.end, offset + SETTLED_SPAN_OFFSETS) - 1)
        done = _settled_origins(rows, settled)
    times = [part.earliest_ms] if part.earliest_ms is not None else []
    return SourceFacts(
        offset=offset,
        log_start=index.start,
        log_end=index.end,
        progress=Progress(vector, new, done),
        origins=len(index.streams | {index.own}),
        earliest_ms=min([*times, *index.earliest[later:]], default=None),
        last_ms=last_ms if part.last_ms is None else part.last_ms,
        remaining=part.remaining + sum(index.records[later:]),
        late_ms=index.late_ms(window_ms),
        copies=index.copies > 0,
    )


@dataclass(frozen=True, slots=True)
class _Split:
    """The segment that a commit falls into, on both sides of the commit.

    Before it: `done`, the highest origin of each stream, and `last_ms`, the time of the last
    record. From it on: `coming`, the lowest origin of each stream, `earliest_ms`, the earliest
    time, and `remaining`, the number of records.
    """

    done: dict[Stream, int]
    coming: dict[Stream, int]
    last_ms: int | None
    earliest_ms: int | None
    remaining: int


def _split(rows: Rows, start: int, committed: int) -> _Split:
    done: dict[Stream, int] = {}
    coming: dict[Stream, int] = {}
    last_ms = earliest_ms = None
    remaining = 0
    for offset, timestamp, stream, origin in zip(
        rows.offsets, rows.timestamps, rows.streams, rows.origins, strict=True
    ):
        if offset >= committed:
            coming[stream] = min(origin, coming.get(stream, origin))
            earliest_ms = timestamp if earliest_ms is None else min(earliest_ms, timestamp)
            remaining += 1
        elif offset >= start:
            done[stream] = max(origin, done.get(stream, origin))
            last_ms = timestamp
    return _Split(done, coming, last_ms, earliest_ms, remaining)


def _vectors(
    index: PartitionIndex, offset: int, before: int, later: int, part: _Split
) -> tuple[dict[Stream, int], dict[Stream, int]]:
    """Of each stream the first origin not processed, and the first one that is new for sure.
    `before`: how many segments are wholly before `offset`; `later`: the first one wholly behind.
    """
    known = offset >= index.start  # else records before the log's start may be unprocessed
    done: dict[Stream, int] = dict(index.passed) if known else {}
    coming: dict[Stream, int] = {}
    highest = dict(index.passed)
    for stream, spans in index.spans.items():
        high = max(index.highest(stream, before), part.done.get(stream, NONE_HIGH))
        if high != NONE_HIGH:
            done[stream] = max(high, done.get(stream, NONE_HIGH))
        low = min(spans.low_from(later), part.coming.get(stream, NONE_LOW))
        if low != NONE_LOW:
            coming[stream] = low
        highest[stream] = max(index.highest(stream, len(index)), highest.get(stream, NONE_HIGH))
    vector = {stream: min(high + 1, coming.get(stream, NONE_LOW)) for stream, high in done.items()}
    for stream, low in coming.items():
        if stream in vector:
            vector[stream] = min(vector[stream], low)
    if known and not index.whole:
        # Earlier ones have come and gone, in order; or are here in a stream that does not tell its
        # life.
        least = coming | vector
        for stream in coming.keys() - done.keys():
            vector[stream] = min(to for other, to in least.items() if other.may_be(stream))
    new = {stream: coming.get(stream, high + 1) for stream, high in highest.items()}
    return vector | {index.own: offset}, new | {index.own: offset}


def still_holds(index: PartitionIndex, progress: Progress, base_ms: int | None, since: int) -> bool:
    """Whether records from offset `since` on leave facts as they are: none has an origin that
    counted as processed, or comes of a stream that was not there, or an earlier timestamp than
    `base_ms`, that of the first ones that are left.
    """
    number = index.at(since)
    if number == len(index):
        return True
    if base_ms is None or min(index.earliest[number:]) < base_ms:
        return False
    return all(
        stream in progress.vector and spans.low_from(number) >= progress.vector[stream]
        for stream, spans in index.spans.items()
        if spans.low_from(number) != NONE_LOW
    )


def _settled_origins(rows: Rows, settled: Sequence[Range]) -> dict[Stream, list[Range]]:
    origins: dict[Stream, list[int]] = {}
    at = 0
    for offset, stream, origin in zip(rows.offsets, rows.streams, rows.origins, strict=True):
        while at < len(settled) and settled[at][1] < offset:
            at += 1
        if at < len(settled) and settled[at][0] <= offset:
            origins.setdefault(stream, []).append(origin)
    ranges = {stream: joined(sorted(numbers)) for stream, numbers in origins.items()}
    left = SETTLED_RANGES_MAX
    for stream, found in ranges.items():
        ranges[stream] = found[:left]
        left -= len(ranges[stream])
    return ranges


def by_timestamp(
    facts: SourceFacts, *, margin_ms: int, margin_ms_max: int, several_origins: bool
) -> ByTimestamp:
    """The margin is raised to the largest link lag seen, up to `margin_ms_max`. `several_origins`:
    other clusters write this topic, whether or not the log shows it.
    """
    margin, unsafe = margin_and_doubts(
        facts.late_ms,
        several=several_origins or facts.origins > 1,
        margin_ms=margin_ms,
        margin_ms_max=margin_ms_max,
    )
    base = facts.earliest_ms if facts.earliest_ms is not None else facts.last_ms
    if facts.offset < facts.log_start:
        unsafe = (*unsafe, Unsafe.BEFORE_START)
    # Negative times mean the latest record, or the end, to Kafka's ListOffsets.
    at = None if base is None else max(0, base - margin)
    return ByTimestamp(at, margin, unsafe)


def margin_and_doubts(
    late_ms: int, *, several: bool, margin_ms: int, margin_ms_max: int
) -> tuple[int, tuple[Unsafe, ...]]:
    """The margin and the doubts of a partition, whatever the position of a group."""
    if not several:
        return margin_ms, ()
    margin = min(max(margin_ms, late_ms), max(margin_ms, margin_ms_max))
    return margin, (Unsafe.LAG if late_ms > margin_ms else Unsafe.ORIGINS,)


# ------------------------------------------------------------------------------------- the target


def first_at_or_after(index: PartitionIndex, timestamp_ms: int) -> Search[int | None]:
    """The offset of the first record with a timestamp >= `timestamp_ms`, as ListOffsets answers;
    None if there is none (Kafka's -1). 0 finds the first record, also one without a timestamp (-1).
    """
    if timestamp_ms <= 0:
        timestamp_ms = ANY_TIME
    for number in range(len(index)):
        if index.latest[number] < timestamp_ms:
            continue
        rows = yield ReadRange(max(index.firsts[number], index.start), index.lasts[number])
        for offset, timestamp in zip(rows.offsets, rows.timestamps, strict=True):
            if timestamp >= timestamp_ms:
                return offset
    return None


def locate(index: PartitionIndex, progress: Progress, *, behind: int = 0) -> Search[Located]:
    """The first record that `progress` does not cover, or the log's end. `behind`: how many offsets
    from there on are searched for processed ones (0: the caller has no use for them).
    """
    progress = _of_this_life(index, progress).told_of({*index.streams, index.own})
    progress = _of_this_log(index, progress)
    found: Located | None = None
    start = len(index)
    for number in index.not_covered(progress.vector):
        rows = yield ReadRange(max(index.firsts[number], index.start), index.lasts[number])
        at = _first_missing(rows, progress)
        if at is not None:
            again = _repeats(rows, progress, at)
            found = Located(rows.offsets[at], again, timestamp_ms=rows.timestamps[at])
            start = number + 1
            break
    if found is None:
        return Located(index.end, 0)
    replay = found.replay + (yield from _replay(index, start, progress))
    settled: list[tuple[Range, int]] = []
    if behind:
        rows = yield ReadRange(found.offset, min(index.end, found.offset + behind) - 1)
        settled = _settled_here(rows, progress)
    return Located(found.offset, replay, settled, found.timestamp_ms)


def may_repeat(index: PartitionIndex, progress: Progress, since: int) -> bool:
    """Whether a record from offset `since` on may have been processed."""
    number = index.at(since)
    return any(
        spans.low_from(number) < progress.new.get(stream, 0)
        for stream, spans in index.spans.items()
    )


def _of_this_life(index: PartitionIndex, progress: Progress) -> Progress:
    """Without the records produced here in a life that is not told, as long as it may be an earlier
    one.
    """
    if not index.former_end:
        return progress
    own = index.own._replace(life="")
    if progress.vector.get(own, 0) > index.former_end:
        return progress
    vector = {stream: origin for stream, origin in progress.vector.items() if stream != own}
    settled = {stream: ranges for stream, ranges in progress.settled.items() if stream != own}
    return Progress(vector, progress.new, settled)


def _of_this_log(index: PartitionIndex, progress: Progress) -> Progress:
    """Without the records produced here in place of others that this log has lost: it is those that
    were processed. With progress beyond all that was lost, those in their places have come by.
    """
    own, replaced = index.own, index.replaced
    processed = progress.vector.get(own, 0)
    if replaced is None or processed > replaced[1] + 1:
        return progress
    first, last = replaced
    settled = [
        part
        for low, high in progress.settled.get(own, ())
        for part in ((low, min(high, first - 1)), (max(low, last + 1), high))
        if part[0] <= part[1]
    ]
    vector = {**progress.vector, own: min(processed, first)}
    return Progress(vector, progress.new, {**progress.settled, own: settled})


def _first_missing(rows: Rows, progress: Progress) -> int | None:
    for at, (stream, origin) in enumerate(zip(rows.streams, rows.origins, strict=True)):
        if not progress.has(stream, origin):
            return at
    return None


def _repeats(rows: Rows, progress: Progress, start: int) -> int:
    """How many records from row `start` on may have been processed."""
    return sum(
        progress.may_have(stream, origin)
        for stream, origin in zip(rows.streams[start:], rows.origins[start:], strict=True)
    )


def _replay(index: PartitionIndex, start: int, progress: Progress) -> Search[int]:
    """How many records of the segments from `start` on may have been processed. They are counted
    one by one, or all are counted where too many segments would have to be read.
    """
    sought = [
        (spans, progress.new.get(stream, 0), stream in progress.settled)
        for stream, spans in index.spans.items()
    ]
    if all(not told and spans.low_from(start) >= since for spans, since, told in sought):
        return 0
    count = reads = 0
    for number in range(start, len(index)):
        sure = unsure = 0
        for spans, since, told in sought:
            if spans.high[number] < since:
                sure += spans.records[number]
            elif spans.low[number] < since or told:
                unsure += spans.records[number]
        if unsure and reads < COUNTED_READS_MAX:
            reads += 1
            rows = yield ReadRange(index.firsts[number], index.lasts[number])
            count += _repeats(rows, progress, 0)
        else:
            count += sure + unsure
    return count


def _settled_here(rows: Rows, progress: Progress) -> list[tuple[Range, int]]:
    """Offsets of processed records as ranges. A gap between two of them is a hole of the log (a
    marker, a compacted record), so the range goes on over it.
    """
    found: list[tuple[Range, int]] = []
    open_range = False  # the last record was processed
    for offset, stream, origin in zip(rows.offsets, rows.streams, rows.origins, strict=True):
        processed = progress.has(stream, origin)
        if processed and open_range:
            (first, _), records = found[-1]
            found[-1] = (first, offset), records + 1
        elif processed:
            found.append(((offset, offset), 1))
        open_range = processed
    return found
