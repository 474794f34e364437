"""The offsets of one window: settled ones, the leases of the others, and the cursor.

From the front on everything lies in rings indexed by offset, so it costs the same for any mixture
of keys. For each offset in [front, read_position): no queue = settled, or invisible to consumers
(compacted, control, aborted), which is the same thing. Offsets from read_position on are known only
from a restored snapshot: settled bits and leases.

The front is the first unsettled offset, and so the cursor, as long as nothing is aside. A record
that would hold it for long goes aside (aside.py), and the front passes. Between cursor and front an
offset is unsettled if it is aside, else settled. After a restart the read position begins at the
cursor, goes from one record aside to the next, and then to the front.

Memory, measured at the default span of 16,384: 25 bytes per offset if all records have one key,
74 with 5,000 keys, 200 if each has a key of its own (3.3 MB per window); never a record's
bytes. The rings start at 64 offsets, double with use up to the span and shrink again when idle.
"""

from __future__ import annotations

from typing import Final

from librt.vecs import vec
from mypy_extensions import i64, u8

from dispatcher.core.limits import ALL_RANGES, BITMAP_GAP_BYTES_MAX, CHUNK_OFFSETS, RING_OFFSETS_MIN
from dispatcher.core.records.aside import Aside
from dispatcher.core.records.keys import NO_OFFSET, KeyQueue
from dispatcher.core.records.leases import Lease
from dispatcher.core.steps import BitsSet
from keyway.commit_metadata.core.bitmap import ranges_of

_CHUNK_BYTES: Final = CHUNK_OFFSETS // 8


def _no_bits(count: int) -> vec[u8]:
    return vec[u8](bytes(count))


# Long: all that touches the rings, which mypyc keeps fast only while their fields are its own.
class Span:
    def __init__(self, cursor: int) -> None:
        self.cursor = cursor  # the next offset that is not settled
        self.front = cursor  # of the rings
        self.aside = Aside()
        self.live = 0  # records in the rings, read and not settled
        self.read_position = cursor  # the next offset to read
        self.known_end = cursor  # behind the last offset that the snapshot knew something of
        self.unread: set[int] = set()  # restored as leased or as a retry, not read again yet
        self.dirty: list[int] = []  # numbers of bitmap bytes changed since the last `take_dirty`
        self._allocate(RING_OFFSETS_MIN)

    def __repr__(self) -> str:
        return f"<window {self.cursor}..{self.front}..{self.read_position}>"

    def _allocate(self, capacity: int) -> None:
        self.capacity = capacity
        self.mask = capacity - 1
        self.queues: list[KeyQueue | None] = [None] * capacity
        self.leases: list[Lease | None] = [None] * capacity
        # Flat: no int object per offset. The next offset of the same key:
        self.nexts: vec[i64] = vec[i64]([NO_OFFSET] * capacity)
        # Bytes of the bitmap, twice the need of the offsets: the cursor may stand inside a byte.
        self.bits: vec[u8] = _no_bits(capacity // 4)
        self.bits_mask = capacity // 4 - 1

    def reserve(self, end: int) -> None:
        """Makes room for offsets up to `end`."""
        capacity = self.capacity
        while end - self.front > capacity:
            capacity *= 2
        if capacity != self.capacity:
            self._resize(capacity)

    def shrink(self) -> None:
        """Gives memory back once the window needs an eighth of it or less."""
        needed = max(self.read_position, self.known_end, self.front) - self.front
        capacity = self.capacity
        while capacity > RING_OFFSETS_MIN and needed * 8 <= capacity:
            capacity //= 2
        if capacity != self.capacity:
            self._resize(capacity)

    def _resize(self, capacity: int) -> None:
        queues, leases, nexts, mask = self.queues, self.leases, self.nexts, self.mask
        bits, bits_mask = self.bits, self.bits_mask
        kept = min(capacity, self.capacity)
        self._allocate(capacity)
        for offset in range(self.front, self.front + kept):
            old = offset & mask
            new = offset & self.mask
            self.queues[new] = queues[old]
            self.leases[new] = leases[old]
            self.nexts[new] = nexts[old]
        first = self.front >> 3
        for byte in range(first, first + min(len(bits), len(self.bits))):
            self.bits[byte & self.bits_mask] = bits[byte & bits_mask]

    # --------------------------------------------------------------------------------- settled bits

    def holds(self, offset: int) -> bool:
        """Whether the rings have a place for `offset`."""
        return self.front <= offset < self.front + self.capacity

    def unsettled(self) -> int:
        """How many records are not settled: in the rings, and aside. Those aside are known before
        they are read again.
        """
        return self.live + self.aside.count

    def is_settled(self, offset: int) -> bool:
        """Whether the offset is settled, for front <= offset < front + capacity."""
        return (self.bits[(offset >> 3) & self.bits_mask] >> (offset & 7)) & 1 == 1

    def mark(self, offset: int) -> None:
        """Settles `offset`; the store hears of it with the next step."""
        if offset < self.front:
            self.aside.clear(offset)
            return
        byte = offset >> 3
        self.bits[byte & self.bits_mask] |= u8(1 << (offset & 7))
        self.dirty.append(byte)

    def unmark_hole(self, offset: int) -> None:
        """It is a hole of the log now, and somebody still works on the record."""
        self.bits[(offset >> 3) & self.bits_mask] &= u8(255 ^ (1 << (offset & 7)))

    def mark_hole(self, start: int, end: int) -> None:
        """Settles offsets that do not exist. The store need not know: they will not exist when read
        again either.
        """
        bits = self.bits
        mask = self.bits_mask
        for offset in range(start, end):
            bits[(offset >> 3) & mask] |= u8(1 << (offset & 7))

    def take_dirty(self) -> list[BitsSet]:
        """The changed bytes at and behind the front, in runs; their whole values, so repeating one
        changes nothing.
        """
        if not self.dirty:
            return []
        first_byte = self.front >> 3
        if self.bits[first_byte & self.bits_mask] >> (self.front & 7) == 0:
            first_byte += 1  # The front's own byte has nothing set behind the front.
        dirty = sorted([byte for byte in self.dirty if byte >= first_byte])
        self.dirty = []
        if not dirty:
            return []
        runs: list[BitsSet] = []
        start = last = dirty[0]
        for byte in dirty:
            gap = byte - last
            if gap > BITMAP_GAP_BYTES_MAX or byte // _CHUNK_BYTES != start // _CHUNK_BYTES:
                runs.append(self._run(start, last))
                start = byte
            last = byte
        runs.append(self._run(start, last))
        return runs

    def _run(self, first: int, last: int) -> BitsSet:
        data = self._bytes(first, last + 1)
        return BitsSet(chunk=first // _CHUNK_BYTES, byte_at=first % _CHUNK_BYTES, data=data)

    def settled_ranges(self, ranges_max: int = ALL_RANGES) -> list[tuple[int, int]]:
        """The settled offsets at and behind the cursor: ascending, disjoint, non-adjacent inclusive
        ranges. With more than `ranges_max` records aside the short ones between them are left out.
        """
        ranges: list[tuple[int, int]] = []
        if self.aside.count:
            ranges = self.aside.settled_ranges(self.cursor, self.front, ranges_max)
        ahead = self._settled_ahead()
        if ranges and ahead and ahead[0][0] == ranges[-1][1] + 1:  # while the front was not read
            ahead[0] = (ranges.pop()[0], ahead[0][1])
        return ranges + ahead

    def _settled_ahead(self) -> list[tuple[int, int]]:
        """The settled ranges in the rings."""
        first = self.front >> 3
        data = self._bytes(first, first + len(self.bits))
        behind_front = int.from_bytes(data, "little") >> (self.front & 7)
        return ranges_of(behind_front.to_bytes(len(data), "little"), self.front)

    def settled_count(self) -> int:
        """The offsets at and behind the cursor that are settled."""
        first = self.front >> 3
        data = self._bytes(first, first + len(self.bits))
        ahead = (int.from_bytes(data, "little") >> (self.front & 7)).bit_count()
        return self.front - self.cursor - self.aside.count + ahead

    def _bytes(self, first: int, end: int) -> bytes:
        """Of the bitmap; at most all of them."""
        start = first & self.bits_mask
        data = bytes(self.bits[start : start + end - first])
        return data + bytes(self.bits[: end - first - len(data)])

    # --------------------------------------------------------------------------------------- cursor

    def advance(self) -> None:
        """Moves the cursor over settled offsets, contiguously (Kafka's committed-offset
        convention).
        """
        if self.read_position < self.front:
            self.read_position = self.first_aside_from(self.read_position)
        queues = self.queues
        mask = self.mask
        end = self.read_position
        front = self.front
        while front < end and queues[front & mask] is None:
            front += 1
        if front == end:  # Nothing unsettled was read: settled offsets of the snapshot follow.
            while self.is_settled(front):
                front += 1
            self.read_position = front
        if front != self.front:
            self.move_front(front)
        self.cursor = self.aside.first() if self.aside.count else front

    def move_front(self, front: int) -> None:
        """Moves the front to `front` > self.front, below which nothing is in the rings any more.
        The passed bits become free.
        """
        first = self.front >> 3
        bits = self.bits
        mask = self.bits_mask
        for byte in range(first, min(front >> 3, first + len(bits))):
            bits[byte & mask] = 0
        self.front = front

    # ---------------------------------------------------------------------------------------- aside

    def first_aside_from(self, offset: int) -> int:
        """The next offset to read when `offset` was: a record aside, or the front."""
        found = self.aside.first_from(offset) if self.aside.count else NO_OFFSET
        return self.front if found == NO_OFFSET else found

    def put_aside(self, queue: KeyQueue, offset: int, *, asked_for: bool) -> None:
        """The unsettled record at the front of the rings, which may then pass it."""
        at = offset & self.mask
        aside = self.aside
        aside.add(offset)
        aside.append(queue, offset, self.nexts[at])
        lease = self.leases[at]
        if lease is not None:
            aside.leases[offset] = lease
            self.leases[at] = None
        if asked_for or lease is not None:
            aside.queues[offset] = queue
        self.queues[at] = None
        self.live -= 1

    def queue_at(self, offset: int) -> KeyQueue | None:
        """The queue of the record at any offset, if it is unsettled and read. Of the records aside,
        only those that are asked for have one (aside.py).
        """
        if offset < self.front:
            return self.aside.queues.get(offset)
        return self.queues[offset & self.mask] if self.holds(offset) else None

    def lease_at(self, offset: int) -> Lease | None:
        """The lease of the record at any offset."""
        if offset < self.front:
            return self.aside.leases.get(offset)
        return self.leases[offset & self.mask] if self.holds(offset) else None

    def lease_to(self, queue: KeyQueue, offset: int, lease: Lease) -> None:
        """Hands it out."""
        if offset < self.front:
            self.aside.queues[offset] = queue
        self.lease_again(offset, lease)

    def lease_again(self, offset: int, lease: Lease) -> None:
        """Gives a leased record another lease."""
        if offset < self.front:
            self.aside.leases[offset] = lease
        else:
            self.leases[offset & self.mask] = lease

    def unlease(self, offset: int) -> None:
        if offset < self.front:
            self.aside.leases.pop(offset, None)
        else:
            self.leases[offset & self.mask] = None

    # ---------------------------------------------------------------------------------------- order

    def after(self, queue: KeyQueue, offset: int) -> int:
        """The next of its key; NO_OFFSET: none."""
        if offset < self.front:
            return self.aside.after(queue, offset)
        return self.nexts[offset & self.mask]

    def unlink(self, queue: KeyQueue, offset: int) -> None:
        """Takes `offset` out of its key: at the head, or as far behind it as records of a key may
        be in flight.
        """
        if offset < self.front:
            self.aside.unlink(queue, offset)
            return
        nexts = self.nexts
        mask = self.mask
        after = nexts[offset & mask]
        backlog = queue.backlog
        self.queues[offset & mask] = None
        self.live -= 1
        if queue.head == offset:
            queue.head = after
        elif backlog is not None and backlog.after == offset:
            backlog.after = after
            if after == NO_OFFSET:
                queue.tail = backlog.offsets[-1]
        else:
            before = queue.head if backlog is None else backlog.after
            while nexts[before & mask] != offset:
                before = nexts[before & mask]
            nexts[before & mask] = after
            if after == NO_OFFSET:
                queue.tail = before
