"""The events of a window and their effects, one by one."""

from __future__ import annotations

import pytest

from dispatcher.core.dispatcher import Dispatcher
from dispatcher.core.model import (
    Acknowledge,
    AckType,
    Acquire,
    LeaseId,
    Member,
    MemberId,
    MembersChanged,
    PoisonPolicy,
    Policy,
    Reason,
    RecordsRead,
    SessionId,
    Ticked,
)
from dispatcher.core.steps import (
    CursorMoved,
    Delivered,
    LeaseEnded,
    LeaseTaken,
    MembersReady,
    Notice,
    Noticed,
    ReadOn,
    RetriesForgotten,
    RetryNoted,
    RetryState,
    Snapshot,
)
from tests.rig.playbook import Playbook

C1 = MemberId("c1")
S1 = SessionId("s1")


def test_nothing_is_read_for_nobody() -> None:
    play = Playbook()
    assert play.on(Ticked(0)).step.effects == []
    play.join("c1").expect(ReadOn(position=0, offsets_max=16_384))
    play.leave("c1")
    # A read that was under way when the last member left.
    play.on(RecordsRead(0, 1, [0], [b"k"], 0))
    assert play.core.read_position == 0
    play.join("c2").expect(ReadOn(position=0, offsets_max=16_384))


def test_one_read_is_asked_for_at_a_time() -> None:
    play = Playbook().join("c1")
    assert play.wait(500).read_on() == []
    assert play.produce(b"a").read_on() == [(1, 16_383)]
    assert play.wait(500).read_on() == []
    play.acquire("c1")
    play.ack("c1", 0)
    assert play.read_on() == []


def test_a_nearly_full_span_is_read_on_only_for_the_idle() -> None:
    play = Playbook(Policy(span_max=16)).join("c1").produce(*[b"%d" % i for i in range(16)])
    play.acquire("c1", 2)
    assert play.ack("c1", 0) == [None]
    assert play.read_on() == [], "one offset is free, and c1 has fourteen records to take"
    play.ack("c1", 1)
    assert play.read_on() == [(16, 2)], "an eighth of the span is free"
    play = Playbook(Policy(span_max=17)).join("c1").produce(*[b"%d" % i for i in range(17)])
    play.acquire("c1", 3)
    play.ack("c1", [0, 1])
    assert play.read_on() == [], "not quite an eighth"
    play.ack("c1", 2)
    assert play.read_on() == [(17, 3)]


def test_acquire_answers_and_persists_one_lease() -> None:
    play = Playbook().join("c1").produce(b"a", b"b").expect(MembersReady([C1]))
    play.on(Acquire(C1, S1, 10, now_ms=5_000))
    play.expect(Delivered(C1, S1, offsets=[0, 1], attempts=[1, 1], deadline_ms=35_000))
    assert play.step.changes == [LeaseTaken(LeaseId(1), C1, S1, deadline_ms=35_000, offsets=[0, 1])]


def test_an_empty_acquire_persists_nothing() -> None:
    play = Playbook().join("c1")
    assert play.acquire("c1") == []
    assert play.step.changes == []


def test_a_stranger_acquires_nothing() -> None:
    play = Playbook().join("c1").produce(b"a")
    assert play.acquire("c2") == []


def test_acknowledging_all_ends_the_lease_and_moves_the_cursor() -> None:
    play = Playbook().join("c1").produce(b"a", b"b")
    play.acquire("c1")
    assert play.acks("c1", [(0, 1, b"\1")]) == [None]
    assert play.step.changes == [LeaseEnded(LeaseId(1)), CursorMoved(2, 2)]
    play.expect(Noticed(Notice.ACCEPTED, 2))


def test_members_are_woken_once() -> None:
    play = Playbook().join("c1").produce(b"a")
    assert play.effects(MembersReady) == [MembersReady([C1])]
    assert play.produce(b"b").effects(MembersReady) == []
    play.acquire("c1")
    assert play.produce(b"c").effects(MembersReady) == [MembersReady([C1])]


def test_a_full_member_is_woken_when_it_has_room() -> None:
    play = Playbook(Policy(in_flight_per_member_max=2)).join("c1").produce(b"a", b"b", b"c")
    assert play.acquire("c1") == [0, 1]
    assert play.acquire("c1") == []
    play.ack("c1", 1)
    play.expect(MembersReady([C1]))
    assert play.acquire("c1") == [2]


def test_a_released_record_waits_and_goes_out_again_first_of_its_key() -> None:
    play = Playbook().join("c1").produce(b"k", b"k")
    play.acquire("c1")
    play.ack("c1", 0, AckType.RELEASE)
    play.persists(RetryNoted(0, 1, 2_000, RetryState.WAITING, Reason.RELEASED, C1))
    assert play.acquire("c1") == []
    assert play.wait(999).acquire("c1") == []
    play.wait(1).expect(MembersReady([C1]))
    assert play.acquire("c1") == [0]
    assert play.delivered().attempts == [2]
    play.persists(RetryNoted(0, 1, 2_000, RetryState.IN_FLIGHT, Reason.RELEASED, C1))
    play.ack("c1", 0).append(None)
    play.persists(RetriesForgotten([0]))
    assert play.acquire("c1") == [1]


def test_back_off_doubles_up_to_its_cap() -> None:
    policy = Policy(deliveries_max=10, backoff_base_ms=1_000, backoff_max_ms=6_000)
    play = Playbook(policy).join("c1").produce(b"k")
    waits = []
    for _ in range(5):
        play.acquire("c1")
        play.ack("c1", 0, AckType.RELEASE)
        (noted,) = [c for c in play.step.changes if isinstance(c, RetryNoted)]
        waits.append(noted.due_ms - play.now_ms)
        play.wait(waits[-1])
    assert waits == [1_000, 2_000, 4_000, 6_000, 6_000]


def test_a_retry_is_due_with_any_event() -> None:
    play = Playbook().join("c1").produce(b"k")
    play.acquire("c1")
    play.ack("c1", 0, AckType.RELEASE)
    play.now_ms += 1_000
    assert play.acquire("c1") == [0]


def test_lock_timeout_gives_back_and_counts() -> None:
    play = Playbook().join("c1").produce(b"a", b"b")
    play.acquire("c1")
    assert play.wait(29_999).step.changes == []
    play.wait(1).expect(Noticed(Notice.TIMED_OUT, 2, offset=0))
    play.persists(RetryNoted(0, 1, 32_000, RetryState.WAITING, Reason.LOCK_TIMEOUT, C1))
    play.persists(LeaseEnded(LeaseId(1)))
    assert play.wait(1_000).acquire("c1") == [0, 1]
    play.expect(Noticed(Notice.REDELIVERED, 2))


def test_a_record_without_a_key_that_holds_the_span_is_said() -> None:
    play = Playbook(Policy(span_max=1, held_max=0)).join("c1").produce(None)
    play.wait(500)
    play.wait(500).expect(Noticed(Notice.SPAN_FULL, 1, "offset 0 key hash c610ff71"))


def test_a_span_that_the_tick_itself_frees_is_not_said_to_be_full() -> None:
    policy = Policy(
        span_max=1,
        held_max=0,
        lock_duration_ms=1_000,
        deliveries_max=1,
        exhausted=PoisonPolicy.DROP,
    )
    play = Playbook(policy).join("c1").produce(b"a")
    play.acquire("c1")
    assert play.wait(500).notices() == {}
    assert play.wait(500).notices() == {
        Notice.TIMED_OUT: 1,
        Notice.EXHAUSTED: 1,
        Notice.DROPPED: 1,
    }
    assert play.core.cursor == 1


def test_a_full_span_that_is_stuck_is_said_once_with_what_blocks() -> None:
    play = Playbook(Policy(span_max=4, held_max=0)).join("c1")
    play.produce(b"order-123", b"a", b"b", b"c", b"d")
    assert play.notices() == {}, "reading ahead fills the span: nothing is wrong"
    play.acquire("c1")
    play.ack("c1", [1, 2, 3])
    assert play.wait(500).notices() == {}
    play.wait(500).expect(Noticed(Notice.SPAN_FULL, 1, "offset 0 key hash cc728681"))
    assert play.wait(500).notices() == {}, "once per cursor"
    play.ack("c1", 0)
    play.read().produce(b"e", b"f", b"g")
    assert play.core.read_position - play.core.cursor == 4
    assert play.wait(500).notices() == {}, "the cursor has moved on"
    assert play.wait(500).notices() == {Notice.SPAN_FULL: 1}


def test_another_policy_counts_from_now_on() -> None:
    play = Playbook(Policy(lock_duration_ms=30_000)).join("c1").produce(b"a", b"b")
    play.acquire("c1", 1)
    play.core.retune(Policy(lock_duration_ms=1_000, deliveries_max=1))
    assert play.acquire("c1") == [1]
    assert play.delivered().deadline_ms == play.now_ms + 1_000
    second = {Notice.TIMED_OUT: 1, Notice.EXHAUSTED: 1, Notice.PARKED: 1}
    assert play.wait(1_000).notices() == second
    with pytest.raises(AssertionError, match="span"):
        play.core.retune(Policy(span_max=1, held_max=0))


@pytest.mark.parametrize(
    ("before", "after", "reads_on"),
    [
        (4, 2, []),  # records already read stay
        (4, 6, [(4, 2)]),
        (4, None, [(4, 16_380)]),
        (8, 9, []),  # not for so few of them
        (8, 10, [(8, 2)]),
    ],
)
def test_another_limit_of_records(
    before: int, after: int | None, reads_on: list[tuple[int, int]]
) -> None:
    keys = [b"%d" % at for at in range(before)]
    play = Playbook(Policy(window_records=before)).join("c1").produce(*keys)
    play.core.retune(Policy(window_records=after))
    assert play.wait(500).read_on() == reads_on
    assert len(play.acquire("c1")) == before


def test_members_and_positions() -> None:
    play = Playbook(snapshot=Snapshot(cursor=7)).join("c1", "c2").produce(b"a", b"b")
    assert [m.member_id for m in play.core.members] == ["c1", "c2"]
    assert (play.core.cursor, play.core.read_position) == (7, 9)
    assert "7..9" in repr(play.core)


def test_the_same_membership_again_changes_nothing() -> None:
    play = Playbook().join("c1").produce(b"a")
    play.acquire("c1")
    play.on(MembersChanged((Member(C1),), play.now_ms))
    assert play.step.changes == []
    assert play.ack("c1", 0) == [None]


def test_invariants_are_checked() -> None:
    play = Playbook().join("c1").produce(b"a")
    play.core._state.members[0].in_flight = 1
    with pytest.raises(AssertionError, match="another count"):
        play.core.check_invariants()


def test_the_watchdog_s_phases_are_in_order() -> None:
    """One tick at which all six have something to do: locks that time out (0 and 1), a budget that
    this exhausts (0), a retry that is due (2), a session that is gone (3), a member that is silent,
    room to read on.
    """
    policy = Policy(
        span_max=8,
        deliveries_max=2,
        backoff_base_ms=3_000,
        lock_duration_ms=4_000,
        exhausted=PoisonPolicy.DROP,
    )
    play = Playbook(policy).join("c1").produce(b"0")
    play.acquire("c1")
    play.ack("c1", 0, AckType.RELEASE)
    play.wait(3_000).produce(b"1", b"2")
    assert play.acquire("c1") == [0, 1, 2]
    assert play.delivered().attempts == [2, 1, 1]
    play.wait(1_000)
    play.ack("c1", 2, AckType.RELEASE)
    play.produce(b"3", b"4", b"5", b"6", b"7")
    assert play.acquire("c1", 1, session="s2") == [3]
    play.lose("c1", session="s2")
    assert play.read_on() == [], "the span is full"
    play.wait(3_000)
    noted = [(c.offset, c.reason) for c in play.step.changes if isinstance(c, RetryNoted)]
    assert noted == [(1, Reason.LOCK_TIMEOUT), (3, Reason.MEMBER_EVICTED)]
    ended = {Notice.TIMED_OUT: 2, Notice.EXHAUSTED: 1, Notice.DROPPED: 1}
    assert play.notices() == {**ended, Notice.SILENT: 1}
    assert play.read_on() == [(8, 1)], "room for the dropped ones"
    assert play.acquire("c1", session="s3") == [2, 3, 4, 5, 6, 7]


def test_without_a_back_off_a_record_goes_out_again_in_the_same_step() -> None:
    play = Playbook(Policy(backoff_base_ms=0, lock_duration_ms=1_000)).join("c1").produce(b"a")
    play.acquire("c1")
    play.ack("c1", 0, AckType.RELEASE)
    play.expect(MembersReady([C1]))
    assert play.acquire("c1") == [0]
    play.wait(1_000).expect(MembersReady([C1]))
    assert play.notices() == {Notice.TIMED_OUT: 1}
    assert play.acquire("c1") == [0]


def test_a_member_holds_a_thousand_records_by_default() -> None:
    core = Dispatcher(Policy(), Snapshot(cursor=0))
    core.handle(MembersChanged((Member(C1),), 0))
    core.handle(RecordsRead(0, 1_500, list(range(1_500)), [b"%d" % at for at in range(1_500)], 0))

    def acquired() -> int:
        answer = core.handle(Acquire(C1, S1, 5_000, 0)).effects[0]
        assert isinstance(answer, Delivered)
        return len(answer.offsets)

    assert (acquired(), acquired()) == (1_000, 0)
    core.handle(Acknowledge(C1, S1, [(10, 11, b"\1")], 0))
    assert acquired() == 2
