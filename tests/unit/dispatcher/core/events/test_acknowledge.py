"""Acknowledgements: fencing, wire forms, gaps, renewals."""

from __future__ import annotations

from dataclasses import replace

import pytest

from dispatcher.core.events.acknowledge import accept
from dispatcher.core.model import (
    AckError,
    Acknowledge,
    AckType,
    LeaseId,
    LogTruncated,
    MemberId,
    Policy,
    Reason,
    SessionId,
    SessionOpened,
)
from dispatcher.core.steps import (
    AckResult,
    LeaseExtended,
    LeaseState,
    LeaseTaken,
    Notice,
    Noticed,
    RetryNoted,
    RetryState,
    Snapshot,
)
from tests.rig.playbook import Playbook

REFUSED = [AckError.INVALID_RECORD_STATE]


def held(count: int = 3) -> Playbook:
    play = Playbook().join("c1").produce(*[b"k%d" % i for i in range(count)])
    assert play.acquire("c1") == list(range(count))
    return play


def test_another_member_is_refused() -> None:
    play = held().join("c2")
    assert play.ack("c2", 0) == REFUSED
    assert play.step.changes == []
    play.expect(Noticed(Notice.LATE_ACK, 1))
    assert play.ack("c1", 0) == [None]


def test_another_session_of_the_same_member_is_refused() -> None:
    play = held()
    assert play.ack("c1", 0, session="s2") == REFUSED
    assert play.ack("c1", 0, session="s1") == [None]


def test_a_second_acknowledgement_is_refused() -> None:
    play = held()
    assert play.ack("c1", 1) == [None]
    assert play.ack("c1", 1) == REFUSED
    assert play.core.stats().in_flight == 2


def test_a_batch_is_taken_whole_or_not_at_all() -> None:
    play = held()
    play.ack("c1", 1)
    assert play.acks("c1", [(0, 2, b"\1")]) == REFUSED
    assert play.core.cursor == 0
    assert play.acks("c1", [(0, 0, b"\1"), (1, 1, b"\1"), (2, 2, b"\1")]) == [None, *REFUSED, None]
    assert play.core.cursor == 0, "none of them, as at Kafka: the client hears of one error"
    assert play.acks("c1", [(0, 0, b"\1"), (2, 2, b"\1")]) == [None, None]
    assert play.core.cursor == 3


def test_what_retention_took_makes_no_acknowledgement_fail() -> None:
    play = held()
    play.on(LogTruncated(1, play.now_ms))
    assert play.acks("c1", [(0, 2, b"\1")]) == [None]
    assert play.core.cursor == 3


def test_of_a_record_that_is_gone_no_type_counts() -> None:
    play = held()
    play.on(LogTruncated(2, play.now_ms))
    assert play.acks("c1", [(0, 1, b"\2\3"), (2, 2, b"\1")]) == [None, None]
    assert play.core.cursor == 3


def test_an_invalid_type_is_an_invalid_request_of_a_record_that_is_gone_too() -> None:
    play = held()
    play.on(LogTruncated(2, play.now_ms))
    assert play.acks("c1", [(0, 1, b"\x09")]) == [AckError.INVALID_REQUEST]


def again(play: Playbook, batches: list[tuple[int, int, bytes]]) -> list[AckError | None]:
    """As a gateway asks that does not know whether the store has taken it."""
    play.on(Acknowledge(MemberId("c1"), SessionId("s1"), batches, play.now_ms, again=True))
    (result,) = [e for e in play.step.effects if isinstance(e, AckResult)]
    return result.errors


def test_what_was_applied_is_not_refused_when_it_is_asked_again() -> None:
    play = held()
    batches = [(0, 1, b"\1\2"), (2, 2, b"\3")]
    assert play.acks("c1", batches) == [None, None]
    assert again(play, batches) == [None, None]
    assert play.step.changes == []


def test_asked_again_what_was_not_applied_is_applied() -> None:
    play = held()
    play.ack("c1", 0)
    assert again(play, [(0, 2, b"\1")]) == [None]
    assert play.core.cursor == 3


def test_asked_again_it_does_not_settle_what_another_delivery_holds() -> None:
    play = held()
    play.ack("c1", 1, AckType.RELEASE)
    play.wait(2_000)
    assert play.acquire("c1", session="s2") == [1]
    assert again(play, [(0, 1, b"\1")]) == REFUSED
    assert play.core.cursor == 0


def test_a_renewal_by_a_new_session_outlives_the_lost_one() -> None:
    """The client was told that its lock runs anew."""
    play = held()
    play.lose("c1", "s1").on(SessionOpened(MemberId("c1"), SessionId("s2"), play.now_ms))
    assert play.acks("c1", [(0, 1, b"\4")], "s2") == [None]
    play.wait(play.policy.disconnect_grace_ms + 1_000)
    assert play.acks("c1", [(0, 1, b"\1")], "s2") == [None]
    assert play.acks("c1", [(2, 2, b"\1")], "s2") == REFUSED, "it was not renewed"


def test_a_stranger_at_the_end_of_a_batch_is_noticed() -> None:
    """Behind two records of one lease."""
    play = held(3)
    play.ack("c1", 2)
    assert play.acks("c1", [(0, 2, b"\1")]) == REFUSED
    assert play.core.cursor == 0


@pytest.mark.parametrize(
    "batch",
    [(0, 2, b""), (0, 2, b"\1\1"), (2, 0, b"\1"), (0, 0, b"\5"), (0, 1, b"\1\x09"), (-1, 0, b"\1")],
)
def test_malformed_batches(batch: tuple[int, int, bytes]) -> None:
    play = held()
    assert play.acks("c1", [batch]) == [AckError.INVALID_REQUEST]
    assert play.step.changes == []


def test_enormous_ranges_are_refused_at_once() -> None:
    play = held()
    huge = 2**62
    for batch in [(0, huge, b"\1"), (0, huge, b"\0"), (huge, huge + 5, b"\1"), (huge, huge, b"\0")]:
        assert play.acks("c1", [batch]) == REFUSED
        assert again(play, [batch]) == REFUSED


@pytest.mark.parametrize(
    "batches", [[(2, 2), (0, 0)], [(1, 1), (1, 1)], [(0, 2), (1, 1)], [(0, 1), (1, 2)]]
)
def test_batches_that_do_not_ascend_are_invalid(batches: list[tuple[int, int]]) -> None:
    """As at Kafka. One request has room for 400,000 of them."""
    play = held()
    typed = [(first, last, b"\1") for first, last in batches]
    assert play.acks("c1", typed) == [AckError.INVALID_REQUEST] * 2
    assert again(play, typed) == [AckError.INVALID_REQUEST] * 2
    assert (play.core.cursor, play.step.changes) == (0, [])


def test_asked_again_below_the_front_all_was_accepted_and_nothing_can_be_renewed() -> None:
    play = Playbook().join("c1").produce(*[b"k%d" % i for i in range(200)])
    while play.core.cursor < 200:
        play.ack("c1", play.acquire("c1", 50))
    batches = [(at, at + 9, b"\1") for at in range(0, 200, 10)]
    assert again(play, batches) == [None] * 20
    assert again(play, [(0, 199, b"\4")]) == REFUSED


def test_one_type_per_offset() -> None:
    play = held(4)
    assert play.acks("c1", [(0, 3, bytes([1, 2, 1, 3]))]) == [None]
    assert play.notices() == {
        Notice.ACCEPTED: 2,
        Notice.RELEASED: 1,
        Notice.REJECTED: 1,
        Notice.DROPPED: 1,
    }
    assert play.core.cursor == 1


def test_one_type_for_each_of_two() -> None:
    play = held(2)
    assert play.acks("c1", [(0, 1, bytes([1, 2]))]) == [None]
    assert play.notices() == {Notice.ACCEPTED: 1, Notice.RELEASED: 1}


@pytest.mark.parametrize(
    ("first", "types"),
    [(164, b"\1"), (164, b"\0"), (99, b"\0"), (99, bytes([0] + [1] * 65))],
)
def test_an_offset_one_turn_of_the_ring_further_is_not_the_record_in_its_place(
    first: int, types: bytes
) -> None:
    play = Playbook(snapshot=Snapshot(cursor=100)).join("c1")
    play.produce(*[b"%d" % number for number in range(64)])
    assert play.acquire("c1") == list(range(100, 164))
    assert play.acks("c1", [(first, 164, types)]) == REFUSED
    assert play.core.stats().in_flight == 64


def test_below_the_cursor_nothing_but_gaps_is_harmless() -> None:
    play = Playbook(snapshot=Snapshot(cursor=10))
    for types in (b"\0", bytes(3)):
        assert play.acks("c1", [(5, 7, types)]) == [None]
    for types in (b"\1", bytes([0, 0, 1]), bytes([0, 1, 0]), bytes([1, 0, 0])):
        assert play.acks("c1", [(5, 7, types)]) == REFUSED


def test_a_byte_is_noted_as_changed_once_however_many_of_its_offsets_are_settled() -> None:
    play = Playbook().join("c1").produce(*[b"%d" % at for at in range(20)])
    play.acquire("c1")
    accept(play.core._state, [(1, 3), (5, 6), (8, 17)])
    assert list(play.core._state.window.dirty) == [0, 1, 2]


def test_gap_for_what_is_not_there_is_harmless() -> None:
    play = Playbook().join("c1").produce(b"a").hole(2).produce(b"b")
    assert play.acquire("c1") == [0, 3]
    assert play.acks("c1", [(0, 3, bytes([1, 0, 0, 1]))]) == [None]
    assert play.core.cursor == 4
    assert play.acks("c1", [(1, 2, b"\0")]) == [None], "also once the cursor has passed it"
    assert play.acks("c1", [(3, 4, b"\0")]) == REFUSED, "4 may still be a gap"


def test_gap_inside_a_batch_that_begins_later() -> None:
    play = Playbook().join("c1").produce(b"a", b"b").hole().produce(b"c")
    assert play.acquire("c1") == [0, 1, 3]
    assert play.acks("c1", [(1, 3, bytes([1, 0, 1]))]) == [None]
    assert play.acks("c1", [(0, 0, b"\1")]) == [None]
    assert play.core.cursor == 4


def test_gap_for_a_record_that_exists_is_a_release_and_an_alarm() -> None:
    play = held(2)
    assert play.acks("c1", [(1, 1, b"\0")]) == [None]
    play.expect(Noticed(Notice.GAP_ACK, 1, "offset 1"))
    play.persists(RetryNoted(1, 1, 2_000, RetryState.WAITING, Reason.GAP_ACK, MemberId("c1")))
    assert play.wait(1_000).acquire("c1") == [1]


def test_gap_for_a_record_of_another_is_refused() -> None:
    play = held(1).produce(b"waiting")
    assert play.acks("c2", [(0, 0, b"\0")]) == REFUSED
    assert play.acks("c1", [(1, 1, b"\0")]) == REFUSED, "read, but not delivered"


def test_range_that_straddles_the_cursor() -> None:
    play = Playbook(snapshot=Snapshot(cursor=10)).join("c1").produce(b"a", b"b")
    play.acquire("c1")
    assert play.acks("c1", [(9, 11, bytes([1, 1, 1]))]) == REFUSED
    assert play.acks("c1", [(9, 11, bytes([0, 1, 1]))]) == [None]
    assert play.core.cursor == 12


@pytest.mark.parametrize("types", [b"\4", bytes([1, 4])])
def test_a_type_beyond_what_the_request_may_have(types: bytes) -> None:
    play = held(2)
    batch = (0, len(types) - 1, types)
    event = Acknowledge(MemberId("c1"), SessionId("s1"), [batch], play.now_ms)
    play.on(replace(event, type_max=3)).expect(AckResult([AckError.INVALID_REQUEST]))
    assert play.step.changes == []
    play.on(replace(event, type_max=4)).expect(AckResult([None]))


def test_renewing_everything_extends_the_lease() -> None:
    play = held(2)
    play.now_ms += 20_000
    assert play.acks("c1", [(0, 1, b"\4")]) == [None]
    play.persists(LeaseExtended(LeaseId(1), play.now_ms + 30_000))
    assert play.wait(29_000).notices() == {}
    assert play.ack("c1", [0, 1]) == [None, None]


def test_renewing_a_part_makes_it_a_lease_of_its_own() -> None:
    play = held(3)
    play.now_ms += 20_000
    assert play.acks("c1", [(0, 2, bytes([4, 1, 4]))]) == [None]
    assert play.ack("c1", 2, AckType.RENEW) == [None]
    play.now_ms += 10_000
    assert play.wait(0).notices() == {}, "0 and 2 were renewed, 1 accepted"
    assert play.wait(20_000).notices() == {Notice.TIMED_OUT: 2, Notice.SILENT: 1}


def test_renewing_all_of_one_lease_and_a_part_of_another() -> None:
    play = Playbook().join("c1").produce(*[b"k%d" % number for number in range(4)])
    assert (play.acquire("c1", 2), play.acquire("c1", 2)) == ([0, 1], [2, 3])
    play.now_ms += 20_000
    assert play.acks("c1", [(0, 2, b"\4")]) == [None]
    until_ms = play.now_ms + 30_000
    play.persists(
        LeaseExtended(LeaseId(1), until_ms),
        LeaseTaken(LeaseId(3), MemberId("c1"), SessionId("s1"), until_ms, [2]),
    )


def test_a_held_record_behind_the_one_accepted_stays_held() -> None:
    """Both were out before a restart, with prefetch; now the group has one record of a key."""
    snapshot = Snapshot(
        cursor=0,
        leases=[LeaseState(LeaseId(1), MemberId("c1"), SessionId("s1"), 30_000, [0])],
        retries=[RetryNoted(1, 1, 0, RetryState.PARKED, Reason.REJECTED, MemberId("c1"))],
    )
    play = Playbook(snapshot=snapshot).join("c1").produce(b"k", b"k")
    assert play.ack("c1", 0) == [None]
    assert play.acquire("c1") == []


def test_a_renewed_part_survives_a_restart() -> None:
    play = held(3)
    play.now_ms += 20_000
    play.ack("c1", 1, AckType.RENEW)
    play.persists(
        LeaseTaken(LeaseId(2), MemberId("c1"), SessionId("s1"), play.now_ms + 30_000, [1])
    )
    play.restart().join("c1").read()
    play.now_ms += 10_000
    assert play.wait(0).notices() == {Notice.TIMED_OUT: 2, Notice.SILENT: 1}
    assert play.ack("c1", 1) == [None]


def test_release_beyond_the_budget_parks() -> None:
    play = Playbook(Policy(deliveries_max=1)).join("c1").produce(b"k", b"k", b"other")
    play.acquire("c1")
    play.ack("c1", 0, AckType.RELEASE)
    assert play.notices() == {Notice.RELEASED: 1, Notice.EXHAUSTED: 1, Notice.PARKED: 1}


def test_a_key_with_several_records_in_flight_is_renewed_by_their_own_session_only() -> None:
    play = Playbook(Policy(prefetch_per_key=2)).join("c1").produce(b"a", b"a")
    assert play.acquire("c1") == [0, 1]
    play.lose("c1", "s1").on(SessionOpened(MemberId("c1"), SessionId("s2"), play.now_ms))
    assert play.acks("c1", [(0, 0, b"\4")], "s2") == REFUSED
    assert play.acks("c1", [(0, 0, b"\4")], "s1") == [None]
