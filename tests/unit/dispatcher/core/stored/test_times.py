"""What a node whose clock was ahead has written holds no key up for longer than the policy."""

from __future__ import annotations

from dispatcher.core.model import LeaseId, MemberId, Policy, Reason, SessionId
from dispatcher.core.steps import LeaseState, RetryNoted, RetryState, Snapshot
from dispatcher.core.stored.times import brought_near

NOW_MS, HOUR_MS = 1_000_000, 3_600_000
POLICY = Policy(lock_duration_ms=30_000, backoff_max_ms=60_000)
M1, S1 = MemberId("m1"), SessionId("s1")


def lease(number: int, deadline_ms: int) -> LeaseState:
    return LeaseState(LeaseId(number), M1, S1, deadline_ms, [number])


def retry(offset: int, due_ms: int, state: RetryState) -> RetryNoted:
    return RetryNoted(offset, 1, due_ms, state, Reason.RELEASED, M1)


def test_times_that_are_too_far_ahead_are_brought_near() -> None:
    ahead = NOW_MS + HOUR_MS
    stored = Snapshot(
        1,
        leases=[lease(1, ahead), lease(2, NOW_MS + 5)],
        retries=[
            retry(3, ahead, RetryState.WAITING),
            retry(4, ahead, RetryState.DEAD_LETTER),
            retry(5, ahead, RetryState.PARKED),
            retry(6, NOW_MS - 5, RetryState.WAITING),
        ],
        front=1,
        epochs=((1, 0),),
    )
    near = brought_near(stored, POLICY, NOW_MS)
    assert [each.deadline_ms - NOW_MS for each in near.leases] == [30_000, 5]
    assert [each.due_ms - NOW_MS for each in near.retries] == [60_000, 60_000, HOUR_MS, -5]
    assert (near.front, near.epochs, near.leases[0].offsets) == (1, ((1, 0),), [1])


def test_what_is_within_the_policy_stays() -> None:
    stored = Snapshot(
        1, leases=[lease(1, NOW_MS + 30_000)], retries=[retry(3, NOW_MS, RetryState.WAITING)]
    )
    assert brought_near(stored, POLICY, NOW_MS) == stored
