"""A window whose log has lost its tail."""

from __future__ import annotations

import pytest

from dispatcher.core.dispatcher import core_of
from dispatcher.core.model import LeaseId, MemberId, Policy, Reason, SessionId
from dispatcher.core.steps import LeaseState, RetryNoted, RetryState, Snapshot
from dispatcher.core.stored.cut import Cut, cut_at

M1, S1 = MemberId("m1"), SessionId("s1")


def lease(number: int, *offsets: int) -> LeaseState:
    return LeaseState(LeaseId(number), M1, S1, 9_000, list(offsets))


def parked(offset: int) -> RetryNoted:
    return RetryNoted(offset, 2, 0, RetryState.PARKED, Reason.REJECTED, M1)


def cut(snapshot: Snapshot, end: int) -> Snapshot:
    return cut_at(snapshot, Cut(end, 5))


STORED = Snapshot(
    10, [(12, 13), (20, 22)], [lease(3, 10, 11, 19), lease(4, 23)], [parked(16), parked(24)], 12
)


def test_what_is_known_of_lost_records_is_forgotten_and_all_else_stays() -> None:
    left = cut(STORED, 19)
    assert (left.cursor, left.settled, left.front) == (10, [(12, 13)], 12)
    assert left.leases == [lease(3, 10, 11)]
    assert left.retries == [parked(16)]


@pytest.mark.parametrize(
    ("end", "settled", "front"),
    [
        (25, [(12, 13), (20, 22)], 12),
        (21, [(12, 13), (20, 20)], 12),
        (13, [(12, 12)], 12),
        (12, [], 12),
        (11, [], 11),
    ],
)
def test_ranges_end_with_the_log(end: int, settled: list[tuple[int, int]], front: int) -> None:
    left = cut(STORED, end)
    assert (left.cursor, left.settled, left.front) == (10, settled, front)


def test_a_cursor_behind_the_end_goes_back_to_it() -> None:
    """All before it is settled, and what comes there is new to the group."""
    assert cut(STORED, 7) == Snapshot(7, epochs=((5, -1),))
    assert cut(Snapshot(9), 7) == Snapshot(7, epochs=((5, -1),)), "also from a commit"


@pytest.mark.parametrize("end", range(9, 27))
def test_what_is_left_is_a_window(end: int) -> None:
    core = core_of(Policy(), cut(STORED, end))
    core.check_invariants()
    assert core.snapshot() == cut(STORED, end)
