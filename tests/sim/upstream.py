"""The simulated partition: a log with holes, that grows, is compacted and truncated, and whose next
leader may lack its last records.

The checkers judge by `records`, which is all that the log has. If it has lost records that the
window still knows of, then what is at their offsets now is not judged until the window has
forgotten them (`found_out`). Or until they are back: a former leader may bring them before anybody
has looked, and then nothing of them was lost.
"""

from __future__ import annotations

from dispatcher.core.model import Key
from keyway.commit_metadata.core.limits import OFFSET_MAX


class Log:
    def __init__(self) -> None:
        self.stored: dict[int, Key] = {}  # as a fetch finds it
        self.records: dict[int, Key] = {}
        self.start = 0
        self.end = 0
        self.gone: set[int] = set()  # compacted, truncated or lost: nobody is owed them any more
        self.of_key: dict[bytes, list[int]] = {}
        self.keyless: list[int] = []
        self.epochs = [(0, 0)]  # of the leaders, and where each begins
        # What the last election has taken from the log, or would have: records, epochs, end.
        self.former: tuple[dict[int, Key], list[tuple[int, int]], int] | None = None
        self.parted = 0  # where that log parts from this one
        self.lost_from: int | None = None  # from there on the window knows of lost records
        # The log that the window knows while it does not know of a loss: epochs, end.
        self.known: tuple[list[tuple[int, int]], int] | None = None

    @property
    def epoch(self) -> int:
        return self.epochs[-1][0]

    def append(self, key: Key) -> int:
        offset = self.end
        self.stored[offset] = key
        if self.lost_from is None:
            self._show(offset, key)
        else:  # A window that does not know its epochs may never find out, and deliver it.
            self.gone.add(offset)
        self.end += 1
        return offset

    def append_hole(self, count: int) -> None:
        self.end += count

    def remove(self, offset: int) -> None:
        """Compaction."""
        self.stored.pop(offset, None)
        self._hide(offset)

    def truncate(self, start: int) -> None:
        for offset in [o for o in self.stored if o < start]:
            self.remove(offset)
        if self.former is not None and start > self.parted:
            self.former = None  # nothing of it is left
        self.start = max(self.start, start)
        self.end = max(self.end, start)
        self._forget_epochs()

    def _forget_epochs(self) -> None:
        """A broker knows the epochs of what its log has, also one that leads again."""
        begun = [(epoch, max(first, self.start)) for epoch, first in self.epochs]
        behind = [first for _, first in begun[1:]] + [self.end + 1]
        self.epochs = [
            one for one, next_first in zip(begun, behind, strict=True) if next_first > self.start
        ]

    def elect(self, end: int) -> None:
        """Another leader, which has the log up to `end`."""
        self._remember()
        self.former = (self._from(end), self.epochs[:], self.end)
        self.parted = end
        self._lead(end, self.epoch + 1)

    def elect_former(self) -> int:
        """The leader of before the last election again, which was away meanwhile. Returns where its
        log parts from the one until now.
        """
        assert self.former is not None
        self._remember()
        stored, epochs, end = self.former
        parted, epoch = self.parted, self.epoch + 1
        self.former = (self._from(parted), self.epochs[:], self.end)
        self._lead(parted, epoch)
        self.stored.update(stored)
        self.end = end
        self.epochs = [*epochs, (epoch, end)]
        self._forget_epochs()
        return parted

    def _remember(self) -> None:
        if self.lost_from is None:
            self.known = (self.epochs[:], self.end)

    def _from(self, offset: int) -> dict[int, Key]:
        return {one: key for one, key in self.stored.items() if one >= offset}

    def _lead(self, end: int, epoch: int) -> None:
        for offset in [o for o in self.stored if o >= end]:
            self.remove(offset)
        self.end = end
        self.epochs = [(before, first) for before, first in self.epochs if first < end]
        self.epochs.append((epoch, end))

    def read(self, start: int, end: int) -> tuple[list[int], list[Key]]:
        offsets = [offset for offset in range(start, end) if offset in self.stored]
        return offsets, [self.stored[offset] for offset in offsets]

    def next_to(self, start: int, end: int) -> int:
        """The first record of [start, end): the cache takes a hole before it to its batch. `start`
        if there is none.
        """
        return min([offset for offset in range(start, end) if offset in self.stored], default=start)

    def epoch_at(self, offset: int) -> int:
        return epoch_in(self.epochs, max(offset, self.start))

    def known_epoch_at(self, offset: int) -> int:
        """Of the record that the window knows there."""
        epochs = self.epochs if self.known is None else self.known[0]
        return epoch_in(epochs, max(offset, self.start))

    def end_of(self, epoch: int) -> tuple[int, int]:
        """As a broker knows it: the end of the log's records of no later epoch, and the last such
        epoch there is.
        """
        return end_in(self.epochs, self.end, epoch)

    def lost(self, offset: int) -> None:
        """The window knows of records from `offset` on that are not in the log."""
        self.lost_from = offset if self.lost_from is None else min(offset, self.lost_from)
        for known in [o for o in self.records if o >= self.lost_from]:
            self._hide(known)

    def cut(self, offset: int) -> None:
        """The window forgets all from `offset` on, also what is in the log, or comes back."""
        self.lost(offset)
        if self.known is not None:
            epochs, end = self.known
            self.known = (epochs, min(end, offset))

    def window_end(self) -> int:
        """The window has forgotten what was behind it, also before it has found out all."""
        return OFFSET_MAX if self.known is None else self.known[1]

    def whole_to(self) -> int | None:
        """Behind the last record of the window's log that is in this one: two records of the same
        offset and epoch are one, and so are all before them. None: nothing was lost.
        """
        offset = self.lost_from
        if offset is None or self.known is None:
            return offset
        epochs, end = self.known
        while offset < min(end, self.end):
            if epoch_in(epochs, max(offset, self.start)) != self.epoch_at(offset):
                break
            offset += 1
        return offset

    def found_out(self) -> int | None:
        """The window has forgotten them. Returns from where on; None: there were none."""
        first, lost_from = self.whole_to(), self.lost_from
        self.lost_from = self.known = None
        if first is None or lost_from is None:
            return None
        back = {offset for offset in range(lost_from, first) if offset in self.stored}
        self.gone = {offset for offset in self.gone if offset < first and offset not in back}
        self.keyless = [offset for offset in self.keyless if offset < lost_from]
        for offsets in self.of_key.values():
            offsets[:] = [offset for offset in offsets if offset < lost_from]
        for offset in sorted(self.stored):
            if offset >= lost_from:
                self._show(offset, self.stored[offset])
        return first

    def _show(self, offset: int, key: Key) -> None:
        self.records[offset] = key
        if key is None:
            self.keyless.append(offset)
        else:
            self.of_key.setdefault(key, []).append(offset)

    def _hide(self, offset: int) -> None:
        if self.records.pop(offset, self) is not self:
            self.gone.add(offset)


def epoch_in(epochs: list[tuple[int, int]], offset: int) -> int:
    return max([epoch for epoch, first in epochs if first <= offset], default=-1)


def end_in(epochs: list[tuple[int, int]], log_end: int, epoch: int) -> tuple[int, int]:
    end = min([first for later, first in epochs if later > epoch], default=log_end)
    return end, max([one for one, _ in epochs if one <= epoch], default=epoch)
