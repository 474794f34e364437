"""The batch cache of a log that has lost its tail: other records take the offsets of lost ones."""

from __future__ import annotations

import pytest

from gateway.core.cluster.topology import TopicPartition
from gateway.core.reading.cache import BatchCache, RecordsGone, RecordsReplaced, Source
from gateway.core.wire.records import Batch, Record, build, scan

SOURCE = Source(TopicPartition("t", b"\1" * 16, 0), 1)


def batch(base: int, end: int, epoch: int) -> Batch:
    records = [Record(at, 1_000, b"%d of %d" % (at, epoch), b"") for at in range(base, end)]
    return scan(build(records, base_offset=base, leader_epoch=epoch))[0]


def filled(*pieces: tuple[int, int, int]) -> BatchCache:
    """Pieces as first offset, end and epoch."""
    cache = BatchCache(1_000_000)
    for start, end, epoch in pieces:
        cache.add(SOURCE, start, [batch(start, end, epoch)], end, epoch)
        cache.check_invariants()
    return cache


def held(cache: BatchCache, start: int, end: int) -> list[int]:
    """The epochs of the pieces that cover these offsets; -1: none does."""
    pieces = [cache.piece(SOURCE, offset) for offset in range(start, end)]
    return [-1 if piece is None else piece.epoch for piece in pieces]


def test_a_stretch_ends_where_another_leader_begins() -> None:
    cache = filled((0, 2, 0), (2, 4, 0), (4, 6, 3))
    first = cache.columns(SOURCE, 1, 100)
    assert first is not None
    assert (first.offsets, first.epoch) == ([1, 2, 3], 0)
    then = cache.columns(SOURCE, first.end, 100)
    assert then is not None
    assert (then.keys, then.epoch) == ([b"4 of 3", b"5 of 3"], 3)


@pytest.mark.parametrize(
    ("read", "left"),
    [
        ((2, 4, 1), [0, 0, 1, 1, -1, -1]),
        ((3, 4, 1), [0, 0, -1, 1, -1, -1]),
        ((0, 1, 1), [1, -1, -1, -1, -1, -1]),
        ((4, 6, 0), [0, 0, 0, 0, 0, 0]),
    ],
)
def test_what_is_behind_a_record_of_a_later_epoch_is_lost(
    read: tuple[int, int, int], left: list[int]
) -> None:
    assert held(filled((0, 2, 0), (2, 4, 0), (4, 6, 0), read), 0, 6) == left


def test_later_epochs_behind_are_kept() -> None:
    assert held(filled((0, 2, 0), (4, 6, 3), (2, 4, 1)), 0, 6) == [0, 0, 1, 1, 3, 3]


def test_an_answer_that_comes_late_replaces_nothing() -> None:
    assert held(filled((0, 2, 0), (2, 6, 1), (2, 4, 0)), 0, 6) == [0, 0, 1, 1, 1, 1]


def test_records_of_a_later_epoch_are_not_those_that_were_read() -> None:
    cache = filled((0, 2, 0), (2, 4, 1))
    assert cache.slices(SOURCE, [0, 1], 9, 999, 0) is not None
    with pytest.raises(RecordsReplaced):
        cache.slices(SOURCE, [1, 2], 9, 999, 0)
    assert cache.slices(SOURCE, [1, 2], 9, 999, 1) is not None


def test_what_compaction_took_before_a_record_of_a_later_epoch_is_gone() -> None:
    """A piece begins with the hole before its batch."""
    cache = filled((0, 2, 0))
    cache.add(SOURCE, 2, [batch(4, 6, 1)], 6, 1)
    with pytest.raises(RecordsGone) as gone:
        cache.slices(SOURCE, [1, 2, 3], 9, 999, 0)
    assert gone.value.offsets == [2, 3]


@pytest.mark.parametrize(("end", "left"), [(4, 4), (3, 2), (2, 2), (0, 0)])
def test_a_lost_tail_is_dropped(end: int, left: int) -> None:
    cache = filled((0, 2, 0), (2, 4, 0))
    cache.forget_from(SOURCE, end)
    cache.check_invariants()
    assert held(cache, 0, 4) == [0] * left + [-1] * (4 - left)
