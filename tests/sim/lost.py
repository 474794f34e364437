"""A log that has lost records which its window knows of: what the outside knows then."""

from __future__ import annotations

from dispatcher.core.epochs import epoch_at, parted
from dispatcher.core.steps import Snapshot
from dispatcher.core.stored.cut import Cut
from dispatcher.core.stored.snapshot import known_end
from tests.sim.checkers import Checkers, CheckFailure
from tests.sim.filed import held_back, settled_of
from tests.sim.upstream import Log


def diverged(log: Log, position: int, epoch: int) -> Cut | None:
    """The answer of a broker to a fetch with the epoch of the last record that was read."""
    if epoch < 0 or position < log.start:
        return None
    end, known = log.end_of(epoch)
    return Cut(end, known) if known < epoch or end < position else None


def lost_from(log: Log, snapshot: Snapshot) -> int | None:
    """From where on the snapshot knows of records that the log has lost."""
    if not snapshot.epochs:
        return log.end if log.end < known_end(snapshot) else None
    end, last = log.end_of(snapshot.epoch)
    for epoch, start in snapshot.epochs:
        if epoch > last:
            end = min(end, start if start >= 0 else snapshot.cursor)
    return end if end < known_end(snapshot) else None


def cut_there(log: Log, checkers: Checkers, end: int) -> bool:
    """Whether the window may forget all from `end` on: no record before the loss, or, if it does
    not know where its epochs began, all behind the cursor.
    """
    lost = log.lost_from
    if lost is None:
        return False
    between = [offset for offset in range(end, lost) if offset in log.records]
    return not between or end == checkers.cursor


def kept_to(found: Snapshot, cut: Cut | None, log_end: int) -> int:
    """Up to where a window that is loaded with `cut` goes by what it knew."""
    return log_end if cut is None else parted(found.epochs, cut.end, cut.epoch, found.cursor)[0]


def forget(checkers: Checkers, first: int, loaded: Snapshot) -> None:
    """The window was loaded and knows nothing of the lost records from `first` on; what is at their
    offsets now are others, unless the leader that had them is back. Whoever set a position without
    an epoch may have settled some of them.
    """

    known_of = settled_of(loaded).union(held_back(loaded))

    def is_another(offset: int) -> bool:
        same = loaded.epochs and epoch_at(loaded.epochs, offset) == checkers.log.epoch_at(offset)
        return offset >= first and not (same and offset in known_of)

    checkers.settled = {offset for offset in checkers.settled if not is_another(offset)}
    for known in (
        checkers.causes,
        checkers.deliveries,
        checkers.failed,
        checkers.not_before_ms,
    ):
        for offset in [offset for offset in known if is_another(offset)]:
            del known[offset]
    for hold in list(checkers.holds):
        if is_another(hold.offset):
            checkers.holds.pop(hold.offset)
    for offset in settled_of(loaded):
        if is_another(offset):
            if loaded.epochs:
                raise CheckFailure("Log", f"{offset} of {loaded} is lost from {first} on")
            checkers.settled.add(offset)
            checkers.cause(offset, "set without an epoch")
    checkers.back_to(first)
    checkers.cursor = loaded.cursor
