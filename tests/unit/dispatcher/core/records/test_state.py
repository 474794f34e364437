"""Where records go next, and a window's memory of keys that have nothing to do."""

from __future__ import annotations

from dataclasses import replace

from dispatcher.core.dispatcher import Dispatcher
from dispatcher.core.limits import IDLE_KEYS_MAX
from dispatcher.core.model import (
    Acknowledge,
    AckType,
    Acquire,
    Member,
    MemberId,
    MembersChanged,
    OperatorAct,
    OperatorVerb,
    PoisonPolicy,
    Policy,
    Reason,
    RecordsRead,
    SessionId,
)
from dispatcher.core.records.keys import MemberQueue
from dispatcher.core.records.state import WindowState
from dispatcher.core.steps import MembersReady, Notice, Snapshot
from tests.rig.playbook import Playbook


def test_a_record_that_is_due_goes_out_beside_a_later_one_of_its_key_in_the_same_hands() -> None:
    """Also the very first of a log, whose offset is 0."""
    play = Playbook(Policy(prefetch_per_key=2)).join("c1").produce(b"a", b"a", b"a")
    assert play.acquire("c1") == [0, 1]
    play.ack("c1", 0, AckType.RELEASE)
    assert play.acquire("c1") == []
    play.wait(1_000)
    assert play.acquire("c1") == [0]


def known_keys(play: Playbook) -> int:
    assert isinstance(play.core, Dispatcher)
    return len(play.core._state.by_key)


def test_keys_without_records_are_forgotten_at_a_tick_when_they_are_most() -> None:
    play = Playbook().join("c1").produce(b"a", b"b", b"c", b"d", b"e")
    assert play.acquire("c1") == [0, 1, 2, 3, 4]
    play.ack("c1", [0, 1])
    assert known_keys(play.wait(500)) == 5, "two of five have none"
    play.ack("c1", 2)
    assert known_keys(play) == 5
    assert known_keys(play.wait(500)) == 2, "three of five"
    play.ack("c1", 3)
    assert known_keys(play.wait(500)) == 2, "half of them"


def test_as_many_keys_without_records_are_kept_as_the_limit_says() -> None:
    core = Dispatcher(Policy(in_flight_per_member_max=10_000), Snapshot(cursor=0))
    core.handle(MembersChanged((Member(MemberId("c1")),), 1))
    count = IDLE_KEYS_MAX + 1
    keys: list[bytes | None] = [b"key-%d" % number for number in range(count)]
    core.handle(RecordsRead(0, count, list(range(count)), keys, 1))
    core.handle(Acquire(MemberId("c1"), SessionId("s1"), count, 1))
    for last, known in ((count - 2, count), (count - 1, 0)):
        first = core.cursor
        core.handle(Acknowledge(MemberId("c1"), SessionId("s1"), [(first, last, b"\1")], 1))
        assert len(core._state.by_key) == known


def test_a_member_is_looked_at_once_a_step_however_many_of_its_records_end() -> None:
    state = WindowState(Policy(), 0)
    member = MemberQueue(MemberId("c1"))
    for _ in range(3):
        state.touch(member)
    assert state.touched == [member]


def test_a_full_member_is_woken_when_one_of_its_records_comes_back() -> None:
    play = Playbook(Policy(in_flight_per_member_max=1)).join("c1").produce(b"a", b"b")
    assert play.acquire("c1") == [0]
    play.ack("c1", 0, AckType.RELEASE)
    play.expect(MembersReady([MemberId("c1")]))
    assert play.acquire("c1") == [1]


def test_room_for_one_more_is_read_into_as_soon_as_one_member_has_nothing_to_do() -> None:
    play = Playbook(Policy(span_max=16)).join("c1", "c2")
    play.produce(*play.keys_of("c1", 15))
    assert play.read_on() == [(15, 1)], "c2 has nothing to do"
    play = Playbook(Policy(span_max=16)).join("c1", "c2")
    play.produce(*play.keys_of("c1", 14), *play.keys_of("c2"))
    assert play.read_on() == [], "both have something: one record is not worth a fetch"
    assert play.acquire("c2") == [14]
    assert play.read_on() == [(15, 1)]


def test_a_later_record_that_is_dropped_leaves_its_key_busy() -> None:
    play = Playbook(Policy(prefetch_per_key=2, rejected=PoisonPolicy.DROP)).join("c1")
    play.produce(b"a", b"a")
    assert play.acquire("c1") == [0, 1]
    play.ack("c1", 1, AckType.REJECT)
    assert (play.core.stats().keys, play.core.stats().unsettled) == (1, 1)
    assert play.ack("c1", 0) == [None]
    assert play.core.cursor == 2


def test_a_record_that_is_skipped_before_it_is_read_again_holds_nobody_up() -> None:
    """With prefetch, keys wait until all is read again that was leased or came back."""
    policy = Policy(prefetch_per_key=2, rejected=PoisonPolicy.BLOCK)
    play = Playbook(policy).join("c1").produce(b"a", b"b", b"c")
    play.acquire("c1")
    play.ack("c1", 2, AckType.REJECT)
    play.ack("c1", [0, 1], AckType.RELEASE)
    play.restart().join("c1")
    play.on(OperatorAct(OperatorVerb.SKIP, [2], play.now_ms))
    play.on(RecordsRead(0, 2, [0, 1], [b"a", b"b"], play.now_ms))
    play.wait(1_000)
    assert play.acquire("c1") == [0, 1]


def test_a_span_with_room_for_one_more_is_not_full() -> None:
    play = Playbook(Policy(span_max=8, held_max=0)).join("c1").produce(*[b"a"] * 7)
    play.wait(500)
    assert play.wait(500).notices() == {}
    play.produce(b"a").wait(500)
    assert play.wait(500).notices() == {Notice.SPAN_FULL: 1}


def test_a_full_span_is_watched_anew_when_somebody_comes_back() -> None:
    play = Playbook(Policy(span_max=1, held_max=0)).join("c1").produce(b"a")
    assert play.wait(500).notices() == {}
    play.leave("c1").wait(500).join("c1")
    assert play.wait(500).notices() == {}, "it may have fetched by now"
    assert play.wait(500).notices() == {Notice.SPAN_FULL: 1}


def test_a_member_that_may_hold_more_from_now_on_is_woken() -> None:
    policy = Policy(in_flight_per_member_max=1)
    play = Playbook(policy).join("c1").produce(b"a", b"b")
    assert play.acquire("c1") == [0]
    play.core.retune(replace(policy, in_flight_per_member_max=2))
    play.wait(500).expect(MembersReady([MemberId("c1")]))


def test_a_back_off_of_one_millisecond_is_waited_for() -> None:
    play = Playbook(Policy(backoff_base_ms=1)).join("c1").produce(b"a")
    assert play.acquire("c1") == [0]
    play.ack("c1", 0, AckType.RELEASE)
    assert play.acquire("c1") == []
    assert play.wait(1).acquire("c1") == [0]


def test_the_latest_failure_says_by_whom_and_why() -> None:
    play = Playbook().join("c1").produce(b"a")
    play.acquire("c1")
    play.ack("c1", 0, AckType.RELEASE)
    assert [(r.member_id, r.reason) for r in play.stored.retries] == [("c1", Reason.RELEASED)]
    play.leave("c1").join("c2").wait(1_000).acquire("c2")
    play.ack("c2", 0, AckType.GAP)
    assert [(r.member_id, r.reason) for r in play.stored.retries] == [("c2", Reason.GAP_ACK)]


def test_only_a_release_behind_a_failed_record_of_the_key_is_no_delivery() -> None:
    play = Playbook(Policy(prefetch_per_key=3)).join("c1").produce(b"a", b"a", b"a")
    assert play.acquire("c1") == [0, 1, 2]
    play.ack("c1", 0, AckType.RELEASE)
    play.ack("c1", 1, AckType.GAP)
    play.ack("c1", 2, AckType.RELEASE)
    assert [(r.offset, r.deliveries) for r in play.stored.retries] == [(0, 1), (1, 1), (2, 0)]


def test_a_failure_of_another_key_is_none_of_this() -> None:
    play = Playbook(Policy(prefetch_per_key=2)).join("c1").produce(b"a", b"a", b"b")
    assert play.acquire("c1") == [0, 1, 2]
    play.ack("c1", 2, AckType.RELEASE)
    play.ack("c1", 1, AckType.RELEASE)
    assert [(r.offset, r.deliveries) for r in play.stored.retries] == [(1, 1), (2, 1)]
