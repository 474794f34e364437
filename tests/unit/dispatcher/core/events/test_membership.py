"""Joins, leaves, evictions, sessions."""

from __future__ import annotations

from dataclasses import replace

import pytest

from dispatcher.core.model import (
    AckError,
    EvictPolicy,
    Member,
    MemberId,
    MembersChanged,
    PoisonPolicy,
    Policy,
    Reason,
    SessionId,
    SessionLost,
    SessionOpened,
)
from dispatcher.core.steps import MembersReady, Notice, ReadOn, RetryNoted
from tests.rig.playbook import Playbook


def test_an_unbothered_key_moves_at_once_and_a_held_one_drains() -> None:
    play = Playbook().join("c1", "c2")
    moving = play.keys_of("c2", 2)
    play.leave("c2").produce(moving[0], moving[0], moving[1])
    assert play.acquire("c1", 1) == [0]
    play.join("c2").expect(MembersReady([MemberId("c2")]))
    stats = {str(m.member_id): m for m in play.core.stats().members}
    assert (stats["c1"].draining_keys, stats["c1"].draining_blocked) == (1, 1)
    assert play.acquire("c2") == [2]
    play.ack("c1", 0)
    play.expect(MembersReady([MemberId("c2")]))
    assert play.acquire("c2") == [1]
    assert [m.draining_keys for m in play.core.stats().members] == [0, 0]


def test_leaving_and_closing_gives_back_at_once_and_counts() -> None:
    play = Playbook().join("c1", "c2")
    key = play.keys_of("c1")[0]
    play.produce(key, key)
    play.acquire("c1")
    play.leave("c1").expect(MembersReady([MemberId("c2")]))
    assert play.acquire("c2") == [0]
    assert play.delivered().attempts == [2]


def test_the_last_acknowledgements_of_one_that_leaves_may_come_behind_its_goodbye() -> None:
    """librdkafka says goodbye to the coordinator and acknowledges to the leader at once."""
    play = Playbook().join("c1", "c2")
    key = play.keys_of("c1")[0]
    play.produce(key, key)
    assert play.acquire("c1") == [0]
    play.leave("c1", closes=False)
    assert play.acquire("c2") == [], "its key is with c1 still"
    assert play.ack("c1", 0) == [None]
    play.close("c1")
    assert (play.core.cursor, play.acquire("c2")) == (1, [1])


def test_one_that_leaves_and_closes_nothing_keeps_its_records_for_the_grace() -> None:
    play = Playbook(Policy(deliveries_max=1)).join("c1", "c2")
    key = play.keys_of("c1")[0]
    play.produce(key)
    assert play.acquire("c1") == [0]
    play.leave("c1", closes=False)
    play.lose("c1").wait(2_999)
    assert play.acquire("c2") == []
    play.wait(1)
    assert play.acquire("c2") == [0], "a goodbye is no crash: it costs no delivery"


@pytest.mark.parametrize("left", [False, True])
def test_one_that_left_while_the_window_was_away_was_not_evicted(*, left: bool) -> None:
    play = Playbook(Policy(on_evict=EvictPolicy.ACK)).join("c1").produce(b"k")
    assert play.acquire("c1") == [0]
    play.restart().join("c2").read()
    play.on(SessionLost(MemberId("c1"), SessionId("s1"), play.now_ms, left))
    play.on(SessionOpened(MemberId("c1"), SessionId("s1"), play.now_ms))
    play.wait(2_999)
    assert play.acquire("c2") == [], "its last acknowledgements may be on their way"
    play.wait(1)
    assert play.acquire("c2") == ([0] if left else [])
    assert play.core.cursor == (0 if left else 1), "counted as done only of an evicted one"


def test_one_that_left_and_is_back_before_the_window_is_has_its_records() -> None:
    play = Playbook().join("c1").produce(b"k")
    assert play.acquire("c1") == [0]
    play.restart().join("c1").read()
    play.on(SessionLost(MemberId("c1"), SessionId("s1"), play.now_ms, left=True))
    play.on(SessionOpened(MemberId("c1"), SessionId("s1"), play.now_ms)).wait(3_000)
    assert play.ack("c1", 0) == [None]


@pytest.mark.parametrize("opened", [False, True])
def test_one_that_leaves_and_comes_back_with_its_session(*, opened: bool) -> None:
    play = Playbook().join("c1").produce(b"a", b"b")
    assert play.acquire("c1") == [0, 1]
    play.leave("c1", closes=False).join("c1")
    if opened:
        play.on(SessionOpened(MemberId("c1"), SessionId("s1"), play.now_ms))
    assert play.ack("c1", 0) == [None]
    play.wait(3_000)
    assert play.ack("c1", 1) == ([None] if opened else [AckError.INVALID_RECORD_STATE])


def test_an_evicted_member_s_records_count_as_taken_if_the_policy_says_so() -> None:
    play = Playbook(Policy(on_evict=EvictPolicy.ACK)).join("c1", "c2")
    key, other = play.keys_of("c1", 2)
    play.produce(key, other, key, other)
    assert play.acquire("c1") == [0, 1]
    play.leave("c1", Reason.MEMBER_EVICTED).expect(MembersReady([MemberId("c2")]))
    assert (play.core.cursor, play.notices()) == (2, {Notice.DROPPED: 2})
    assert play.acquire("c2") == [2, 3]


def test_a_clean_leave_never_takes_records_for_done() -> None:
    play = Playbook(Policy(on_evict=EvictPolicy.ACK)).join("c1").produce(b"k")
    play.acquire("c1")
    assert play.leave("c1").core.cursor == 0


def test_crashes_exhaust_the_budget_and_goodbyes_do_not() -> None:
    for reason, parked in ((Reason.MEMBER_EVICTED, 1), (Reason.MEMBER_LEFT, 0)):
        play = Playbook(Policy(deliveries_max=2)).produce()
        for name in ("c1", "c2", "c3"):
            play.join(name)
            if name == "c1":
                play.produce(b"k")
            play.acquire(name)
            play.leave(name, reason)
        assert len(play.core.stats().parked) == parked


def test_closing_a_session_gives_back_what_it_holds_and_no_more() -> None:
    play = Playbook().join("c1").produce(b"a", b"b")
    assert play.acquire("c1", 1, session="s1") == [0]
    assert play.acquire("c1", 1, session="s2") == [1]
    play.close("c1", "s1")
    assert [retry.reason for retry in play.stored.retries] == [Reason.SESSION_CLOSED]
    assert play.acquire("c1", session="s2") == [0]
    assert play.ack("c1", [0, 1], session="s2") == [None, None]
    assert play.close("c1", "s1").step.changes == []


def test_a_lost_session_keeps_its_leases_for_the_grace() -> None:
    play = Playbook().join("c1").produce(b"a", b"b")
    play.acquire("c1")
    play.lose("c1").wait(2_999)
    assert play.ack("c1", 0) == [None]
    play.lose("c1")  # said twice: the first time counts
    play.wait(1)
    (noted,) = [c for c in play.step.changes if isinstance(c, RetryNoted)]
    assert (noted.offset, noted.reason, noted.due_ms) == (1, Reason.MEMBER_EVICTED, play.now_ms)
    assert play.acquire("c1", session="s2") == [1]


@pytest.mark.parametrize(
    "policy",
    [
        Policy(on_evict=EvictPolicy.ACK),
        Policy(deliveries_max=1),
        Policy(deliveries_max=1, exhausted=PoisonPolicy.DROP),
    ],
    ids=lambda policy: f"{policy.on_evict.value}-{policy.exhausted.value}",
)
def test_a_member_that_opens_another_session_lives_and_loses_no_record(policy: Policy) -> None:
    """Its node was restarted, or its connection broke; it is not evicted, nor does its record fail.
    An application may still be at work on it, and give it back.
    """
    play = Playbook(policy).join("c1").produce(b"k", b"k")
    assert play.acquire("c1") == [0]
    play.on(SessionOpened(MemberId("c1"), SessionId("s2"), play.now_ms))
    play.wait(policy.disconnect_grace_ms + 500)
    assert (play.core.cursor, play.core.stats().parked) == (0, [])
    assert play.acquire("c1", session="s2") == [0]


def test_the_reopened_session_may_settle_what_the_lost_one_holds() -> None:
    play = Playbook().join("c1").produce(b"a", b"b")
    play.acquire("c1", session="s1")
    play.on(SessionOpened(MemberId("c1"), SessionId("s2"), play.now_ms))
    assert play.ack("c1", 0, session="s2") == [None]
    assert play.wait(3_000).acquire("c1", session="s2") == [1]
    assert play.ack("c1", 1, session="s1") != [None]


@pytest.mark.parametrize("other", [False, True])
def test_a_session_that_is_opened_again_is_not_lost_any_more(*, other: bool) -> None:
    """Its member works on: its records must not go to somebody else."""
    play = Playbook().join("c0", "c1")
    play.produce(*play.keys_of("c0"), *play.keys_of("c1"))
    assert play.acquire("c0", session="s0") == [0]
    assert play.acquire("c1", session="s1") == [1]
    if other:
        play.on(SessionOpened(MemberId("c1"), SessionId("s2"), play.now_ms))
    else:
        play.lose("c1", "s1")
    play.on(SessionOpened(MemberId("c1"), SessionId("s1"), play.now_ms)).wait(4_000)
    assert play.ack("c1", 1, session="s2") == [AckError.INVALID_RECORD_STATE]
    assert play.ack("c1", 1, session="s1") == [None]


def test_opening_a_session_ends_the_earlier_ones_of_its_member_only() -> None:
    play = Playbook().join("c1", "c2").produce(*(b"%d" % key for key in range(20)))
    assert play.acquire("c1", session="s1")
    held = play.acquire("c2", session="s1")
    play.on(SessionOpened(MemberId("c2"), SessionId("s2"), play.now_ms))
    assert play.ack("c2", held.pop(), session="s2") == [None], "the one before is c1's"
    play.on(SessionOpened(MemberId("c2"), SessionId("s1"), play.now_ms))
    play.on(SessionOpened(MemberId("c1"), SessionId("s2"), play.now_ms))
    play.wait(3_000)
    assert play.ack("c2", held, session="s1") == [None] * len(held)
    assert held


def test_an_earlier_session_never_settles_a_later_attempt() -> None:
    """c1 held the record in s1 and closed that; in s2 it got it again, and lost the connection. An
    acknowledgement in the name of s1 is one of the first attempt.
    """
    play = Playbook().join("c1").produce(b"a")
    play.acquire("c1", session="s1")
    play.close("c1", "s1")
    assert play.acquire("c1", session="s2") == [0]
    play.on(SessionOpened(MemberId("c1"), SessionId("s3"), play.now_ms))
    assert play.ack("c1", 0, session="s1") == [AckError.INVALID_RECORD_STATE]
    assert play.ack("c1", 0, session="s3") == [None]


def test_the_same_members_once_more_are_no_work() -> None:
    play = Playbook().join("c1", "c2")
    router = play.core._state.owners.router
    play.on(MembersChanged(tuple(Member(one.member_id) for one in play.core.members), 1_000))
    assert play.core._state.owners.router is router


def test_changed_filters_route_anew() -> None:
    play = Playbook().join("c1").produce(b"a", b"b", b"b")
    play.acquire("c1")
    narrowed = (Member(MemberId("c1"), (b"a*",)),)
    play.on(MembersChanged(narrowed, play.now_ms))
    assert play.core.settled_ranges() == [], "b is in flight; the records behind it are not skipped"
    play.ack("c1", 1)
    assert play.core.settled_ranges() == [(1, 2)]
    assert play.notices() == {Notice.ACCEPTED: 1, Notice.SKIPPED: 1}


def test_what_only_a_member_that_left_accepts_waits_for_it() -> None:
    """It is deployed anew, and comes back under another name."""
    a, b = Member(MemberId("a"), (b"a*",)), Member(MemberId("b"), (b"b*",))
    play = Playbook().on(MembersChanged((a, b), 1_000)).produce(b"a", b"b")
    assert play.acquire("b") == [1]
    left = (a, replace(b, member_id=MemberId(""), awaited=True))
    play.on(MembersChanged(left, play.now_ms)).close("b").produce(b"b", b"c", b"a")
    assert play.notices() == {Notice.SKIPPED: 1}, "c is of nobody, then or now"
    assert play.acquire("a") == [0]
    play.ack("a", 0)
    assert play.acquire("a") == [4], "other keys go on"
    back = (a, replace(b, member_id=MemberId("b2")), left[1])
    play.on(MembersChanged(back, play.now_ms)).expect(MembersReady([MemberId("b2")]))
    assert play.acquire("b2") == [1]
    play.ack("b2", 1)
    assert play.acquire("b2") == [2], "in their order"


def test_who_is_not_awaited_any_longer_gets_nothing_more() -> None:
    a, b = Member(MemberId("a"), (b"a*",)), Member(MemberId("b"), (b"b*",))
    awaited = (a, replace(b, awaited=True))
    play = Playbook().on(MembersChanged(awaited, 1_000)).produce(b"b", None, b"b", b"a")
    assert play.core.settled_ranges() == [(1, 1)], "nobody accepts a record without a key"
    play.on(MembersChanged(awaited, play.now_ms))
    play.on(MembersChanged((a,), play.now_ms))
    assert play.core.cursor == 3
    assert play.notices() == {Notice.SKIPPED: 2}
    play.on(MembersChanged((a,), play.now_ms)).produce(b"b")
    assert play.core.cursor == 3


def test_what_waits_for_a_member_that_left_holds_no_other_key_up() -> None:
    policy = Policy(span_max=8)
    a, b = Member(MemberId("a"), (b"a*",)), Member(MemberId("b"), (b"b*",), awaited=True)
    play = Playbook(policy).on(MembersChanged((a, b), 1_000)).produce(*[b"b"] * 8)
    play.produce(b"a")
    assert play.acquire("a") == []
    play.wait(500).wait(500).read()
    assert play.acquire("a") == [8]
    play.on(MembersChanged((a,), play.now_ms))
    assert play.core.cursor == 8


def test_records_without_a_key_are_units_of_their_own() -> None:
    play = Playbook().join("c1", "c2").produce(*[None] * 40)
    one = play.acquire("c1")
    two = play.acquire("c2")
    assert sorted(one + two) == list(range(40))
    assert len(one) > 5 < len(two)


def test_records_without_a_key_are_skipped_by_narrow_filters() -> None:
    play = Playbook().join("c1", filters=(b"order-*",)).produce(None, b"order-1")
    assert play.core.cursor == 1


def test_who_comes_after_everybody_had_left_does_not_wait_for_the_read_under_way() -> None:
    play = Playbook().join("c1").expect(ReadOn(0, 16_384))
    play.leave("c1").join("c2").expect(ReadOn(0, 16_384))


def test_a_read_under_way_is_not_asked_for_again_while_somebody_stays() -> None:
    play = Playbook().join("c1", "c2").leave("c1")
    assert play.read_on() == []


def test_who_is_gone_is_not_told_of_what_it_gave_back() -> None:
    play = Playbook(Policy(in_flight_per_member_max=1)).join("c1", "c2")
    mine = play.keys_of("c1", 2)
    play.produce(*mine)
    assert play.acquire("c1") == [0]
    play.leave("c1", closes=False).expect(MembersReady([MemberId("c2")]))
    assert play.acquire("c2") == [1]
    play.close("c1")
    assert not [effect for effect in play.step.effects if isinstance(effect, MembersReady)], (
        "c2 is full"
    )
    play.ack("c2", 1)
    assert play.acquire("c2") == [0]
