"""A store that fell behind the commit in Kafka, and one that means another life of the window."""

from __future__ import annotations

import pytest

from dispatcher.core.epochs import NOT_KNOWN, Epochs
from dispatcher.core.model import LeaseId, MemberId, Reason, SessionId
from dispatcher.core.steps import LeaseState, RetryNoted, RetryState, Snapshot
from dispatcher.core.stored.reconcile import merged, reconciled

M1 = MemberId("m1")


def lease(number: int, *offsets: int) -> LeaseState:
    return LeaseState(LeaseId(number), M1, SessionId("s1"), 9_000, list(offsets))


def parked(offset: int) -> RetryNoted:
    return RetryNoted(offset, 2, 0, RetryState.PARKED, Reason.REJECTED, M1)


STORED = Snapshot(10, [(12, 12), (20, 22)], [lease(3, 10, 11), lease(4, 15)], [parked(16)])


@pytest.mark.parametrize(
    "committed",
    [
        Snapshot(3),
        Snapshot(10, [(20, 21)]),
        Snapshot(5, [(7, 9), (12, 12)]),
    ],
)
def test_a_commit_that_the_store_is_ahead_of_adds_nothing(committed: Snapshot) -> None:
    assert merged(STORED, committed) is STORED


def test_what_either_calls_settled_is_settled() -> None:
    said = Snapshot(8, [(11, 11), (13, 14), (21, 23), (30, 31)])
    both = merged(STORED, said)
    assert (both.cursor, both.settled) == (10, [(11, 14), (20, 23), (30, 31)])
    assert [(left.lease_id, left.offsets) for left in both.leases] == [(3, [10]), (4, [15])]
    assert both.retries == [parked(16)]


def test_what_is_settled_now_is_nobodys_and_waits_for_nothing() -> None:
    both = merged(STORED, Snapshot(15, [(16, 17)]))
    assert (both.cursor, both.settled) == (15, [(16, 17), (20, 22)])
    assert [(left.lease_id, left.offsets) for left in both.leases] == [(4, [15])]
    assert both.retries == []


@pytest.mark.parametrize(
    ("said", "epochs"),
    [
        (((2, 0), (3, 9)), ((2, 0), (3, 9))),
        (((2, 0), (4, 13), (6, 14)), ((2, 0), (3, 9), (4, 13), (6, 14))),
        (((4, NOT_KNOWN),), ((4, NOT_KNOWN),)),  # of an earlier version
        (((2, 0), (5, 4)), ((2, 0), (5, 4))),  # the log parted, and 3 is not in it any more
        ((), ()),
    ],
)
def test_later_epochs_of_the_commit_are_added_where_they_began(
    said: Epochs, epochs: Epochs
) -> None:
    stored = Snapshot(10, epochs=((2, 0), (3, 9)))
    assert merged(stored, Snapshot(15, epochs=said)).epochs == epochs


@pytest.mark.parametrize(
    ("committed", "cursor", "settled"),
    [
        (Snapshot(10, [(10, 11)]), 13, [(20, 22)]),
        (Snapshot(11, [(13, 13)]), 11, [(12, 13), (20, 22)]),
        (Snapshot(12), 13, [(20, 22)]),
        (Snapshot(22), 23, []),
        (Snapshot(19), 19, [(20, 22)]),
        (Snapshot(40, [(42, 42)]), 40, [(42, 42)]),
    ],
)
def test_the_cursor_passes_what_is_settled_without_a_gap(
    committed: Snapshot, cursor: int, settled: list[tuple[int, int]]
) -> None:
    both = merged(STORED, committed)
    assert (both.cursor, both.settled) == (cursor, settled)


def test_of_two_lives_the_later_one_counts_alone() -> None:
    later = Snapshot(4, [(6, 6)])  # a position that was set back by hand
    assert reconciled(STORED, 7, later, 8) is later
    assert reconciled(later, 8, STORED, 7) is later, "nor does an old commit undo it"
    assert reconciled(STORED, 7, later, 7) is STORED
    assert reconciled(STORED, 7, Snapshot(11), 7).cursor == 11


@pytest.mark.parametrize(("stored_origin", "committed_origin"), [(0, 0), (0, 5), (5, 0)])
def test_the_store_is_believed_where_the_life_is_not_known(
    stored_origin: int, committed_origin: int
) -> None:
    assert reconciled(STORED, stored_origin, Snapshot(99), committed_origin) is STORED
