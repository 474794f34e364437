"""Times of a stored window that are further ahead than a group's policy allows: a node whose clock
was ahead has written them. They would hold up their keys until the clock here has come so far.
"""

from __future__ import annotations

from dataclasses import replace

from dispatcher.core.model import Policy
from dispatcher.core.steps import LeaseState, RetryNoted, RetryState, Snapshot

_TIMED = (RetryState.WAITING, RetryState.DEAD_LETTER)


def brought_near(snapshot: Snapshot, policy: Policy, now_ms: int) -> Snapshot:
    """No lease ends, and no record waits, later than if that had been written now."""
    lock_ms, wait_ms = now_ms + policy.lock_duration_ms, now_ms + policy.backoff_max_ms
    leases = [
        lease
        if lease.deadline_ms <= lock_ms
        else LeaseState(lease.lease_id, lease.member_id, lease.session_id, lock_ms, lease.offsets)
        for lease in snapshot.leases
    ]
    retries = [
        _due(retry, wait_ms) if retry.state in _TIMED and retry.due_ms > wait_ms else retry
        for retry in snapshot.retries
    ]
    return replace(snapshot, leases=leases, retries=retries)


def _due(retry: RetryNoted, due_ms: int) -> RetryNoted:
    return RetryNoted(
        retry.offset, retry.deliveries, due_ms, retry.state, retry.reason, retry.member_id
    )
