"""A log that has lost records which its window knows of: what the outside knows then."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dispatcher.core.epochs import NOT_KNOWN, epoch_at, parted
from dispatcher.core.model import RecordsRead
from dispatcher.core.steps import Snapshot
from dispatcher.core.stored.cut import Cut
from dispatcher.core.stored.snapshot import known_end
from keyway.commit_metadata.core.limits import OFFSET_MAX
from tests.sim.checkers import ANYWHERE, Checkers, CheckFailure
from tests.sim.filed import settled_of
from tests.sim.upstream import Log, end_in

if TYPE_CHECKING:
    from tests.sim.window import Window

NOTHING = Snapshot(0)  # was taken up


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
    return _parts(log.epochs, log.end, snapshot)


def _parts(epochs: list[tuple[int, int]], log_end: int, snapshot: Snapshot) -> int | None:
    """From where on the snapshot, which names epochs, is not of the log that has these."""
    end, left = log_end, list(snapshot.epochs)
    while left:  # as a window that asks with its last one, and then with the one before
        their_end, last = end_in(epochs, log_end, left[-1][0])
        end = min(end, their_end)
        if left[-1][0] == last:
            break
        while left and left[-1][0] > last:
            _, start = left.pop()
            end = min(end, start if start >= 0 else snapshot.cursor)
    return end if end < known_end(snapshot) else None


def know_lost(log: Log, found: Snapshot, cut: Cut | None, *, regressed: bool) -> None:
    """The window is loaded, from `found`. What was found out may be gone with the store, or set
    back (`regressed`): then the window knows the log of before, also if there was a loss since.
    """
    lost = lost_from(log, found)
    of_before = lost is not None and log.lost_from is None
    if regressed and log.known is not None and found.epochs:
        of_before = _parts(*log.known, found) is not None
    if of_before:
        complete = all(start >= 0 for _, start in found.epochs)
        log.known = (list(found.epochs), known_end(found)) if complete else None
    if lost is not None:
        log.lost(lost)
    if cut is not None:
        end, _ = parted(found.epochs, cut.end, cut.epoch, found.cursor)
        if end < known_end(found):
            log.cut(end)


def cut_there(log: Log, checkers: Checkers, end: int) -> bool:
    """Whether the window may forget all from `end` on: no record before the loss, or, if it does
    not know where its epochs began, all behind the cursor.
    """
    lost = log.whole_to()
    if lost is None:
        return False
    between = [offset for offset in range(end, lost) if offset in log.stored]
    return not between or end == checkers.cursor


def may_cut(window: Window, end: int) -> bool:
    """Whether the window may forget all from `end` on. Of an unreliable one the cursor is not
    persisted, but told by what it has handed out.
    """
    log, checkers, reliable = window.log, window.checkers, window.world.policy.reliable
    if cut_there(log, checkers, end) or in_doubt(log, checkers, window.committed.taken, end):
        return True
    return log.lost_from is not None and not reliable and window.unreliable.may_be_cursor(end)


def in_doubt(log: Log, checkers: Checkers, taken: Snapshot, end: int) -> bool:
    """Whether the log has records from `end` on that are of a later epoch than those behind the
    position that was `taken` up without epochs. The window forgets what it knows of them: no more
    than that position said, and it has handed none of them out.
    """
    behind = {offset for offset in checkers.settled | checkers.deliveries.keys() if offset >= end}
    later = log.epoch_at(log.next_to(end, log.end)) > log.epoch_at(
        log.next_to(taken.cursor, log.end)
    )
    return later and behind <= settled_of(taken) and not behind & checkers.deliveries.keys()


def kept_to(found: Snapshot, cut: Cut | None) -> int:
    """Up to where a window that is loaded with `cut` goes by what it knew."""
    return OFFSET_MAX if cut is None else parted(found.epochs, cut.end, cut.epoch, found.cursor)[0]


def found_out(log: Log, checkers: Checkers) -> int | None:
    """As Log.found_out. What is back was not judged while it was away, nor where members joined
    then: their limits stand until the window is loaded.
    """
    lost_from, first = log.lost_from, log.found_out()
    if lost_from is not None and first is not None and lost_from < first:
        for offset in checkers.settled & set(range(lost_from, first)):
            checkers.causes.setdefault(offset, "settled while it was lost")
        checkers.joined = dict.fromkeys(checkers.joined, ANYWHERE)
        checkers.back_to(lost_from)
    return first


def untold(loaded: Snapshot, taken: Snapshot) -> range:
    """The offsets that the window may take for settled of which no epoch tells. Whoever set a
    position without an epoch may have settled some. So may a commit of an earlier version, up to
    its cursor: it names an epoch, not its start. If the window has read on behind the position that
    it took up last, `taken`, what that position said counts as of the first epoch there.
    """
    if not loaded.epochs:
        return range(OFFSET_MAX)
    _, start = loaded.epochs[0]
    if start == NOT_KNOWN:
        return range(loaded.cursor)
    return range(taken.cursor, known_end(taken)) if start >= taken.cursor else range(0)


def _is_same_hole(log: Log, offset: int, loaded: Snapshot) -> bool:
    """Two logs that have an offset of the same epoch have the same there: a former leader brings
    holes back as well.
    """
    return offset not in log.stored and epoch_at(loaded.epochs, offset) == log.epoch_at(offset)


def forget(checkers: Checkers, first: int, loaded: Snapshot, taken: Snapshot) -> None:
    """The window was loaded and knows nothing of the lost records from `first` on; what is at their
    offsets now are others, and none of them is settled unless that is `untold`. What retention has
    taken is settled, whatever was there.
    """
    checkers.settled = {offset for offset in checkers.settled if offset < first}
    for known in (
        checkers.causes,
        checkers.deliveries,
        checkers.failed,
        checkers.not_before_ms,
    ):
        for offset in [offset for offset in known if offset >= first]:
            del known[offset]
    checkers.holds.forget_from(first)
    for offset in settled_of(loaded):
        if offset >= max(first, checkers.log.start):
            if (offset, checkers.log.epoch_at(offset)) in checkers.ended:
                continue  # `back_again`: log and store were both set back
            same = _is_same_hole(checkers.log, offset, loaded)
            if not same and offset not in untold(loaded, taken):
                raise CheckFailure("Log", f"{offset} of {loaded} is lost from {first} on")
            checkers.settled.add(offset)
            checkers.cause(offset, "set without an epoch")
    checkers.back_to(first)
    checkers.cursor = loaded.cursor


def judge_read(checkers: Checkers, read: RecordsRead) -> None:
    """The window reads on under a later leader, which has nothing but holes where it has lost
    records: then the window need not find out about them, unless it knows something behind that.
    """
    log = checkers.log
    first = log.whole_to()
    if first is None or log.known is None:
        return
    behind = read.offsets[0] if read.offsets else read.end
    holes = not any(first <= offset < behind for offset in log.stored)
    later = read.epoch == log.epoch_at(behind) > log.known_epoch_at(first)
    known = checkers.settled | checkers.deliveries.keys()
    if holes and later and max(known, default=-1) < behind:
        found_out(log, checkers)
        forget(checkers, first, Snapshot(checkers.cursor), NOTHING)


def back_again(checkers: Checkers, loaded: Snapshot) -> None:
    """A commit of before a loss was found out tells of records that are back since: the same ones,
    and they were settled.
    """
    log = checkers.log
    for offset in settled_of(loaded) & log.records.keys():
        if offset not in checkers.causes and (offset, log.epoch_at(offset)) in checkers.ended:
            checkers.cause(offset, "settled before it was lost")
            checkers.settled.add(offset)
