"""Up to where the records of a new partition may go out."""

from __future__ import annotations

from dataclasses import replace

import pytest

from dispatcher.core.hold import HELD_WHOLE, Hold
from dispatcher.core.routing.hashes import key_hash32
from dispatcher.core.routing.kept_keys import kept_bytes
from gateway.core.repartition.holding import (
    NEVER,
    WHOLE,
    LogEnds,
    Look,
    Report,
    hold_for,
    moves,
    report_of,
    together,
    unpacked,
)
from gateway.core.repartition.limits import LOG_END_LOOKS_MAX, REPORTED_KEYS_MAX
from gateway.core.repartition.partitioners import Partitioner, partition_of
from gateway.core.repartition.record import Move, Pace, Repartition

SETTLE_MS = 100
MARKED = Repartition(
    topic="orders",
    topic_id="00",
    before=1,
    after=2,
    partitioner=Partitioner.MURMUR2,
    pace=Pace(adoption_ms=0, settle_ms=SETTLE_MS, late_ms=0),
)
SHOWN = MARKED.moved(Move.CREATE).moved(Move.SHOW)
OPEN = SHOWN.moved(Move.OPEN, boundaries=(10,))
KEYS = [b"key-%d" % number for number in range(50)]
MOVES = next(key for key in KEYS if partition_of(Partitioner.MURMUR2, key, 2) == 1)
STAYS = next(key for key in KEYS if partition_of(Partitioner.MURMUR2, key, 2) == 0)


def seen(*looks: tuple[int, dict[int, int]]) -> LogEnds:
    ends = LogEnds()
    for at_ms, found in looks:
        ends.saw(Look(at_ms, at_ms + 5, found), {0: "a"}, MARKED)
    return ends


def test_a_look_counts_from_when_it_was_asked_and_from_when_it_was_answered() -> None:
    ends = seen((100, {0: 4, 1: 2}), (200, {0: 6}), (300, {0: 6, 1: 9}))
    assert [ends.as_of_ms(0, known_to) for known_to in (3, 4, 5, 6)] == [NEVER, 100, 100, 300]
    assert [ends.end_by(1, at_ms) for at_ms in (104, 105, 250, 304, 305)] == [0, 2, 2, 2, 9]
    assert (ends.as_of_ms(7, 99), ends.end_by(7, 999)) == (NEVER, 0), "its leader never answered"


@pytest.mark.parametrize(
    ("found", "ways"),
    [
        ({1: 3}, {0: "a"}),  # its leader does not answer
        ({0: 4, 1: 3}, {}),  # the node that serves it is away
        ({0: 4, 1: 3}, {0: "b"}),  # it is another one now
    ],
)
def test_a_look_at_what_producers_did_not_reach_counts_when_they_have_for_settle_ms(
    found: dict[int, int], ways: dict[int, str]
) -> None:
    ends = seen((100, {0: 4, 1: 2}))
    ends.saw(Look(200, 205, found), ways, MARKED)
    back = ways or {0: "a"}
    counts_from_ms = (205 if ways and 0 in found else 305) + SETTLE_MS
    for at_ms in (300, counts_from_ms - 1, counts_from_ms):
        assert ends.as_of_ms(0, 4) == 100
        ends.saw(Look(at_ms, at_ms + 5, {0: 4, 1: 3}), back, MARKED)
    assert ends.as_of_ms(0, 4) == counts_from_ms
    assert ends.end_by(1, 205) == 3, "of a new partition it counts at once"


def test_when_nothing_of_before_can_come_only_the_keys_of_the_old_partition_wait() -> None:
    keys, ends = frozenset({7}), seen((100, {1: 3}))
    draining = OPEN.moved(Move.RAISE, raised_ms=400)
    assert hold_for(draining, 1, Report(400, 0, 9, keys), ends) == Hold(WHOLE, keys)
    assert hold_for(draining, 1, Report(399, 0, 9, keys), ends) == Hold(3, keys)
    assert hold_for(draining, 1, Report(400, 0, 9, None), ends) == HELD_WHOLE


def test_of_too_many_looks_the_first_and_the_last_stay() -> None:
    ends = seen(*((at_ms, {0: at_ms}) for at_ms in range(LOG_END_LOOKS_MAX + 1)))
    assert ends.as_of_ms(0, 0) == 0
    assert ends.as_of_ms(0, LOG_END_LOOKS_MAX) == LOG_END_LOOKS_MAX


@pytest.mark.parametrize("keys", [None, frozenset(), frozenset({1, 2**32 - 1})])
def test_a_report_is_read_as_it_was_told(keys: frozenset[int] | None) -> None:
    report = Report(as_of_ms=2**40, below=3, cursor=2**50, keys=keys)
    assert unpacked(report.packed()) == report


@pytest.mark.parametrize("cut", [1, 20, 22])
def test_a_report_that_is_cut_off_is_refused(cut: int) -> None:
    with pytest.raises(ValueError, match="a report of"):
        unpacked(Report(1, 2, 3, frozenset({4})).packed()[:cut])


def test_only_keys_that_move_are_reported() -> None:
    report = report_of(OPEN, 0, 500, 7, [(MOVES, 9), (STAYS, 8)])
    assert report == Report(500, 1, 7, frozenset({int(key_hash32(MOVES))}))
    assert report_of(OPEN, 0, 500, 7, [(MOVES, 10)]).below == 0, "it is late"
    many = [(b"%d" % number, 0) for number in range(3 * REPORTED_KEYS_MAX)]
    assert report_of(OPEN, 0, 500, 7, many).keys is None


def test_a_key_that_is_not_kept_whole_may_move() -> None:
    """Its partition cannot be told from what a window keeps of it."""
    short = kept_bytes(b"k" * 5_000)
    report = report_of(OPEN, 0, as_of_ms=7, cursor=3, unsettled=[(short, 4)])
    assert report.keys == frozenset({int(key_hash32(short))})
    assert report.below == 1


def test_the_end_waits_for_no_key_that_perhaps_stays() -> None:
    """It gets new records there for ever."""
    unknown, into = replace(OPEN, partitioner=None), replace(OPEN, into="new")
    short = kept_bytes(b"k" * 5_000)
    for record, first, keys, found in (
        (OPEN, 9, [MOVES, STAYS, short], 2),
        (OPEN, 10, [MOVES, STAYS, short], 1),
        (unknown, 9, [MOVES, STAYS, short], 3),
        (unknown, 10, [MOVES, STAYS, short], 0),
        (into, 10, [MOVES, STAYS, short], 3),
    ):
        report = report_of(record, 0, 7, 3, [(key, first) for key in keys])
        assert report.unfinished == found


def test_where_the_partitioner_is_not_known_every_key_may_move() -> None:
    unknown = Repartition(
        topic="t", topic_id="00", before=1, after=2, partitioner=None, pace=MARKED.pace
    )
    assert moves(unknown, 0, STAYS)
    assert not moves(OPEN, 0, STAYS)


def test_what_was_there_before_the_report_settled_goes_out_but_for_its_keys() -> None:
    ends = seen((100, {1: 3}), (200, {1: 5}))
    keys = frozenset({7})
    assert hold_for(OPEN, 1, Report(305, 0, 9, keys), ends) == Hold(5, keys)
    assert hold_for(OPEN, 1, Report(304, 0, 9, keys), ends) == Hold(3, keys)


@pytest.mark.parametrize(
    ("record", "report"),
    [
        (SHOWN, Report(900, 0, 9, frozenset())),
        (OPEN, None),
        (OPEN, Report(900, 0, 9, None)),
        (OPEN, Report(NEVER, 0, 9, frozenset())),
    ],
)
def test_all_is_held_while_anything_is_not_known(
    record: Repartition, report: Report | None
) -> None:
    assert hold_for(record, 1, report, seen((100, {1: 3}))) == HELD_WHOLE


def test_of_a_topic_that_moves_every_key_does() -> None:
    moving = replace(OPEN, into="new")
    assert moves(moving, 0, STAYS)
    assert report_of(moving, 0, 500, 7, [(MOVES, 9), (STAYS, 8)]).below == 2


def test_several_old_partitions_say_what_all_of_them_do() -> None:
    one = Report(500, 1, 7, frozenset({1, 2}))
    other = Report(400, 2, 9, frozenset({2, 3}))
    said = together([one, other])
    assert (said.as_of_ms, said.below, said.keys) == (400, 3, frozenset({1, 2, 3}))
    assert together([one, Report(NEVER, 0, 0, None)]).keys is None
