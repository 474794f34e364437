"""Times of a stored window that are further ahead than a group's policy allows: a node whose clock
was ahead has written them. They would hold up their keys until the clock here has come so far.
"""

from __future__ import annotations

from dataclasses import replace

from dispatcher.core.model import Policy
from dispatcher.core.steps import RetryState, Snapshot

_TIMED = (RetryState.WAITING, RetryState.DEAD_LETTER)


def brought_near(snapshot: Snapshot, policy: Policy, now_ms: int) -> Snapshot:
    """No lease ends, and no record waits, later than if that had been written now."""
    lock_ms, wait_ms = now_ms + policy.lock_duration_ms, now_ms + policy.backoff_max_ms
    leases = [
        lease if lease.deadline_ms <= lock_ms else replace(lease, deadline_ms=lock_ms)
        for lease in snapshot.leases
    ]
    retries = [
        retry
        if retry.state not in _TIMED or retry.due_ms <= wait_ms
        else replace(retry, due_ms=wait_ms)
        for retry in snapshot.retries
    ]
    return replace(snapshot, leases=leases, retries=retries)
