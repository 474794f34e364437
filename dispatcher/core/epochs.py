"""The leader epochs of the records that a window has read: (epoch, the offset where it begins).

Epochs ascend along a log, so both numbers do. The first may begin at NOT_KNOWN: a commit of an
earlier version names one epoch, and not where it began.

A leader that is asked about an epoch it does not know answers with the last one before, and where
that ends in its own log. If two logs have parted twice, the window's log may have left that epoch
earlier than the leader's: what it read since is of other epochs, and believing it up to the
leader's end would take other records for those that the group has settled. So the window looks up
the answer in its own epochs, as a follower in Kafka does, and asks again with the epoch that is
left, until the leader knows it.
"""

from __future__ import annotations

from dispatcher.core.limits import EPOCHS_MAX

Epochs = tuple[tuple[int, int], ...]

NOT_KNOWN = -1


def last_epoch(epochs: Epochs) -> int:
    """No record that was read is of a later one; -1 = not known."""
    return epochs[-1][0] if epochs else NOT_KNOWN


def epoch_at(epochs: Epochs, offset: int) -> int:
    """The epoch of the record at `offset`, or a later one if that is not known; -1: no word."""
    for epoch, start in reversed(epochs):
        if start <= offset:
            return epoch
    return epochs[0][0] if epochs else NOT_KNOWN


def noted(epochs: Epochs, epoch: int, start: int) -> Epochs:
    """A record of `epoch` was read, the first one at `start` or behind it. The same object if that
    is nothing new. Begun later: of records that were read once and are forgotten.
    """
    if epochs and epochs[-1][0] == epoch and epochs[-1][1] < start:
        return epochs
    kept = tuple([one for one in epochs if one[1] < start])
    if kept and kept[-1][0] >= epoch:
        return kept
    grown = (*kept, (epoch, start))
    if len(grown) > EPOCHS_MAX:
        # The second goes into the third. A record that counts as of a later epoch than its own may
        # come again; one that counts as of an earlier epoch may be taken for another.
        grown = (grown[0], (grown[2][0], grown[1][1]), *grown[3:])
    return grown


def read_on(epochs: Epochs, epoch: int, start: int, read_to: int, known_end: int) -> Epochs:
    """The window has read from `start` on, records of `epoch`; it knew something up to `known_end`.

    Records that are read again are of an earlier epoch, perhaps, than others that the window knows.
    But if it knows no epoch at all, as when somebody has set its position, what it knows counts as
    of the first one that it reads: if the log has a later one there, those records come again.
    """
    if not epochs and read_to > start:
        return noted(epochs, epoch, start)
    return noted(epochs, epoch, known_end) if read_to > known_end else epochs


def parted(epochs: Epochs, end: int, epoch: int, cursor: int) -> tuple[int, Epochs]:
    """Where the window's log leaves the leader's, and the epochs before that. The leader has said
    that its records of no later epoch than `epoch` (-1: no word) end at `end`.

    If the window does not know where its later epochs began, it keeps what is before its cursor
    alone: the rest comes again, and nothing is lost.
    """
    if epoch < 0:
        return end, ()
    kept = tuple([one for one in epochs if one[0] <= epoch])
    later = epochs[len(kept) :]
    if later:
        start = later[0][1]
        end = min(end, cursor if start == NOT_KNOWN else start)
    kept = tuple([one for one in kept if one[1] < end])
    return end, kept or ((epoch, NOT_KNOWN),)
