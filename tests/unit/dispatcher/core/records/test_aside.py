"""Records aside: the others pass them, they keep their order, and a restart finds them."""

from random import Random

import pytest

from dispatcher.core.limits import STRETCH_OFFSETS
from dispatcher.core.model import (
    AckError,
    AckType,
    LogTruncated,
    OperatorAct,
    OperatorVerb,
    Policy,
    Reason,
)
from dispatcher.core.records.aside import Aside
from dispatcher.core.records.offset_bits import offsets_in, packed
from dispatcher.core.steps import AsideSet, CursorMoved, Notice
from tests.rig.playbook import Playbook

SPAN = 8


def parked(*, prefetch: int = 1, held_max: int = 1_000_000) -> Playbook:
    """Offset 0, of key `poison`, is parked."""
    policy = Policy(span_max=SPAN, deliveries_max=1, prefetch_per_key=prefetch, held_max=held_max)
    play = Playbook(policy).join("c1").produce(b"poison")
    assert play.acquire("c1") == [0]
    play.ack("c1", 0, AckType.RELEASE)
    assert play.notices()[Notice.PARKED] == 1
    return play


def pass_by(play: Playbook, count: int, *, every: int = 10) -> list[int]:
    """As many records of other keys are produced and settled, one of the parked key among `every`;
    returns those of the parked key.
    """
    first = play.log_end
    backlog = [first + at for at in range(count) if at % every == 0]
    for at in range(count):
        play.log[first + at] = b"poison" if at % every == 0 else b"key-%d" % (at % 5)
    play.log_end = first + count
    play.read()
    while True:
        offsets = play.acquire("c1")
        if not offsets and play.core.read_position >= play.log_end:
            return backlog
        play.acks("c1", [(o, o, b"\1") for o in offsets])
        if play.core.read_position < play.log_end:
            play.read()


def release(play: Playbook) -> None:
    play.on(OperatorAct(OperatorVerb.RETRY, [0], play.now_ms))


def drained(play: Playbook) -> list[int]:
    order: list[int] = []
    while offsets := play.acquire("c1"):
        order += offsets
        play.acks("c1", [(o, o, b"\1") for o in offsets])
    return order


def test_other_keys_go_on_however_far_and_the_backlog_comes_in_order() -> None:
    play = parked()
    backlog = pass_by(play, 100 * SPAN)
    assert (play.core.cursor, play.core.read_position) == (0, 100 * SPAN + 1)
    stats = play.core.stats()
    assert (stats.unsettled, stats.keys, len(stats.parked)) == (1 + len(backlog), 1, 1)
    assert stats.full_span is None
    assert len(play.core.settled_ranges()) == len(backlog)
    assert play.core.settled_count() == 100 * SPAN - len(backlog)
    release(play)
    assert drained(play) == [0, *backlog]
    assert play.core.cursor == 100 * SPAN + 1
    assert play.core.stats().aside == 0


@pytest.mark.deep
def test_a_restart_reads_the_records_aside_and_no_others() -> None:
    play = parked()
    backlog = pass_by(play, 6_000, every=2_000)
    assert play.stored.front == play.core.front > 5_000
    play.restart().join("c1")
    reads: list[tuple[int, int]] = []
    while play.core.read_position < play.log_end and play.read_on():
        ((position, count),) = play.read_on()
        reads.append((position, count))
        play.read_part(position, position + count)
    assert reads == [(0, 2), (backlog[1], 1), (backlog[2], 1)]
    assert [record.key for record in play.core.stats().parked] == [b"poison"]
    release(play)
    assert drained(play) == [0, *backlog]


def test_a_settled_record_aside_is_settled_in_the_store() -> None:
    play = parked()
    pass_by(play, 3 * SPAN, every=SPAN)
    front = play.core.front
    play.on(OperatorAct(OperatorVerb.SKIP, [0], play.now_ms))
    play.persists(CursorMoved(1, front, aside=3))
    (change,) = [made for made in play.step.changes if isinstance(made, AsideSet)]
    assert 0 not in offsets_in(change.stretch, change.data)
    assert play.restart().core.cursor == 1


def test_a_record_aside_that_compaction_took_is_settled_when_it_is_read_again() -> None:
    play = parked()
    backlog = pass_by(play, 4 * SPAN)
    play.restart()
    del play.log[backlog[1]], play.log[0]
    play.join("c1")
    play.read()
    assert play.core.stats().parked == []
    assert drained(play) == [offset for offset in backlog if offset in play.log]


def test_retention_that_passes_a_parked_record_settles_it() -> None:
    play = parked()
    backlog = pass_by(play, 20 * SPAN)
    play.on(LogTruncated(backlog[3] + 1, play.now_ms))
    assert play.notices() == {Notice.TRUNCATED: 5}
    assert play.core.cursor == backlog[4]
    assert drained(play) == backlog[4:], "nothing of it is held any more"


def test_retention_that_passes_the_backlog_of_a_key_that_is_in_flight() -> None:
    """What is left of the backlog waits for the first one, wherever it is."""
    play = parked()
    backlog = pass_by(play, 20 * SPAN)
    release(play)
    assert play.acquire("c1") == [0]
    play.on(LogTruncated(backlog[3] + 1, play.now_ms))
    assert (play.core.cursor, play.notices()) == (0, {Notice.TRUNCATED: 4})
    assert play.acquire("c1") == []
    play.on(LogTruncated(play.log_end, play.now_ms))
    assert play.core.stats().unsettled == 1
    play.produce(b"poison", b"poison")
    assert play.acquire("c1") == []
    assert play.acks("c1", [(0, 0, b"\1")]) == [None]
    assert drained(play) == [play.log_end - 2, play.log_end - 1]


def test_retention_that_passes_all() -> None:
    play = parked()
    pass_by(play, 20 * SPAN)
    play.restart()
    play.on(LogTruncated(1_000, play.now_ms))
    assert (play.core.cursor, play.core.front, play.core.read_position) == (1_000,) * 3


def test_a_lease_aside_is_acknowledged_after_a_restart_before_it_is_read() -> None:
    play = parked()
    backlog = pass_by(play, 5 * SPAN)
    release(play)
    assert play.acquire("c1") == [0]
    play.restart().join("c1")
    assert play.ack("c1", 0) == [None]
    assert play.core.cursor == backlog[0]
    play.read()
    assert drained(play) == backlog


def test_a_lease_aside_times_out_and_goes_out_again() -> None:
    play = parked()
    pass_by(play, 5 * SPAN)
    release(play)
    assert play.acquire("c1") == [0]
    play.leave("c1", Reason.MEMBER_LEFT)
    assert play.join("c2").acquire("c2", 1) == [0], "a leave is never the record's fault"
    play.wait(40_000)
    assert play.notices()[Notice.PARKED] == 1, "and a lock that ends is"


def test_gaps_over_settled_records_do_nothing_however_many() -> None:
    play = parked()
    backlog = pass_by(play, 20 * SPAN)
    settled = (backlog[0] + 1, backlog[1] - 1, bytes([AckType.GAP]))
    assert play.acks("c1", [settled]) == [None]
    every = (0, play.core.front - 1, bytes([AckType.GAP]))
    assert play.acks("c1", [every]) == [AckError.INVALID_RECORD_STATE], "the backlog is not settled"
    assert play.ack("c1", backlog[0] + 1) == [AckError.INVALID_RECORD_STATE]
    one_each = (backlog[0] + 1, backlog[0] + 2, bytes([AckType.GAP, AckType.GAP]))
    assert play.acks("c1", [one_each]) == [None]
    release(play)
    assert play.acquire("c1") == [0]
    gap = (0, backlog[0] - 1, bytes([AckType.GAP]))
    assert play.acks("c1", [gap]) == [None]
    assert play.notices()[Notice.GAP_ACK] == 1, "it exists: an alarm"


def test_an_acknowledgement_may_reach_from_aside_into_the_span() -> None:
    play = parked()
    backlog = pass_by(play, SPAN, every=1)
    assert 0 < play.core.front < play.core.read_position
    release(play)
    play.acquire("c1")
    types = bytes([AckType.ACCEPT])
    assert play.acks("c1", [(0, backlog[-1], types)]) == [AckError.INVALID_RECORD_STATE]
    assert play.acks("c1", [(0, 0, types)]) == [None]
    assert drained(play) == backlog


def test_a_run_of_a_key_from_aside() -> None:
    play = parked(prefetch=3)
    backlog = pass_by(play, 6 * SPAN, every=4)
    release(play)
    assert play.acquire("c1") == [0], "none behind a record that failed"
    play.ack("c1", 0)
    assert play.acquire("c1") == backlog[:3]
    play.ack("c1", backlog[1])
    assert play.acquire("c1") == [backlog[3]]
    play.ack("c1", [backlog[0], backlog[2]])
    play.restart().join("c1").read()
    play.ack("c1", backlog[3])
    assert drained(play) == backlog[4:]


def test_a_key_whose_records_are_all_aside_goes_on_in_the_span() -> None:
    play = parked()
    backlog = pass_by(play, 5 * SPAN)
    play.produce(b"poison", b"poison")
    release(play)
    assert drained(play) == [0, *backlog, 5 * SPAN + 1, 5 * SPAN + 2]


def test_stretches_add_up() -> None:
    """Against a set, in the order in which a window does it: added ascending, cleared anyhow."""
    rng = Random(4)
    aside = Aside()
    model: set[int] = set()
    end = 0
    for _ in range(4_000):
        if rng.random() < 0.55 or not model:
            end += rng.choice((1, 1, 3, 600, 5_000))
            aside.add(end)
            model.add(end)
        else:
            offset = min(model) if rng.random() < 0.5 else rng.choice(sorted(model))
            aside.clear(offset)
            model.discard(offset)
        assert aside.count == len(model)
        assert aside.first() == min(model, default=-1)
        start = rng.randrange(end + 10)
        later = sorted(at for at in model if at >= start)
        assert aside.first_from(start) == (later[0] if later else -1)
        assert aside.between(start, start + 2_000) == [at for at in later if at < start + 2_000]
        assert aside.contains(start) == (start in model)
    dirty = {
        stretch.stretch: offsets_in(stretch.stretch, stretch.data) for stretch in aside.take_dirty()
    }
    assert sorted(o for offsets in dirty.values() for o in offsets) == sorted(model)
    assert aside.take_dirty() == []
    ranges = aside.settled_ranges(min(model), end + 5, 1 << 60)
    assert {o for low, high in ranges for o in range(low, high + 1)} == (
        set(range(min(model), end + 5)) - model
    )
    of_stretches = {(low // STRETCH_OFFSETS, high // STRETCH_OFFSETS) for low, high in ranges}
    assert any(low == high for low, high in of_stretches)
    assert aside.settled_ranges(min(model), end + 5, aside.count - 1) == [
        (low, high)
        for low, high in ranges
        if low // STRETCH_OFFSETS != high // STRETCH_OFFSETS or high == end + 4
    ]


@pytest.mark.parametrize("within", [[], [0], [511], [0, 1, 7, 8, 300, 511], list(range(512))])
def test_a_stretch_comes_back(within: list[int]) -> None:
    data = packed(sum(1 << at for at in within))
    assert len(data) <= STRETCH_OFFSETS // 8
    assert offsets_in(3, data) == [3 * STRETCH_OFFSETS + at for at in within]


@pytest.mark.parametrize("seed", range(20))
def test_ranges_are_added_as_their_offsets_one_by_one(seed: int) -> None:
    random = Random(seed)
    one_by_one, at_once = Aside(), Aside()
    ranges: list[tuple[int, int]] = []
    end = random.randrange(2_000)
    for _ in range(random.randrange(40)):
        first = end + random.choice((0, 1, 3, 500, 5_000))
        end = first + random.choice((0, 1, 2, 7, 600, 1_500))
        ranges.append((first, end))
    for first, last in ranges:
        for offset in range(first, last):
            one_by_one.add(offset)
    at_once.add_all(ranges)
    assert at_once.count == one_by_one.count
    assert at_once.first() == one_by_one.first()
    assert at_once.stretches(end) == one_by_one.stretches(end)
    assert at_once.between(0, end) == one_by_one.between(0, end)
    assert at_once.take_dirty() == one_by_one.take_dirty()
