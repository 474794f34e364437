import pytest

from dispatcher.core.model import LeaseId, MemberId, Reason, SessionId
from dispatcher.core.steps import LeaseState, LeaseTaken, RetryNoted, RetryState
from dispatcher.core.stored.packing import (
    Unreadable,
    pack_deadline,
    pack_lease,
    pack_retry,
    unpack_lease,
    unpack_retry,
)

MEMBER, SESSION = MemberId("mémber-1"), SessionId("session-1")
LEASE = LeaseTaken(LeaseId(7), MEMBER, SESSION, 1_700_000_000_123, [5, 6, 133, 134, 2**40, 2**62])


def test_a_lease_comes_back() -> None:
    assert unpack_lease(LeaseId(7), pack_lease(LEASE)) == LeaseState(
        LeaseId(7), MEMBER, SESSION, 1_700_000_000_123, LEASE.offsets
    )


def test_a_lease_without_offsets_and_names_comes_back() -> None:
    lease = LeaseTaken(LeaseId(1), MemberId(""), SessionId(""), 0, [])
    assert unpack_lease(LeaseId(1), pack_lease(lease)).offsets == []


@pytest.mark.parametrize("size", [0, 1, 127, 128, 129, 255, 256, 16_383, 16_384, 20_000])
def test_numbers_of_any_size_come_back(size: int) -> None:
    """Lengths and counts, and the distance of two offsets, around the ends of a byte's 7 bits."""
    name = MemberId("m" * size)
    for offsets in ([size], [5, 5 + size], list(range(size))):
        lease = LeaseTaken(LeaseId(1), name, SessionId("s" * size), 0, offsets)
        found = unpack_lease(LeaseId(1), pack_lease(lease))
        assert (found.member_id, found.session_id, found.offsets) == (
            name,
            lease.session_id,
            offsets,
        )


def test_a_number_takes_a_byte_for_every_seven_bits() -> None:
    empty = len(pack_lease(LeaseTaken(LeaseId(1), MemberId(""), SessionId(""), 0, [])))
    for distance, size in ((0, 1), (127, 1), (128, 2), (16_383, 2), (16_384, 3)):
        lease = LeaseTaken(LeaseId(1), MemberId(""), SessionId(""), 0, [distance])
        assert len(pack_lease(lease)) == empty + size
        named = LeaseTaken(LeaseId(1), MemberId("m" * distance), SessionId(""), 0, [])
        assert len(pack_lease(named)) == empty + size - 1 + distance


@pytest.mark.parametrize("end", [b"\xff" * 20, b"\x80" * 9 + b"\x01", b"\xff\xff"])
def test_a_number_without_end_is_unreadable(end: bytes) -> None:
    deadline = pack_deadline(1)
    for data in (deadline + end, deadline + b"\0\0\x01" + end):
        with pytest.raises(Unreadable, match=r"endless number|cut off|out of range"):
            unpack_lease(LeaseId(1), data)


def test_the_deadline_is_the_first_eight_bytes() -> None:
    moved = pack_deadline(42) + pack_lease(LEASE)[8:]
    found = unpack_lease(LeaseId(7), moved)
    assert (found.deadline_ms, found.offsets) == (42, LEASE.offsets)


def test_offsets_near_each_other_take_a_byte_each() -> None:
    offsets = list(range(10**9, 10**9 + 100_000, 100))
    lease = LeaseTaken(LeaseId(1), MEMBER, SESSION, 0, offsets)
    assert len(pack_lease(lease)) < len(offsets) + 50


def test_every_part_of_a_lease_that_is_missing_is_noticed() -> None:
    data = pack_lease(LEASE)
    for size in range(len(data)):
        with pytest.raises(Unreadable):
            unpack_lease(LeaseId(7), data[:size])
    with pytest.raises(Unreadable):
        unpack_lease(LeaseId(7), data + b"\x01")


def test_offsets_that_do_not_ascend_are_a_bug() -> None:
    with pytest.raises(AssertionError):
        pack_lease(LeaseTaken(LeaseId(1), MEMBER, SESSION, 0, [5, 4]))


@pytest.mark.parametrize("state", RetryState)
@pytest.mark.parametrize("reason", Reason)
def test_a_retry_comes_back(state: RetryState, reason: Reason) -> None:
    retry = RetryNoted(2**53, 5, 1_700_000_000_123, state, reason, MEMBER)
    assert unpack_retry(2**53, pack_retry(retry)) == retry


@pytest.mark.parametrize("data", [b"", b"\x00" * 13, b"\x00" * 14, b"\x00" * 12 + b"\x01\xff"])
def test_a_retry_of_nobody_is_unreadable(data: bytes) -> None:
    with pytest.raises(Unreadable):
        unpack_retry(1, data)


# Written down as bytes: a store outlives the code, so these must never change under one format.
def test_stored_bytes_stay_what_they_are() -> None:
    lease = LeaseTaken(LeaseId(1), MemberId("m"), SessionId("ss"), 258, [300, 301])
    assert pack_lease(lease) == b"\0\0\0\0\0\0\x01\x02" + b"\x01m" + b"\x02ss" + b"\x02\xac\x02\x01"
    codes = [pack_retry(RetryNoted(1, 2, 3, s, Reason.RELEASED, MEMBER))[12] for s in RetryState]
    assert codes == [1, 2, 3, 4]
    codes = [
        pack_retry(RetryNoted(1, 2, 3, RetryState.PARKED, r, MemberId("")))[13] for r in Reason
    ]
    assert codes == [1, 2, 3, 4, 5, 6, 7, 8, 9]
