import pytest

from dispatcher.core.limits import CHUNK_OFFSETS
from dispatcher.core.model import LeaseId, MemberId, Reason, SessionId
from dispatcher.core.steps import (
    BitsSet,
    Change,
    CursorMoved,
    LeaseEnded,
    LeaseExtended,
    LeaseState,
    LeaseTaken,
    RetriesForgotten,
    RetryNoted,
    RetryState,
    Snapshot,
)
from dispatcher.core.stored.snapshot import StoredWindow, apply_changes, bits_changes, state_of

M1, M2, S1, S2 = MemberId("m1"), MemberId("m2"), SessionId("s1"), SessionId("s2")
ONE = LeaseState(LeaseId(1), M1, S1, 1_000, [10, 12, 14])


def retry(offset: int, state: RetryState, deliveries: int = 1) -> RetryNoted:
    return RetryNoted(offset, deliveries, 500, state, Reason.RELEASED, M1)


def taken(lease_id: int, offsets: list[int]) -> LeaseTaken:
    return LeaseTaken(LeaseId(lease_id), M2, S2, 2_000, offsets)


def test_a_snapshot_survives_no_changes() -> None:
    snapshot = Snapshot(10, [(11, 11), (65_530, 65_540)], [ONE], [retry(13, RetryState.PARKED)])
    assert apply_changes(snapshot, []) == snapshot


def test_settled_offsets_leave_their_lease() -> None:
    after = apply_changes(Snapshot(10, [], [ONE]), [BitsSet(0, 1, b"\x10")])
    assert after.settled == [(12, 12)]
    assert after.leases[0].offsets == [10, 14]


def test_offsets_below_the_cursor_are_in_no_lease_no_retry_and_no_bitmap() -> None:
    before = Snapshot(10, [(11, 13)], [ONE], [retry(10, RetryState.WAITING)])
    after = apply_changes(before, [CursorMoved(14, 14)])
    assert after == Snapshot(14, [], [LeaseState(LeaseId(1), M1, S1, 1_000, [14])], [])


def test_a_retry_takes_its_offset_out_of_the_lease_unless_it_is_in_flight_again() -> None:
    before = Snapshot(10, [], [ONE])
    waiting = apply_changes(before, [retry(12, RetryState.WAITING)])
    assert [lease.offsets for lease in waiting.leases] == [[10, 14]]
    again = apply_changes(before, [retry(12, RetryState.IN_FLIGHT, 2)])
    assert [lease.offsets for lease in again.leases] == [[10, 12, 14]]


def test_a_redelivered_offset_belongs_to_its_newest_lease() -> None:
    step_1: list[Change] = [retry(12, RetryState.WAITING)]
    step_2: list[Change] = [taken(2, [12]), retry(12, RetryState.IN_FLIGHT, 2)]
    for steps in ([*step_1, *step_2], [*step_1, *reversed(step_2)]):
        after = apply_changes(Snapshot(10, [], [ONE]), steps)
        assert [(lease.member_id, lease.offsets) for lease in after.leases] == [
            (M1, [10, 14]),
            (M2, [12]),
        ]


def test_a_lease_without_anything_in_flight_stays_until_it_is_ended() -> None:
    after = apply_changes(Snapshot(10, [], [ONE]), [CursorMoved(20, 20)])
    assert [lease.offsets for lease in after.leases] == [[]]
    assert apply_changes(after, [LeaseEnded(LeaseId(1))]).leases == []


def test_an_extended_lease_has_a_new_deadline_and_an_unknown_one_stays_unknown() -> None:
    steps = [LeaseExtended(LeaseId(1), 9_000), LeaseExtended(LeaseId(8), 9_000)]
    after = apply_changes(Snapshot(10, [], [ONE]), steps)
    assert [(lease.lease_id, lease.deadline_ms) for lease in after.leases] == [(1, 9_000)]


def test_forgotten_retries_are_gone() -> None:
    before = Snapshot(10, [], [], [retry(o, RetryState.WAITING) for o in (10, 11, 12)])
    after = apply_changes(before, [RetriesForgotten([10, 12, 99])])
    assert [r.offset for r in after.retries] == [11]


def test_chunks_below_the_cursor_are_dropped_also_when_written_late() -> None:
    state = state_of(Snapshot(5, [(7, 70_000)]))
    assert sorted(state.chunks) == [0, 1]
    state.apply([CursorMoved(CHUNK_OFFSETS + 1, CHUNK_OFFSETS + 1), BitsSet(0, 3, b"\x01")])
    assert sorted(state.chunks) == [1]
    assert state.snapshot().settled == [(CHUNK_OFFSETS + 1, 70_000)]


def test_a_window_of_which_nothing_was_written_is_at_its_cursor() -> None:
    assert StoredWindow(7).snapshot() == Snapshot(7)


def test_bits_overwrite() -> None:
    steps = [BitsSet(0, 2, b"\xff\x0f"), BitsSet(0, 3, b"\xf0"), BitsSet(1, 0, b"\x01")]
    after = apply_changes(Snapshot(0), steps)
    assert after.settled == [(16, 23), (28, 31), (CHUNK_OFFSETS, CHUNK_OFFSETS)]


def test_what_kafka_knew_to_be_settled_at_its_cursor_is_kept() -> None:
    assert apply_changes(Snapshot(10, [(10, 12)]), []).settled == [(10, 12)]
    assert apply_changes(Snapshot(10, [(10, 10)]), []).settled == [(10, 10)]


@pytest.mark.parametrize(("last", "size"), [(0, 1), (7, 1), (8, 2), (15, 2), (16, 3)])
def test_a_chunk_is_as_short_as_it_can_be(last: int, size: int) -> None:
    (change,) = bits_changes([(0, last)])
    assert len(change.data) == size


def test_bits_of_a_range_over_three_chunks() -> None:
    changes = bits_changes([(CHUNK_OFFSETS - 1, 2 * CHUNK_OFFSETS)])
    assert [(c.chunk, c.byte_at, len(c.data)) for c in changes] == [
        (0, 0, 8_192),
        (1, 0, 8_192),
        (2, 0, 1),
    ]
