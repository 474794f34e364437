"""Handing out: limits of a member and of a request, prefetch."""

from __future__ import annotations

from dataclasses import replace

import pytest

from dispatcher.core.model import (
    AckType,
    LeaseId,
    MemberId,
    NotSent,
    Policy,
    RecordsRead,
    SessionId,
)
from dispatcher.core.steps import LeaseState, MembersReady, Notice, Snapshot
from tests.rig.playbook import Playbook


def test_ascending_whatever_the_keys_became_ready_by() -> None:
    play = Playbook().join("c1").produce(b"a", b"b", b"c", b"a", b"b")
    play.acquire("c1")
    play.ack("c1", [1, 0])
    play.produce(b"d")
    assert play.acquire("c1") == [3, 4, 5]


@pytest.mark.parametrize(("records_max", "expected"), [(-1, 0), (0, 0), (1, 1), (2, 2), (99, 3)])
def test_no_more_than_asked_for(records_max: int, expected: int) -> None:
    play = Playbook().join("c1").produce(b"a", b"b", b"c")
    assert len(play.acquire("c1", records_max)) == expected


def test_who_gets_nothing_takes_no_lease() -> None:
    play = Playbook().join("c1")
    assert play.acquire("c1") == play.acquire("stranger") == []
    play.produce(b"a")
    assert play.acquire("c1", 0) == play.acquire("c1", -1) == []
    assert play.acquire("c1") == [0]
    assert [lease.lease_id for lease in play.stored.leases] == [1]


def test_what_is_ready() -> None:
    """No more listed records than there is room for; due ones count as if they were listed."""
    play = Playbook(Policy(in_flight_per_member_max=3)).join("c1").produce(b"a", b"b", b"c", b"d")

    def ready(name: str = "c1") -> int:
        return play.core.ready_for(MemberId(name), play.now_ms)

    assert (ready(), ready("stranger")) == (3, 0)
    assert play.acquire("c1", 2) == [0, 1]
    assert ready() == 1
    play.ack("c1", 0, AckType.RELEASE)
    assert play.acquire("c1", 2) == [2, 3]
    assert ready() == 0
    play.core.retune(replace(play.policy, in_flight_per_member_max=2))
    assert (ready(), play.acquire("c1")) == (0, [])
    play.core.retune(replace(play.policy, in_flight_per_member_max=9))
    assert ready() == 0, "0 waits"
    play.now_ms += 1_000
    assert ready() == 1, "0 is due, whoever's it is"
    assert play.acquire("c1") == [0]


def test_what_another_session_of_the_member_holds_counts() -> None:
    play = Playbook(Policy(in_flight_per_member_max=2)).join("c1").produce(b"a", b"b", b"c")
    assert play.acquire("c1", session="s1") == [0, 1]
    assert play.acquire("c1", session="s2") == []
    play.close("c1", "s1")
    assert len(play.acquire("c1", session="s2")) == 2


def test_redelivered_records_are_counted() -> None:
    play = Playbook().join("c1").produce(b"a", b"b")
    play.acquire("c1")
    play.close("c1")
    assert play.acquire("c1", session="s2") == [0, 1]
    assert play.delivered().attempts == [2, 2]
    assert play.notices() == {Notice.REDELIVERED: 2}


def test_what_is_ready_is_enough_for_runs() -> None:
    """A fetch asks for no more than is ready: counted in keys, runs would be cut off."""
    play = Playbook(Policy(prefetch_per_key=3)).join("c1").produce(*[b"a"] * 5, b"b")
    ready = play.core.ready_for(MemberId("c1"), play.now_ms)
    assert play.acquire("c1", ready) == [0, 1, 2, 5]
    assert play.core.ready_for(MemberId("c1"), play.now_ms) == 0


def test_a_run_of_one_key_with_prefetch() -> None:
    play = Playbook(Policy(prefetch_per_key=2)).join("c1").produce(b"a", b"a", b"b", b"a")
    assert play.acquire("c1", 1) == [0]
    assert play.acquire("c1") == [1, 2]
    assert play.acquire("c1") == []
    play.ack("c1", 1)
    assert play.acquire("c1") == [3], "one may be done before the other"
    play.ack("c1", 3, AckType.RELEASE)
    play.ack("c1", 0)
    assert play.wait(1_000).acquire("c1") == [3]


def test_a_key_that_is_listed_for_its_next_is_not_disturbed_by_the_end_of_its_first() -> None:
    play = Playbook(Policy(prefetch_per_key=2)).join("c1").produce(b"a", b"a", b"a")
    assert play.acquire("c1", 1) == [0], "and 1 is listed"
    play.ack("c1", 0)
    assert play.acquire("c1") == [1, 2]


def test_runs_of_several_keys_are_one_ascending_list() -> None:
    play = Playbook(Policy(prefetch_per_key=2)).join("c1").produce(b"a", b"b", b"a", b"b", b"a")
    assert play.core.ready_for(MemberId("c1"), play.now_ms) == 4
    assert play.acquire("c1", 3) == [0, 1, 2]
    assert play.acquire("c1") == [3]


def test_a_key_in_the_hands_of_another_session_takes_no_room() -> None:
    play = Playbook(Policy(prefetch_per_key=2)).join("c1").produce(b"a", b"a", b"b")
    assert play.acquire("c1", 1, session="s1") == [0]
    assert play.acquire("c1", 1, session="s2") == [2]


def test_no_run_across_sessions() -> None:
    play = Playbook(Policy(prefetch_per_key=3)).join("c1").produce(b"a", b"a", b"a")
    assert play.acquire("c1", 1, session="s1") == [0]
    assert play.acquire("c1", session="s2") == []
    play.ack("c1", 0, session="s1")
    assert play.acquire("c1", session="s2") == [1, 2]


def test_no_run_after_a_restart_until_the_earlier_lease_ends() -> None:
    """A leased record may never have been sent: the next record must not overtake it."""
    play = Playbook(Policy(prefetch_per_key=3)).join("c1").produce(b"a", b"a", b"a")
    assert play.acquire("c1", 1) == [0]
    play.restart().join("c1").read()
    assert play.acquire("c1") == []
    play.ack("c1", 0)
    assert play.acquire("c1") == [1, 2]


def test_records_that_could_not_be_sent_are_ready_again_and_were_no_delivery() -> None:
    play = Playbook(Policy(deliveries_max=1)).join("c1").produce(b"a", b"a", b"b")
    for _ in range(3):
        assert play.acquire("c1") == [0, 2]
        assert play.delivered().attempts == [1, 1]
        play.on(NotSent(MemberId("c1"), SessionId("s1"), [0, 2], play.now_ms))
        play.expect(MembersReady([MemberId("c1")]))
    assert play.acquire("c1") == [0, 2]
    assert play.notices() == {}, "nor are they delivered again"
    play.on(NotSent(MemberId("c1"), SessionId("other"), [0, 2], play.now_ms))
    play.on(NotSent(MemberId("c1"), SessionId("s1"), [1, 99_999], play.now_ms))
    assert play.ack("c1", [0, 2]) == [None, None], "the records of another session are not touched"


def test_a_redelivery_that_could_not_be_sent_is_counted_once() -> None:
    play = Playbook().join("c1").produce(b"a")
    play.acquire("c1")
    play.close("c1")
    assert play.acquire("c1", session="s2") == [0]
    assert play.notices() == {Notice.REDELIVERED: 1}
    play.on(NotSent(MemberId("c1"), SessionId("s2"), [0], play.now_ms))
    assert play.acquire("c1", session="s2") == [0]
    assert (play.delivered().attempts, play.notices()) == ([2], {})


def test_a_run_that_could_not_be_sent_keeps_its_order() -> None:
    play = Playbook(Policy(prefetch_per_key=3)).join("c1").produce(b"a", b"a", b"a", b"a")
    assert play.acquire("c1") == [0, 1, 2]
    play.on(NotSent(MemberId("c1"), SessionId("s1"), [0, 1, 2], play.now_ms))
    taken = []
    while offsets := play.acquire("c1"):
        assert play.delivered().attempts == [1] * len(offsets)
        taken += offsets
        play.ack("c1", offsets)
    assert taken == [0, 1, 2, 3]


def test_keys_that_waited_for_a_reread_go_on_when_the_last_lease_is_settled_unread() -> None:
    play = Playbook(Policy(prefetch_per_key=2)).join("c1").produce(b"a", b"b", b"c", b"d")
    play.acquire("c1")
    play.ack("c1", 1, AckType.RELEASE)
    play.restart().join("c1")
    play.on(RecordsRead(0, 2, [0, 1], [b"a", b"b"], play.now_ms))
    play.wait(1_000)
    assert play.acquire("c1") == [], "2 and 3 are leased, and of no known key yet"
    play.ack("c1", [2, 3])
    play.expect(MembersReady([MemberId("c1")]))
    assert play.acquire("c1") == [1]


def test_an_earlier_record_goes_out_when_the_lock_of_a_later_one_ends() -> None:
    play = Playbook(Policy(prefetch_per_key=2, backoff_base_ms=10)).join("c1", "c2")
    key = play.keys_of("c2")[0]
    play.leave("c2").produce(key, key)
    assert play.acquire("c1") == [0, 1]
    play.ack("c1", 0, AckType.RELEASE)
    play.join("c2").wait(10)
    assert play.acquire("c2") == [], "1 is still with c1"
    play.now_ms += 29_990
    play.wait(0).expect(MembersReady([MemberId("c2")]))
    assert play.acquire("c2") == [0]


def test_a_key_whose_later_record_is_out_since_before_a_restart_is_passed_over() -> None:
    play = _with_a_later_record_out()
    assert play.acquire("c1", 1) == [2]
    assert play.acquire("c1", 5) == [3]
    assert play.acquire("c1", 5) == []
    assert play.ack("c1", 1, session="s0") == [None]
    assert play.acquire("c1", 5) == [0]


def test_who_wants_one_gets_a_newcomer_in_place_of_a_key_that_is_passed_over() -> None:
    lease = LeaseState(LeaseId(1), MemberId("c1"), SessionId("s0"), 30_000, [2])
    play = Playbook(snapshot=Snapshot(cursor=0, leases=[lease])).join("c1")
    play.produce(b"d", b"a", b"a")
    assert play.acquire("c1", 1) == [0], "1 is listed, too"
    play.produce(b"e")
    assert play.acquire("c1", 1) == [3]


def test_it_is_listed_once_when_that_record_ends_first() -> None:
    play = _with_a_later_record_out()
    assert play.ack("c1", 1, session="s0") == [None]
    assert play.acquire("c1", 5) == [0, 2, 3]
    assert play.ack("c1", [0, 2, 3]) == [None] * 3
    assert play.core.cursor == 4
    assert play.acquire("c1", 5) == []


def _with_a_later_record_out() -> Playbook:
    """Taken with prefetch; the group was set to one record of a key since then."""
    lease = LeaseState(LeaseId(1), MemberId("c1"), SessionId("s0"), 30_000, [1])
    play = Playbook(snapshot=Snapshot(cursor=0, leases=[lease])).join("c1")
    return play.produce(b"a", b"a", b"b", b"c")
