"""The batch cache against a model: a log of batches read piecemeal, from anywhere, in any order."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.core.cluster.topology import TopicPartition
from gateway.core.limits import LONG_STEP_BYTES
from gateway.core.reading.cache import (
    PIECE_BYTES,
    PORTIONS_OF_A_CACHE,
    BatchCache,
    Cut,
    RecordsGone,
    RecordsLarge,
    Source,
)
from gateway.core.wire.long_bytes import whole
from gateway.core.wire.records import Batch, Record, build, read_records, scan

SOURCE = Source(TopicPartition("t", b"\1" * 16, 0), 1)
ANY = 10_000  # bytes, more than any cut here has
OTHER = Source(TopicPartition("t", b"\1" * 16, 1), 1)


def batch(base: int, offsets: list[int], last: int | None = None) -> Batch:
    records = [Record(at, 1_000 + at, b"k%d" % at, b"v%d" % at) for at in offsets]
    return scan(build(records, base_offset=base, last_offset=last))[0]


def full(base: int, count: int) -> Batch:
    return batch(base, list(range(base, base + count)))


def cut(pieces: list[tuple[int, Batch | None]], offsets: list[int], bytes_max: int = ANY) -> bytes:
    out = Cut(offsets, 100, bytes_max)
    for end, batch_of in pieces:
        out.add(end, batch_of)
    return whole(out.done())


@dataclass(frozen=True)
class LogBatch:
    base: int
    last: int
    offsets: list[int]
    visible: bool  # False: aborted or control


@st.composite
def logs(draw: st.DrawFn) -> list[LogBatch]:
    log = []
    at = 0
    for _ in range(draw(st.integers(1, 12))):
        at += draw(st.sampled_from([0, 0, 0, 3]))  # compaction took whole batches
        size = draw(st.integers(1, 5))
        offsets = [at + i for i in range(size) if draw(st.integers(0, 4))] or [at]
        log.append(LogBatch(at, at + size - 1, offsets, draw(st.integers(0, 4)) != 0))
        at += size
    return log


def fetch(cache: BatchCache, log: list[LogBatch], position: int, count: int) -> None:
    """As Kafka answers: whole batches, from the one that holds `position` on."""
    read = [one for one in log if one.last >= position][:count]
    if read:
        visible = [batch(one.base, one.offsets, one.last) for one in read if one.visible]
        cache.add(SOURCE, position, visible, read[-1].last + 1)


@given(
    logs(),
    st.lists(st.tuples(st.integers(0, 60), st.integers(1, 4)), max_size=12),
    st.integers(0, 60),
    st.integers(1, 30),
    st.integers(0, 60),
)
def test_columns_are_the_log_wherever_it_was_read(
    log: list[LogBatch],
    reads: list[tuple[int, int]],
    position: int,
    offsets_max: int,
    forgotten: int,
) -> None:
    cache = BatchCache(1_000_000)
    for at, count in reads:
        fetch(cache, log, at, count)
        cache.check_invariants()
    cache.forget_below(SOURCE, forgotten)
    cache.check_invariants()

    columns = cache.columns(SOURCE, position, offsets_max)
    whole = cache.columns(SOURCE, position, ANY)
    first = whole.offsets[0] if whole is not None and whole.offsets else None
    oldest = cache.oldest_from(SOURCE, position)
    assert oldest == (None if first is None else (first, 1_000 + first))
    if columns is None:
        covered = [
            at
            for at, count in reads
            for one in [one for one in log if one.last >= at][:count]
            if at <= position <= one.last and position >= forgotten
        ]
        assert not covered
        return
    assert columns.start == position
    assert position < columns.end <= position + offsets_max
    visible = [at for one in log if one.visible for at in one.offsets]
    assert columns.offsets == [at for at in visible if position <= at < columns.end]
    assert columns.keys == [b"k%d" % at for at in columns.offsets]
    if columns.offsets:
        data = cache.slices(SOURCE, columns.offsets, 2, ANY)
        assert data is not None
        assert [record.offset for record in read_records(data)] == columns.offsets


def test_a_result_is_cut_at_the_limit_and_the_rest_stays() -> None:
    cache = BatchCache(1_000_000)
    cache.add(SOURCE, 0, [full(0, 10), full(10, 10)], 20)

    first = cache.columns(SOURCE, 0, 13)
    assert first is not None
    assert (first.end, first.offsets) == (13, list(range(13)))
    rest = cache.columns(SOURCE, 13, 100)
    assert rest is not None
    assert (rest.start, rest.end, rest.offsets) == (13, 20, list(range(13, 20)))


def test_holes_at_the_end_are_part_of_the_result() -> None:
    cache = BatchCache(1_000_000)
    cache.add(SOURCE, 0, [batch(0, [0, 2], last=5)], 9)  # 3 to 5 compacted, 6 to 8 aborted

    columns = cache.columns(SOURCE, 0, 100)
    assert columns is not None
    assert (columns.end, columns.offsets) == (9, [0, 2])
    only_holes = cache.columns(SOURCE, 7, 100)
    assert only_holes is not None
    assert (only_holes.start, only_holes.end, only_holes.offsets) == (7, 9, [])


def test_a_stretch_that_was_not_read_ends_the_result() -> None:
    cache = BatchCache(1_000_000)
    cache.add(SOURCE, 0, [full(0, 5)], 5)
    cache.add(SOURCE, 8, [full(8, 5)], 13)

    columns = cache.columns(SOURCE, 0, 100)
    assert columns is not None
    assert columns.end == 5
    assert cache.columns(SOURCE, 5, 100) is None
    assert cache.columns(OTHER, 0, 100) is None


def test_the_oldest_pieces_make_room() -> None:
    one = full(0, 10)
    cache = BatchCache(3 * (one.size + PIECE_BYTES))
    for at in range(0, 50, 10):
        cache.add(SOURCE if at % 20 else OTHER, at, [full(at, 10)], at + 10)
        cache.shrink()
        cache.check_invariants()
    assert cache.bytes <= cache.bytes_max
    assert cache.columns(OTHER, 0, 1) is None
    assert cache.columns(SOURCE, 10, 1) is None
    assert cache.columns(OTHER, 40, 1) is not None


def test_a_cursor_inside_a_batch_keeps_it() -> None:
    cache = BatchCache(1_000_000)
    cache.add(SOURCE, 0, [full(0, 10), full(10, 10)], 20)
    cache.forget_below(SOURCE, 15)
    assert cache.piece(SOURCE, 9) is None
    assert cache.piece(SOURCE, 10) is not None
    cache.forget_below(SOURCE, 20)
    assert cache.bytes == 0
    assert cache.shrink() == 0  # dropped pieces leave the queue without counting as evicted
    cache.check_invariants()


def test_a_piece_that_stays_holds_up_no_others() -> None:
    """While a blocked record kept one piece, a trace of every later piece stayed in memory."""
    cache = BatchCache(1_000_000)
    cache.add(SOURCE, 0, [full(0, 1)], 1)
    for at in range(10_000):
        cache.add(OTHER, at, [], at + 1)
        cache.forget_below(OTHER, at + 1)
        assert cache.shrink() == 0
    cache.check_invariants()
    assert cache.piece(SOURCE, 0) is not None
    assert len(cache._queue) == 1


def test_slices_need_every_piece() -> None:
    cache = BatchCache(1_000_000)
    cache.add(SOURCE, 0, [full(0, 5)], 5)
    assert cache.slices(SOURCE, [1, 7], 10, ANY) is None
    cache.add(SOURCE, 5, [full(5, 5)], 10)
    data = cache.slices(SOURCE, [1, 4, 7], 1, ANY)
    assert data is not None
    assert [(record.offset, record.value) for record in read_records(data)] == [
        (1, b"v1"),
        (4, b"v4"),
        (7, b"v7"),
    ]
    assert [part.count for part in scan(whole(data))] == [1, 1, 1]


def test_records_that_are_gone_are_all_named_at_once() -> None:
    pieces: list[tuple[int, Batch | None]] = [(4, None), (10, batch(4, [4, 6], last=9))]
    with pytest.raises(RecordsGone) as gone:
        cut(pieces, [1, 3, 4, 5, 6, 8])
    assert gone.value.offsets == [1, 3, 5, 8]


def test_a_cut_asks_for_the_pieces_it_needs() -> None:
    pieces: list[tuple[int, Batch | None]] = [(5, full(0, 5)), (8, None), (13, full(8, 5))]
    out = Cut([1, 4, 9], 100, ANY)
    asked = []
    while (offset := out.next()) is not None:
        asked.append(offset)
        out.add(*next(piece for piece in pieces if offset < piece[0]))
    assert asked == [1, 9]
    assert [record.offset for record in read_records(out.done())] == [1, 4, 9]


def test_a_cut_stops_at_what_is_too_large() -> None:
    """With as many as fit: whole batches, and of the one that does not fit its records' share."""
    pieces: list[tuple[int, Batch | None]] = [(5, full(0, 5)), (18, full(8, 10))]
    offsets = [1, 4, *range(8, 18)]
    first, whole = len(cut(pieces[:1], [1, 4])), len(cut(pieces, offsets))
    assert cut(pieces, offsets, whole) == cut(pieces, offsets)
    for room, fitting in (
        (whole - 1, 11),
        ((first + whole + 1) // 2, 7),
        (first, 2),
        (first - 1, 1),
    ):
        with pytest.raises(RecordsLarge) as large:
            cut(pieces, offsets, room)
        assert large.value.fitting == fitting
    with pytest.raises(RecordsLarge) as large:
        cut(pieces, offsets, -5)
    assert large.value.fitting == 0


def test_what_is_cached_is_cut_within_the_same_bound() -> None:
    cache = BatchCache(1_000_000)
    cache.add(SOURCE, 0, [full(0, 5), full(5, 5)], 10)
    size = len(cache.slices(SOURCE, [1, 4, 7], 10, ANY) or b"")
    assert cache.slices(SOURCE, [1, 4, 7], 10, size) is not None
    with pytest.raises(RecordsLarge) as large:
        cache.slices(SOURCE, [1, 4, 7], 10, size - 1)
    assert large.value.fitting == 2


def test_a_batch_larger_than_the_cache_is_read_a_few_times_not_for_every_fetch() -> None:
    """730,000 tiny records were dropped as soon as they came, and read again for every fetch."""
    large = batch(0, [at for at in range(3_000) if at % 7], last=3_000)
    cache = BatchCache(large.size // 2)
    position, scans, offsets = 0, 0, list[int]()
    while position <= large.last_offset:
        found = cache.columns(SOURCE, position, 10)
        if found is None:
            scans += 1
            cache.add(SOURCE, position, [large], large.last_offset + 1)
            continue
        cache.shrink()
        cache.check_invariants()
        assert cache.bytes <= cache.bytes_max
        if found.offsets:
            data = cache.slices(SOURCE, found.offsets, 100, ANY)
            assert data is not None
            assert [record.offset for record in read_records(data)] == found.offsets
        assert found.start == position
        offsets += found.offsets
        position = found.end
    assert offsets == large.offsets
    assert scans <= 6, "a quarter of it fits at a time, less the excess of a portion"


def test_however_small_the_cache_the_first_portion_has_room() -> None:
    """Else its readers would fetch it again and again, and never get on."""
    cache = BatchCache(1)
    cache.add(SOURCE, 0, [full(0, 10)], 10)
    columns = cache.columns(SOURCE, 0, 100)
    assert columns is not None
    assert columns.offsets == [0]


def test_slices_of_large_batches_are_long() -> None:
    """Each has a turn of the event loop to itself: three copies of 90 MB in one held it up."""
    cache = BatchCache(100_000_000)
    size = LONG_STEP_BYTES
    large = scan(
        build([Record(9, 0, b"k", bytes(size)), Record(10, 0, b"k", bytes(size))], base_offset=9)
    )
    cache.add(SOURCE, 0, [full(0, 9), *large], 11)
    assert not cache.is_long(SOURCE, [0, 8])
    assert cache.is_long(SOURCE, [8, 9])
    assert cache.is_long(SOURCE, [10])
    assert not cache.is_long(SOURCE, [11]), "it has to be read first"
    assert not cache.is_long(SOURCE, [])
    assert not cache.is_long(OTHER, [9])


def test_a_record_larger_than_the_cache_is_there_until_the_next_shrink() -> None:
    large = full(5, 1)
    cache = BatchCache(large.size // 3)
    cache.add(SOURCE, 5, [large, full(6, 1)], 7)
    columns = cache.columns(SOURCE, 5, 100)
    assert columns is not None
    assert (columns.end, columns.offsets) == (6, [5])
    cache.shrink()
    assert cache.columns(SOURCE, 5, 100) is None


def test_a_batch_in_portions_is_added_in_steps() -> None:
    large = full(0, 100)
    cache = BatchCache(PORTIONS_OF_A_CACHE * large.size * 3 // 8)
    adding = cache.adding(SOURCE, 0, [large, full(100, 1)], 101)
    sizes = []
    for _ in adding:
        cache.check_invariants()
        sizes.append(cache.bytes)
    assert len(sizes) == 3
    assert sizes == sorted(set(sizes)), "a portion in each step"
    columns = cache.columns(SOURCE, 0, 200)
    assert columns is not None
    assert columns.offsets == list(range(101))
    assert list(BatchCache(100 * large.size).adding(SOURCE, 0, [large], 100)) == [], "one step"
