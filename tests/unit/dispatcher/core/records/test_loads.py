"""Bounded loads: nobody gets more than its share while others have room, and no key that somebody
works on moves.
"""

from __future__ import annotations

from math import ceil

import pytest

from dispatcher.core.dispatcher import Dispatcher
from dispatcher.core.model import (
    AckType,
    LeaseId,
    LogTruncated,
    Member,
    MemberId,
    MembersChanged,
    OperatorAct,
    OperatorVerb,
    PoisonPolicy,
    Policy,
    RecordsRead,
    SessionId,
)
from dispatcher.core.records.loads import Loads
from dispatcher.core.routing.ring import NOBODY, Router
from dispatcher.core.steps import LeaseState, Snapshot
from tests.rig.playbook import Playbook

KEYS = [b"key-%d" % number for number in range(2_000)]


def loads(factor: float | None, members: int) -> list[int]:
    """Keys per member, all of them ready at once."""
    core = Dispatcher(Policy(bounded_load=factor), Snapshot(cursor=0))
    joined = tuple(Member(MemberId(str(number))) for number in range(1, members + 1))
    core.handle(MembersChanged(joined, 0))
    core.handle(RecordsRead(0, 2_000, list(range(2_000)), list(KEYS), 0))
    core.check_invariants()
    return [member.ready_keys for member in core.stats().members]


@pytest.mark.parametrize("factor", [1.0, 1.1, 1.25, 2.0])
@pytest.mark.parametrize("members", [1, 3, 10, 50])
def test_no_member_has_more_than_its_share(factor: float, members: int) -> None:
    bounded = loads(factor, members)
    assert sum(bounded) == 2_000
    assert max(bounded) <= ceil(factor * 2_000 / members)


def test_the_ring_alone_exceeds_it() -> None:
    assert max(loads(None, 10)) > 250 >= max(loads(1.25, 10))


def test_a_key_stays_with_its_owner_on_the_ring_as_long_as_that_has_room() -> None:
    members = tuple(Member(MemberId(str(number))) for number in range(1, 11))
    router = Router(members)
    placing = Loads(1.25)
    placing.recount([], [])
    placing.keys = [0] * 10
    moved = 0
    for key in KEYS:
        owner = int(router.owner_of(key, 0))
        before = list(placing.keys)
        full = ceil(1.25 * (sum(before) + 1) / 10)
        index = placing.place(router, key)
        assert (index == owner) == (before[owner] < full)
        moved += index != owner
    assert 0 < moved < 500


def test_filters_come_before_balance() -> None:
    router = Router(
        (
            Member(MemberId("a"), (b"eu-*",)),
            Member(MemberId("b"), (b"us-*",)),
            Member(MemberId("c")),
        )
    )
    assert router.owner_below(b"eu-1", [0, 0, 9], 5) == 0
    assert router.owner_below(b"eu-1", [9, 0, 0], 5) == 2
    full = router.owner_below(b"eu-1", [9, 9, 9], 5)
    assert full == router.owner_of(b"eu-1", 0), "all that accept it are full: the first of them"
    narrow = Router((Member(MemberId("a"), (b"eu-*",)),))
    assert narrow.owner_below(b"us-1", [0], 5) == NOBODY
    assert Router(()).owner_below(b"us-1", [], 5) == NOBODY


def test_what_is_in_flight_or_held_keeps_its_member_when_others_come() -> None:
    """Of the keys a newcomer owns on the ring: one in flight, one waiting for a retry, one parked,
    one free.
    """
    play = Playbook(Policy(bounded_load=1.0, rejected=PoisonPolicy.BLOCK)).join("c1", "c2")
    flying, waiting, parked, free = play.keys_of("c2", 4)
    play.leave("c2").produce(flying, waiting, parked, free, flying, waiting, parked, free)
    assert play.acquire("c1", 3) == [0, 1, 2]
    play.ack("c1", 1, AckType.RELEASE)
    play.ack("c1", 2, AckType.REJECT)
    play.join("c2")
    assert play.acquire("c2") == [3], "the free one"
    play.ack("c1", 0)
    play.wait(1_000)
    assert play.acquire("c1") == [1, 4]
    assert play.acquire("c2") == []
    play.leave("c1")
    play.ack("c2", 3)
    assert play.acquire("c2") == [1, 4, 7], "whoever is left"


def test_a_held_key_that_nobody_accepted_goes_to_whoever_comes_and_does() -> None:
    policy = Policy(bounded_load=1.0, rejected=PoisonPolicy.BLOCK)
    play = Playbook(policy).join("c1").produce(b"eu-1")
    play.acquire("c1")
    play.ack("c1", 0, AckType.REJECT)
    play.leave("c1").join("c2", filters=(b"us-*",)).join("c3")
    play.on(OperatorAct(OperatorVerb.RETRY, [0], play.now_ms))
    assert play.acquire("c3") == [0]


def test_a_record_without_a_key_is_no_load_and_does_not_stay() -> None:
    """It goes where its offset says, whoever has it in hands."""
    play = Playbook(Policy(bounded_load=1.0)).join("c1").produce(*[None] * 8)
    assert play.acquire("c1") == list(range(8))
    play.join("c2").close("c1")
    router = Router(play.core.members)
    theirs = [offset for offset in range(8) if router.owner_of(None, offset) == 1]
    assert play.acquire("c2") == theirs != []


def test_a_key_without_unsettled_records_may_be_another_s_the_next_time() -> None:
    play = Playbook(Policy(bounded_load=1.0)).join("c1", "c2")
    key, other = play.keys_of("c2", 2)
    play.produce(key)
    assert play.acquire("c2") == [0], "the first key is within everybody's share"
    play.ack("c2", 0)
    play.produce(other)
    assert play.acquire("c2") == [1]
    play.produce(key)
    assert (play.acquire("c2"), play.acquire("c1")) == ([], [2])
    play.produce(key, other)
    play.ack("c1", 2)
    play.ack("c2", 1)
    assert (play.acquire("c1"), play.acquire("c2")) == ([3], [4]), "and stays while it has some"


def test_a_log_start_that_passes_nothing_moves_no_key() -> None:
    """At its first record its own member was full; that has room by now."""
    play = Playbook(Policy(bounded_load=1.0)).join("c1", "c2")
    play.produce(*play.keys_of("c2", 2))
    assert play.acquire("c2") == [0]
    play.ack("c2", 0)
    play.on(LogTruncated(1, play.now_ms))
    assert play.acquire("c2") == []
    assert play.acquire("c1") == [1]


def test_what_was_read_before_counts() -> None:
    play = Playbook(Policy(bounded_load=1.5)).join("c1", "c2")
    for key in play.keys_of("c2", 2):
        play.produce(key)
    assert play.acquire("c2") == [0, 1], "two of two are within one and a half times the mean"


def test_a_key_that_nobody_takes_any_more_counts_for_nobody() -> None:
    play = Playbook(Policy(bounded_load=1.0)).join("c1").produce(b"b")
    assert play.acquire("c1") == [0]
    play.on(MembersChanged((Member(MemberId("c1"), (b"a*",)),), play.now_ms)).produce(b"a")
    assert play.acquire("c1") == [1]


def test_keys_wait_for_whoever_comes_when_all_are_gone() -> None:
    play = Playbook(Policy(bounded_load=1.0)).join("c1").produce(b"a", b"b").leave("c1")
    assert play.join("c2").acquire("c2") == [0, 1]


def test_a_key_that_is_ready_stays_also_when_all_of_before_a_restart_was_read() -> None:
    """At its first record its own member was full; that has room by now."""
    lease = LeaseState(LeaseId(1), MemberId("c1"), SessionId("s1"), 60_000, [2])
    play = Playbook(Policy(bounded_load=1.0), Snapshot(cursor=0, leases=[lease])).join("c1", "c2")
    play.produce(*play.keys_of("c2", 2))
    assert play.acquire("c2") == [0]
    play.ack("c2", 0)
    play.produce(None)
    assert play.acquire("c2") == []
    assert play.acquire("c1") == [1]
