from dispatcher.core.epochs import NOT_KNOWN
from dispatcher.core.model import LeaseId, MemberId, Reason, SessionId
from dispatcher.core.steps import (
    AsideSet,
    BitsSet,
    Change,
    CursorMoved,
    EpochsMoved,
    LeaseEnded,
    LeaseExtended,
    LeaseTaken,
    RetriesForgotten,
    RetryNoted,
    RetryState,
)
from dispatcher.core.stored.packing import pack_deadline, pack_lease, pack_retry
from dispatcher.store.operations import WORDS_MAX, Argument, Kept, kept_of, new_kept, operations

M1 = MemberId("m1")
LEASE = LeaseTaken(LeaseId(1), M1, SessionId("s1"), 9, [5, 6])
RETRY = RetryNoted(5, 1, 700, RetryState.WAITING, Reason.RELEASED, M1)
AT_2 = Kept(140_000, 140_000, 2, 3, 0, ((5, NOT_KNOWN), (7, 90)))  # its front is in chunk 2


def commands(changes: list[Change], before: Kept | None = None) -> list[Argument]:
    return operations(changes, before or new_kept())[0]


def state(changes: list[Change], before: Kept | None = None) -> bytes:
    return operations(changes, before or new_kept())[1].words()


def test_every_change_is_a_command_of_redis() -> None:
    assert commands([LEASE]) == [4, b"HSET", b":leases", 1, pack_lease(LEASE)]
    assert commands([LeaseExtended(LeaseId(1), 9)]) == [3, b"EXTEND", 1, pack_deadline(9)]
    assert commands([LeaseEnded(LeaseId(1))]) == [3, b"HDEL", b":leases", 1]
    assert commands([RETRY]) == [4, b"HSET", b":retries", 5, pack_retry(RETRY)]
    assert commands([RetriesForgotten([5, 9])]) == [4, b"HDEL", b":retries", 5, 9]
    assert commands([AsideSet(7, b"\x01")]) == [4, b"HSET", b":aside", 7, b"\x01"]
    assert commands([AsideSet(7, b"")]) == [3, b"HDEL", b":aside", 7]
    bits = BitsSet(3, 17, b"\x01\x02")
    assert commands([bits]) == [4, b"SETRANGE", b":bits:3", 17, b"\x01\x02"]


def test_the_state_says_where_the_window_is_and_its_highest_chunk() -> None:
    assert state([]) == b"0 0 0 -1 0 -1"
    assert state([CursorMoved(70_000, 70_001, 3)]) == b"70000 70001 1 -1 3 -1"
    assert state([BitsSet(3, 0, b"\x01"), BitsSet(2, 0, b"\x01")]) == b"0 0 0 3 0 -1"
    assert state([], AT_2) == AT_2.words() == b"140000 140000 2 3 0 7 90 5 -1"
    assert kept_of(AT_2.words().split()).words() == AT_2.words()
    assert kept_of(b"140000 140000 2 3 0".split()).epochs == (), "as a node of 0.2 writes it"
    assert state([EpochsMoved(((9, 4),)), CursorMoved(140_001, 140_001)], AT_2).endswith(b" 9 4")


def test_chunks_that_the_front_has_left_are_deleted() -> None:
    """Those that were written; also what the same step has set there."""
    moved = CursorMoved(5 * 65_536, 5 * 65_536)
    deleted = [2, b"DEL", b":bits:2", 2, b"DEL", b":bits:3"]
    assert commands([moved], AT_2) == deleted
    bits = BitsSet(4, 0, b"\x01")
    assert commands([bits, moved], AT_2)[5:] == [*deleted, 2, b"DEL", b":bits:4"]


def test_bits_below_the_front_s_chunk_are_left_out() -> None:
    assert commands([BitsSet(1, 0, b"\x01")], AT_2) == []
    assert state([BitsSet(1, 0, b"\x01")], AT_2) == AT_2.words()


def test_the_state_before_stays_as_it_is() -> None:
    """The step may be sent again, or be refused."""
    before = new_kept()
    operations([BitsSet(3, 0, b"\x01"), CursorMoved(1, 2, 3)], before)
    assert before.words() == new_kept().words()


def test_neighbours_of_a_kind_share_one_command_and_the_order_stays() -> None:
    changes: list[Change] = [
        LeaseEnded(LeaseId(1)),
        LeaseEnded(LeaseId(2)),
        RetriesForgotten([5]),
        LeaseExtended(LeaseId(3), 9),
        RetriesForgotten([6]),
        RetriesForgotten([7, 8]),
        LeaseEnded(LeaseId(3)),
    ]
    assert commands(changes) == [
        *(4, b"HDEL", b":leases", 1, 2),
        *(3, b"HDEL", b":retries", 5),
        *(3, b"EXTEND", 3, pack_deadline(9)),
        *(5, b"HDEL", b":retries", 6, 7, 8),
        *(3, b"HDEL", b":leases", 3),
    ]


def test_no_command_takes_more_than_the_script_can() -> None:
    out = commands([RetriesForgotten(list(range(2 * WORDS_MAX + 1)))])
    assert [out[at] for at in (0, WORDS_MAX + 3, 2 * WORDS_MAX + 6)] == [WORDS_MAX + 2] * 2 + [3]
    assert len(out) == 2 * WORDS_MAX + 1 + 3 * 3


def test_nothing_is_no_command() -> None:
    assert commands([]) == commands([RetriesForgotten([])]) == []
