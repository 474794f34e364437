"""A window whose log has lost its tail: by an unclean election, or because a broker lost its power
before it had written what it had acknowledged.

All that is known of the lost records is forgotten. Other records take their offsets, with other
keys, and are new to the group. What is known of the records that the log has kept stays.
"""

from __future__ import annotations

from dispatcher.core.steps import LeaseState, Snapshot


def cut(snapshot: Snapshot, end: int) -> Snapshot:
    """The window as far as the log is kept: before `end`."""
    leases: list[LeaseState] = []
    for lease in snapshot.leases:
        kept = [offset for offset in lease.offsets if offset < end]
        if kept:
            leases.append(
                LeaseState(
                    lease.lease_id, lease.member_id, lease.session_id, lease.deadline_ms, kept
                )
            )
    return Snapshot(
        min(snapshot.cursor, end),
        [(low, min(high, end - 1)) for low, high in snapshot.settled if low < end],
        leases,
        [retry for retry in snapshot.retries if retry.offset < end],
        min(snapshot.front, end),
    )
