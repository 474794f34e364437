"""The state of a window that both the store and the commit in Kafka know.

As a rule the store is ahead: it has every step before the step is answered, and commits follow it.
It is behind when it came back with an older file, or when a replica took over that had not got that
far. Then a record counts as settled if either of the two says so.

If the two come from different incarnations of the window, only the later one counts. An incarnation
begins when the window is created: for the first time, rebuilt from the commit, or because an
operator set a position or the log has lost its tail. Its origin is the fence of that claim,
which only grows; the store keeps it, and so does the metadata of every commit. So an old commit
does not undo a position that was set, and neither does an old file of the store.

A commit of a later origin than the store's was made elsewhere, for a group without members here: by
another gateway, or from another cluster (offsets/committer.py). The window goes on from it, under
an origin that is not earlier: otherwise, with clocks that differ, the same commit would count as
later again and again.
"""

from __future__ import annotations

from dispatcher.core.epochs import last_epoch, noted
from dispatcher.core.steps import Snapshot
from dispatcher.core.stored.snapshot import state_of
from keyway.commit_metadata.core.bitmap import united


def reconciled(
    stored: Snapshot, stored_origin: int, committed: Snapshot, committed_origin: int
) -> Snapshot:
    """The state to go on with; `stored` itself if the commit adds nothing. Origin 0 = not known:
    the store alone counts.
    """
    if stored_origin == 0 or committed_origin < stored_origin:
        return stored
    return committed if overtakes(committed_origin, stored_origin) else merged(stored, committed)


def overtakes(committed_origin: int, origin: int) -> bool:
    """Whether a commit in Kafka counts more than the window of `origin`, which then may not write
    over it. Origin 0 = not known: the window counts, as in `reconciled`.
    """
    return 0 < origin < committed_origin


def merged(stored: Snapshot, committed: Snapshot) -> Snapshot:
    """Both in one. A record is settled if either says so; leases and retries are the store's, of
    the records that are left. `stored` itself if the commit adds nothing. Beside a store that is
    ahead a commit may still add holes of the log, which the store does not keep.
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
    known = min(stored.epoch, committed.epoch) >= 0
    epochs = stored.epochs
    for epoch, start in committed.epochs:
        if epoch > last_epoch(epochs):
            epochs = noted(epochs, epoch, start)
    return Snapshot(cursor, settled, leases, both.retries, epochs=epochs if known else ())
