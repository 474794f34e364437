"""Records aside: unsettled, and so far behind the others that they left the window's rings.

A record that is parked, or waits, or is in flight for long would hold the rings for as long as it
is not settled (window.py). So it is put aside, and the front of the rings passes it. All offsets
between the cursor and the front that are not aside are settled: the settled ones cost nothing, here
and in the store, however far the others go on.

- Bits of the offsets aside, by stretches of STRETCH_OFFSETS: for the cursor, for the settled ranges
  between them, and for the store, which keeps a stretch as one value.
- Per key the list of its offsets aside (`Backlog`), in its order and ahead of those in the rings: 8
  bytes for each record of a backlog, however long.
- The queue and the lease of those few that anybody asks for by their offset: the first one of each
  key, and those that are in flight or were delivered before.

After a restart the offsets aside are known, and their keys are not: they are read again, each where
it is, before the rings are (reading.py).
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence

from librt.vecs import append, pop, vec
from mypy_extensions import i64

from dispatcher.core.ascending import place_of
from dispatcher.core.limits import STRETCH_OFFSETS, STRETCHES_MAX
from dispatcher.core.records.keys import NO_OFFSET, Backlog, KeyQueue
from dispatcher.core.records.leases import Lease
from dispatcher.core.records.offset_bits import lowest, packed
from dispatcher.core.steps import AsideSet

_STRETCH_BYTES = STRETCH_OFFSETS // 8
_ORDER_SPARE = 64


class Aside:
    def __init__(self) -> None:
        self.count = 0  # offsets
        self.keys = 0  # with records aside that were read; a record without a key counts as one
        self.queues: dict[int, KeyQueue] = {}  # of the offsets named above, once they are read
        self.leases: dict[int, Lease] = {}
        self.dirty: set[int] = set()  # stretches changed since the last `take_dirty`
        self._bits: dict[int, int] = {}  # by stretch; none is 0
        # The stretches, ascending; some of them may be settled. Those before `_order_at` are.
        self._order: list[int] = []
        self._order_at = 0

    def __repr__(self) -> str:
        return f"<aside {self.count} in {len(self._bits)}>"

    def has_room(self, offsets_max: int) -> bool:
        return self.count < offsets_max and len(self._bits) < STRETCHES_MAX

    def part_of(self, offsets_max: int) -> float:
        """How much of the room is taken; 1 if there is none."""
        if offsets_max == 0:
            return 0.0 if self.count == 0 else 1.0
        return max(self.count / offsets_max, len(self._bits) / STRETCHES_MAX)

    # ------------------------------------------------------------------------------------- the bits

    def contains(self, offset: int) -> bool:
        bits = self._bits.get(offset // STRETCH_OFFSETS, 0)
        return (bits >> (offset % STRETCH_OFFSETS)) & 1 == 1

    def add(self, offset: int) -> None:
        """Adds a record behind all others."""
        number = offset // STRETCH_OFFSETS
        bits = self._bits.get(number, 0)
        if bits == 0:
            if not self._order or self._order[-1] != number:
                self._order.append(number)
            self._order_at = min(self._order_at, len(self._order) - 1)
        self._bits[number] = bits | (1 << (offset % STRETCH_OFFSETS))
        self.count += 1
        self.dirty.add(number)

    def add_all(self, ranges: Sequence[tuple[int, int]]) -> None:
        """Adds records behind all others, in ascending ranges [first, end). A window may be loaded
        with a million of them in one step, so the bits of a stretch are put together as bytes.
        """
        number = -1
        data = bytearray()
        for first, end in ranges:
            for offset in range(first, end):
                if offset // STRETCH_OFFSETS != number:
                    self._add_bits(number, data)
                    number = offset // STRETCH_OFFSETS
                    data = bytearray(_STRETCH_BYTES)
                within = offset % STRETCH_OFFSETS
                data[within >> 3] |= 1 << (within & 7)
        self._add_bits(number, data)

    def _add_bits(self, number: int, data: bytearray) -> None:
        bits = int.from_bytes(data, "little")
        if bits:
            self.add(number * STRETCH_OFFSETS + lowest(bits))
            self.count += bits.bit_count() - 1
            self._bits[number] |= bits

    def clear(self, offset: int) -> None:
        number = offset // STRETCH_OFFSETS
        bits = self._bits[number] & ~(1 << (offset % STRETCH_OFFSETS))
        self.count -= 1
        self.dirty.add(number)
        if bits:
            self._bits[number] = bits
            return
        del self._bits[number]
        if len(self._order) > 2 * len(self._bits) + _ORDER_SPARE:
            self._order = [one for one in self._order if one in self._bits]
            self._order_at = 0

    def first(self) -> int:
        """NO_OFFSET: nothing is aside."""
        while self._order_at < len(self._order):
            number = self._order[self._order_at]
            bits = self._bits.get(number, 0)
            if bits:
                return number * STRETCH_OFFSETS + lowest(bits)
            self._order_at += 1
        return NO_OFFSET

    def first_from(self, offset: int) -> int:
        """The first one at or behind `offset`; NO_OFFSET: none."""
        number = offset // STRETCH_OFFSETS
        within = self._bits.get(number, 0) >> (offset % STRETCH_OFFSETS)
        if within:
            return offset + lowest(within)
        for at in range(bisect_left(self._order, number + 1), len(self._order)):
            bits = self._bits.get(self._order[at], 0)
            if bits:
                return self._order[at] * STRETCH_OFFSETS + lowest(bits)
        return NO_OFFSET

    def bits_from(self, first: int) -> list[tuple[int, int]]:
        """The stretches from that of `first` on, ascending, each with its bits; below `first` they
        are 0. O(stretches).
        """
        number = first // STRETCH_OFFSETS
        within = self._bits.get(number, 0) >> (first % STRETCH_OFFSETS) << (first % STRETCH_OFFSETS)
        found = [(number, within)] if within else []
        for at in range(bisect_left(self._order, number + 1), len(self._order)):
            bits = self._bits.get(self._order[at], 0)
            if bits:
                found.append((self._order[at], bits))
        return found

    def between(self, first: int, end: int) -> list[int]:
        """The offsets in [first, end), ascending. O(their number)."""
        found: list[int] = []
        for at in range(bisect_left(self._order, first // STRETCH_OFFSETS), len(self._order)):
            number = self._order[at]
            base = number * STRETCH_OFFSETS
            if base >= end:
                break
            bits = self._bits.get(number, 0)
            if base < first:
                bits = bits >> (first - base) << (first - base)
            while bits:
                low = lowest(bits)
                if base + low >= end:
                    break
                found.append(base + low)
                bits &= bits - 1
        return found

    def stretches(self, end: int) -> list[tuple[int, int]]:
        """The stretches with offsets below `end`, ascending, and how many each has of those."""
        found: list[tuple[int, int]] = []
        for at in range(self._order_at, len(self._order)):
            number = self._order[at]
            below = end - number * STRETCH_OFFSETS
            if below <= 0:
                break
            bits = self._bits.get(number, 0)
            if below < STRETCH_OFFSETS:
                bits &= (1 << below) - 1
            if bits:
                found.append((number, bits.bit_count()))
        return found

    def settled_ranges(self, cursor: int, front: int, ranges_max: int) -> list[tuple[int, int]]:
        """The offsets between cursor and front that are not here, in ascending, disjoint inclusive
        ranges. O(records aside) if they are at most `ranges_max`. If there are more, ranges that
        begin and end in the same stretch are left out: O(stretches).
        """
        exact = self.count <= ranges_max
        ranges: list[tuple[int, int]] = []
        expected = cursor
        for at in range(self._order_at, len(self._order)):
            number = self._order[at]
            base = number * STRETCH_OFFSETS
            bits = self._bits.get(number, 0)
            while bits:
                offset = base + lowest(bits)
                if offset > expected:
                    ranges.append((expected, offset - 1))
                if not exact:
                    expected = base + bits.bit_length()
                    break
                expected = offset + 1
                bits &= bits - 1
        if expected < front:
            ranges.append((expected, front - 1))
        return ranges

    def take_dirty(self) -> list[AsideSet]:
        """The changed stretches, each as a whole, so repeating one changes nothing."""
        if not self.dirty:
            return []
        changed = [
            AsideSet(stretch=number, data=packed(self._bits.get(number, 0)))
            for number in sorted(self.dirty)
        ]
        self.dirty = set()
        return changed

    # ----------------------------------------------------------------------------------- the queues

    def append(self, queue: KeyQueue, offset: int, after: int) -> None:
        """Puts `offset` behind the backlog of its key; `after`: the next of the key in the rings,
        or NO_OFFSET.
        """
        backlog = queue.backlog
        if backlog is None:
            backlog = queue.backlog = Backlog()
            self.keys += 1
        backlog.offsets = append(backlog.offsets, offset)
        backlog.after = after
        if queue.head == offset:
            self.queues[offset] = queue

    def followed(self, queue: KeyQueue, offset: int) -> None:
        """`offset`, the first of the key in the rings, comes behind all that is aside."""
        backlog = queue.backlog
        assert backlog is not None, f"nothing of {queue!r} is aside"
        backlog.after = offset

    def unlink(self, queue: KeyQueue, offset: int) -> None:
        """Takes `offset` out of its key: mostly the first one."""
        backlog = queue.backlog
        assert backlog is not None, f"{offset} of {queue!r} is not aside"
        self.queues.pop(offset, None)
        offsets = backlog.offsets
        if queue.head == offset:
            backlog.at += 1
            if backlog.at < len(offsets):
                queue.head = offsets[backlog.at]
                self.queues[queue.head] = queue
                if backlog.at * 2 > len(offsets):
                    backlog.offsets = offsets[backlog.at :]
                    backlog.at = 0
            else:
                queue.head = backlog.after
                queue.backlog = None
                self.keys -= 1
        else:
            backlog.offsets, _ = pop(offsets, place_of(offsets, backlog.at, offset))
            if queue.tail == offset:
                queue.tail = backlog.offsets[-1]

    def leave_out(self, queue: KeyQueue) -> None:
        """Leaves out what is settled of a backlog whose first one is not. O(backlog)."""
        backlog = queue.backlog
        assert backlog is not None, f"nothing of {queue!r} is aside"
        left = [offset for offset in backlog.offsets[backlog.at :] if self.contains(offset)]
        backlog.offsets, backlog.at = vec[i64](left), 0
        if backlog.after == NO_OFFSET:
            queue.tail = left[-1]

    def after(self, queue: KeyQueue, offset: int) -> int:
        """The next of its key; NO_OFFSET: none."""
        backlog = queue.backlog
        assert backlog is not None, f"{offset} of {queue!r} is not aside"
        at = place_of(backlog.offsets, backlog.at, offset) + 1
        return backlog.offsets[at] if at < len(backlog.offsets) else backlog.after
