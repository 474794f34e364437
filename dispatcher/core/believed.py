"""What to go on with when the store and the commit in Kafka both know a window.

The store is ahead as a rule: every step is there before it is answered, and commits follow it. It
is behind when it came back with an older file, or when a replica took over that had not got that
far. What either of them calls settled is settled then.

Not if they mean different lives of the window. One begins when the window is created: for the first
time, built again from the commit, or because a position was set by hand or made no sense any more.
The fence of that claim, which only grows, is the origin of the life; it stands in the store and in
the metadata of every commit. The later life alone counts: an old commit does not bring back what
was before a position was set, and neither does an old file of the store.
"""

from __future__ import annotations

from dispatcher.core.bitmap import united
from dispatcher.core.model import Snapshot
from dispatcher.core.snapshot import state_of


def believed(
    stored: Snapshot, stored_origin: int, committed: Snapshot, committed_origin: int
) -> Snapshot:
    """`stored` itself if the commit adds nothing to it. Origin 0 = not known: believe the store."""
    if stored_origin == 0 or committed_origin < stored_origin:
        return stored
    return committed if committed_origin > stored_origin else merged(stored, committed)


def merged(stored: Snapshot, committed: Snapshot) -> Snapshot:
    """Settled is what either calls so; leases and retries are the store's, of what is left. The
    `stored` one itself if nothing comes to it; of a store that is ahead that may be holes of the
    log, which it does not keep.
    """
    cursor = max(stored.cursor, committed.cursor)
    settled = [
        (max(low, cursor), high)
        for low, high in united([*stored.settled, *committed.settled])
        if high >= cursor
    ]
    if settled and settled[0][0] == cursor:
        cursor = settled.pop(0)[1] + 1
    if cursor == stored.cursor and settled == stored.settled:
        return stored
    both = state_of(Snapshot(cursor, settled, stored.leases, stored.retries)).snapshot()
    leases = [lease for lease in both.leases if lease.offsets]
    return Snapshot(cursor, settled, leases, both.retries)
