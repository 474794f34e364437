"""Figures for operators."""

from __future__ import annotations

import sys
from types import FrameType

import pytest

from dispatcher.core import dispatcher
from dispatcher.core.dispatcher import Dispatcher
from dispatcher.core.events.joins import was_sent
from dispatcher.core.limits import PARKED_SHOWN_MAX
from dispatcher.core.model import AckType, MemberId, PoisonPolicy, Policy, Reason
from dispatcher.core.reports.stats import FullSpan, Held, MemberStats, ParkedRecord
from dispatcher.core.steps import RetryNoted, RetryState, Snapshot
from tests.rig.playbook import Playbook


def test_counts() -> None:
    policy = Policy(rejected=PoisonPolicy.BLOCK)
    play = Playbook(policy).join("c1").produce(b"a", b"a", b"b", b"c", None, None)
    play.acquire("c1", 3)
    play.ack("c1", 0, AckType.RELEASE)
    play.ack("c1", 2, AckType.REJECT)
    stats = play.core.stats()
    assert (stats.cursor, stats.read_position, stats.unsettled, stats.keys) == (0, 6, 6, 5)
    assert (stats.in_flight, stats.backing_off, stats.dead_lettering) == (1, 1, 0)
    assert stats.parked == [ParkedRecord(2, b"b", 1, Reason.REJECTED, MemberId("c1"), 1_000, 0)]
    assert stats.members == [MemberStats(MemberId("c1"), 2, 1, 0, 0, 0)]
    assert play.core.held() == Held(in_flight=1, backing_off=1, dead_lettering=0, parked=1)


def test_parked_records_are_shown_in_the_order_of_the_log() -> None:
    policy = Policy(rejected=PoisonPolicy.BLOCK)
    play = Playbook(policy).join("c1").produce(b"a", b"b", b"c")
    play.acquire("c1")
    play.ack("c1", [2, 0, 1], AckType.REJECT)
    assert [parked.offset for parked in play.core.stats().parked] == [0, 1, 2]


def test_of_very_many_parked_records_the_first_are_shown() -> None:
    policy = Policy(rejected=PoisonPolicy.BLOCK)
    count = PARKED_SHOWN_MAX + 3
    play = Playbook(policy).join("c1").produce(*(b"%d" % at for at in range(count)))
    while play.core.held().parked < count:
        play.ack("c1", play.acquire("c1"), AckType.REJECT)
    stats = play.core.stats()
    assert [parked.offset for parked in stats.parked] == list(range(PARKED_SHOWN_MAX))
    assert (stats.keys, play.core.held().parked) == (count, count)
    core = play.core
    assert isinstance(core, Dispatcher)
    assert core.parked_offsets() == list(range(count))
    last = core.parked([count - 1, count])
    assert [parked.offset for parked in last] == [count - 1], "the other one is not parked"


@pytest.mark.parametrize("backlog", [False, True])
def test_the_last_sent_position_behind_records_aside(*, backlog: bool) -> None:
    """As one finds it record after record, and so are the ranges behind it."""
    policy = Policy(rejected=PoisonPolicy.BLOCK, span_max=16)
    play = Playbook(policy).join("c1")
    for at in range(20):
        key = b"0" if backlog and at == 11 else b"%d" % at
        play.produce(key, b"others")
        while offsets := play.acquire("c1"):
            play.ack("c1", [o for o in offsets if o % 2 == 0], AckType.REJECT)
            play.ack("c1", [o for o in offsets if o % 2 == 1])
    core = play.core
    assert isinstance(core, Dispatcher)
    assert core.held().aside > 4
    stats, read = core.stats(), range(core.cursor, core.read_position)
    sent = [offset for offset in read if was_sent(core._state, offset)]
    assert stats.last_sent == next((o for o in read if o not in sent), core.read_position) - 1
    told = [range(first, last + 1) for first, last in stats.individually_sent]
    assert [o for some in told for o in some] == [o for o in sent if o > stats.last_sent]
    assert (stats.last_sent == 21) is backlog


def _calls(parked: int) -> int:
    """Of functions, for the figures of a window with so many parked records aside."""
    retries = [
        RetryNoted(
            offset=offset,
            deliveries=5,
            due_ms=1,
            state=RetryState.PARKED,
            reason=Reason.REJECTED,
            member_id=MemberId("c1"),
        )
        for offset in range(parked)
    ]
    core = Dispatcher(Policy(), Snapshot(0, retries=retries, front=parked))
    count = 0

    def called(_frame: FrameType, what: str, _argument: object) -> None:
        nonlocal count
        count += what in ("call", "c_call")

    sys.setprofile(called)
    try:
        stats, held = core.stats(), core.held()
    finally:
        sys.setprofile(None)
    assert (held.parked, len(stats.parked), stats.last_sent) == (parked, 1_000, parked - 1)
    return count


@pytest.mark.skipif(dispatcher.__file__.endswith(".so"), reason="compiled calls are not seen")
def test_of_very_many_parked_records_the_figures_are_not_counted_one_by_one() -> None:
    """All clients of the node wait meanwhile."""
    assert _calls(60_000) < _calls(20_000) + 2_000, "both have more than a span"


def test_since_when_a_record_is_parked_and_how_many_wait_behind_it() -> None:
    policy = Policy(exhausted=PoisonPolicy.BLOCK, deliveries_max=1)
    play = Playbook(policy).join("c1").produce(b"a", b"b", b"a", b"a")
    play.acquire("c1", 1)
    play.now_ms += 700
    play.ack("c1", 0, AckType.RELEASE)
    parked_ms = play.now_ms
    play.now_ms += 60_000
    (parked,) = play.core.stats().parked
    assert (parked.since_ms, parked.behind) == (parked_ms, 2)


def test_dead_letters_under_way() -> None:
    play = Playbook(Policy(rejected=PoisonPolicy.DEAD_LETTER)).join("c1").produce(b"a")
    play.acquire("c1")
    play.ack("c1", 0, AckType.REJECT)
    assert play.core.stats().dead_lettering == 1
    assert play.core.held() == Held(in_flight=0, backing_off=0, dead_lettering=1, parked=0)


def test_who_holds_a_full_span() -> None:
    play = (
        Playbook(Policy(span_max=4, held_max=0))
        .join("c1")
        .produce(b"hot", b"a", b"hot", None, b"behind")
    )
    assert play.core.stats().full_span == FullSpan(0, b"hot", 2, None), "nobody has fetched it yet"
    play.acquire("c1")
    stats = play.core.stats()
    assert (stats.span_max, stats.full_span) == (4, FullSpan(0, b"hot", 2, MemberId("c1")))
    play.ack("c1", 1)
    play.ack("c1", 3)
    assert play.core.stats().full_span == FullSpan(0, b"hot", 2, MemberId("c1")), "room in it, but"
    play.ack("c1", 0)
    assert play.core.stats().full_span is None


def test_a_hundred_draining_keys_are_shown_and_all_are_counted() -> None:
    play = Playbook().join("c1", "c2")
    keys = play.keys_of("c2", 101)
    play.leave("c2").produce(*keys, keys[0])
    play.acquire("c1")
    stats = play.join("c2").core.stats()
    assert [key.key for key in stats.draining] == keys[:100], "the oldest"
    held = [(key.member_id, key.in_flight, key.blocked) for key in stats.draining]
    assert held == [("c1", 1, 1)] + [("c1", 1, 0)] * 99
    first = stats.members[0]
    assert (first.draining_keys, first.draining_in_flight, first.draining_blocked) == (101, 101, 1)


def test_holders_that_are_not_there() -> None:
    play = Playbook().join("c1").produce(b"a", b"b")
    play.acquire("c1")
    stats = play.restart().core.stats()
    assert stats.members == [MemberStats(MemberId("c1"), 0, 2, 0, 0, 0)]
    assert (stats.unsettled, stats.in_flight) == (0, 2), "nothing was read again yet"


def test_settled_records_between_others_are_not_counted() -> None:
    play = Playbook().join("c1").produce(b"a", b"b", b"c", b"c")
    play.acquire("c1")
    play.ack("c1", 1)
    stats = play.core.stats()
    assert (stats.unsettled, stats.keys, stats.in_flight) == (3, 2, 2)


def test_a_span_that_has_room_for_one_is_not_full() -> None:
    play = (
        Playbook(Policy(span_max=3, held_max=0), Snapshot(cursor=10))
        .join("c1")
        .produce(b"hot", b"hot")
    )
    assert play.core.stats().full_span is None
    play.produce(b"a")
    assert play.core.stats().full_span == FullSpan(10, b"hot", 2, None)


def test_a_window_that_is_full_of_records() -> None:
    policy = Policy(span_max=20, window_records=2, held_max=0)
    play = Playbook(policy, Snapshot(cursor=10)).join("c1").produce(b"a", b"b", b"c")
    assert play.core.stats().full_span == FullSpan(10, b"a", 1, None, by_span=False)
