from dispatcher.core.model import (
    BitsSet,
    Change,
    CursorMoved,
    LeaseEnded,
    LeaseExtended,
    LeaseId,
    LeaseTaken,
    MemberId,
    Reason,
    RetriesForgotten,
    RetryNoted,
    RetryState,
    SessionId,
)
from dispatcher.core.stored.packing import pack_deadline, pack_lease, pack_retry
from dispatcher.store.operations import FIELDS_MAX, operations

M1 = MemberId("m1")
LEASE = LeaseTaken(LeaseId(1), M1, SessionId("s1"), 9, [5, 6])
RETRY = RetryNoted(5, 1, 700, RetryState.WAITING, Reason.RELEASED, M1)


def test_every_change_is_an_operation_of_the_script() -> None:
    assert operations([CursorMoved(70_000, 70_001, 3)]) == [b"C", 70_000, 70_001, 1, 3]
    assert operations([BitsSet(3, 17, b"\x01\x02")]) == [b"B", 3, 17, b"\x01\x02"]
    assert operations([LEASE]) == [b"L", 1, 1, pack_lease(LEASE)]
    assert operations([LeaseExtended(LeaseId(1), 9)]) == [b"D", 1, pack_deadline(9)]
    assert operations([LeaseEnded(LeaseId(1))]) == [b"E", 1, 1]
    assert operations([RETRY]) == [b"R", 1, 5, pack_retry(RETRY)]
    assert operations([RetriesForgotten([5, 9])]) == [b"F", 2, 5, 9]


def test_neighbours_of_a_kind_share_one_operation_and_the_order_stays() -> None:
    changes: list[Change] = [
        LeaseEnded(LeaseId(1)),
        LeaseEnded(LeaseId(2)),
        RetriesForgotten([5]),
        CursorMoved(1, 1),
        RetriesForgotten([6]),
        RetriesForgotten([7, 8]),
        LeaseEnded(LeaseId(3)),
    ]
    assert operations(changes) == [
        *(b"E", 2, 1, 2),
        *(b"F", 1, 5),
        *(b"C", 1, 1, 0, 0),
        *(b"F", 3, 6, 7, 8),
        *(b"E", 1, 3),
    ]


def test_no_operation_takes_more_than_the_script_can() -> None:
    out = operations([RetriesForgotten(list(range(2 * FIELDS_MAX + 1)))])
    assert [out[at] for at in (1, FIELDS_MAX + 3, 2 * FIELDS_MAX + 5)] == [FIELDS_MAX] * 2 + [1]
    assert len(out) == 2 * FIELDS_MAX + 1 + 3 * 2


def test_nothing_is_no_operation() -> None:
    assert operations([]) == operations([RetriesForgotten([])]) == []
