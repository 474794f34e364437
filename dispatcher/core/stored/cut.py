"""A window whose log has lost its tail: by an unclean election, or because a broker lost its power
before it had written what it had acknowledged.

All that is known of the lost records is forgotten. Other records take their offsets, with other
keys, and are new to the group. What is known of the records that the log has kept stays.

Other records may have taken the offsets before anybody looks. They are told by their leader epoch
(KIP-320): each leader of a partition has a higher one than those before, so epochs ascend along a
log, and the window keeps those that it has read. Kafka compares that with its log in every
fetch (`LastFetchedEpoch`), and says where the two logs part; the window looks that up in its own
epochs (epochs.py). A window that was loaded reads again records that it knows; if one of them has a
higher epoch than it had, they part there.
"""

from __future__ import annotations

from dataclasses import dataclass

from dispatcher.core.epochs import parted
from dispatcher.core.steps import LeaseState, Snapshot


@dataclass(frozen=True, slots=True)
class Cut:
    """The log is another one than the one that was read: its records of no later leader epoch than
    `epoch` (-1: not known) end at `end`. `origin`: of the incarnation that has found it.
    """

    end: int
    epoch: int
    origin: int = 0

    def concerns(self, origin: int) -> bool:
        """A later incarnation does not know the log of before: another node has cut it, or somebody
        has set its position.
        """
        return origin <= self.origin


def cut_at(snapshot: Snapshot, cut: Cut) -> Snapshot:
    """The window as far as its log is kept."""
    end, epochs = parted(snapshot.epochs, cut.end, cut.epoch, snapshot.cursor)
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
        epochs,
    )
