"""The offsets of one window: settled ones, the leases of the others, and the cursor.

Everything lies in rings indexed by offset, so it costs the same for any mixture of keys. For each
offset in [cursor, read_position): no queue = settled, or invisible to consumers (compacted,
control, aborted), which is the same thing. Offsets from read_position on are known only from a
restored snapshot: settled bits and leases.

Memory, measured at the default span of 16,384: 24 bytes per offset if all records have one key,
72 with 5,000 keys, 189 if each has a key of its own (3.1 MB per window); never a record's
bytes. The rings start at 64 offsets, double with use up to the span and shrink again when idle.
"""

from __future__ import annotations

from librt.vecs import vec
from mypy_extensions import i64, u8

from dispatcher.core.keys import NO_OFFSET, KeyQueue
from dispatcher.core.leases import Lease
from dispatcher.core.limits import BITMAP_GAP_BYTES_MAX, CHUNK_OFFSETS, RING_OFFSETS_MIN
from dispatcher.core.model import BitsSet
from settled.core.bitmap import ranges_of

_CHUNK_BYTES = CHUNK_OFFSETS // 8


def _no_bits(count: int) -> vec[u8]:
    return vec[u8](bytes(count))


class Window:
    def __init__(self, cursor: int) -> None:
        self.cursor = cursor  # the next offset that is not settled
        self.read_position = cursor  # the next offset to read
        self.known_end = cursor  # behind the last offset that the snapshot knew something of
        self.unread: set[int] = set()  # restored as leased or as a retry, not read again yet
        self.dirty: list[int] = []  # numbers of bitmap bytes changed since the last `take_dirty`
        self._allocate(RING_OFFSETS_MIN)

    def __repr__(self) -> str:
        return f"<window {self.cursor}..{self.read_position}>"

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
        while end - self.cursor > capacity:
            capacity *= 2
        if capacity != self.capacity:
            self._resize(capacity)

    def shrink(self) -> None:
        """Gives memory back once the window needs an eighth of it or less."""
        needed = max(self.read_position, self.known_end) - self.cursor
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
        for offset in range(self.cursor, self.cursor + kept):
            old = offset & mask
            new = offset & self.mask
            self.queues[new] = queues[old]
            self.leases[new] = leases[old]
            self.nexts[new] = nexts[old]
        first = self.cursor >> 3
        for byte in range(first, first + min(len(bits), len(self.bits))):
            self.bits[byte & self.bits_mask] = bits[byte & bits_mask]

    # --------------------------------------------------------------------------------- settled bits

    def holds(self, offset: int) -> bool:
        """Whether the rings have a place for `offset`."""
        return self.cursor <= offset < self.cursor + self.capacity

    def unsettled(self) -> int:
        """Records read and not settled. O(span)."""
        queues = self.queues
        mask = self.mask
        count = 0
        for offset in range(self.cursor, self.read_position):
            if queues[offset & mask] is not None:
                count += 1
        return count

    def is_settled(self, offset: int) -> bool:
        """For cursor <= offset < cursor + capacity."""
        return (self.bits[(offset >> 3) & self.bits_mask] >> (offset & 7)) & 1 == 1

    def mark(self, offset: int) -> None:
        """Settles `offset`; the store hears of it with the next step."""
        byte = offset >> 3
        self.bits[byte & self.bits_mask] |= u8(1 << (offset & 7))
        self.dirty.append(byte)

    def mark_hole(self, start: int, end: int) -> None:
        """Settles offsets that do not exist. The store need not know: they will not exist when read
        again either.
        """
        bits = self.bits
        mask = self.bits_mask
        for offset in range(start, end):
            bits[(offset >> 3) & mask] |= u8(1 << (offset & 7))

    def take_dirty(self) -> list[BitsSet]:
        """The changed bytes at and behind the cursor, in runs; their whole values, so repeating one
        changes nothing.
        """
        if not self.dirty:
            return []
        first_byte = self.cursor >> 3
        if self.bits[first_byte & self.bits_mask] >> (self.cursor & 7) == 0:
            first_byte += 1  # The cursor's own byte has nothing set behind the cursor.
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

    def settled_ranges(self) -> list[tuple[int, int]]:
        """The settled offsets at and behind the cursor: ascending, disjoint, non-adjacent inclusive
        ranges.
        """
        first = self.cursor >> 3
        data = self._bytes(first, first + len(self.bits))
        behind_cursor = int.from_bytes(data, "little") >> (self.cursor & 7)
        return ranges_of(behind_cursor.to_bytes(len(data), "little"), self.cursor)

    def _bytes(self, first: int, end: int) -> bytes:
        return bytes([self.bits[byte & self.bits_mask] for byte in range(first, end)])

    # --------------------------------------------------------------------------------------- cursor

    def advance(self) -> None:
        """Moves the cursor over settled offsets, contiguously (Kafka's committed-offset
        convention).
        """
        queues = self.queues
        mask = self.mask
        end = self.read_position
        cursor = self.cursor
        while cursor < end and queues[cursor & mask] is None:
            cursor += 1
        if cursor == end:  # Nothing unsettled was read: settled offsets of the snapshot follow.
            while self.is_settled(cursor):
                cursor += 1
            self.read_position = cursor
        if cursor != self.cursor:
            self.move_cursor(cursor)

    def move_cursor(self, cursor: int) -> None:
        """To `cursor` > self.cursor, below which nothing is in the rings any more; its passed bits
        become free.
        """
        first = self.cursor >> 3
        bits = self.bits
        mask = self.bits_mask
        for byte in range(first, min(cursor >> 3, first + len(bits))):
            bits[byte & mask] = 0
        self.cursor = cursor

    # ---------------------------------------------------------------------------------------- order

    def unlink(self, queue: KeyQueue, offset: int) -> None:
        """Takes `offset` out of its key: at the head, or as far behind it as records of a key may
        be in flight.
        """
        nexts = self.nexts
        mask = self.mask
        after = nexts[offset & mask]
        if queue.head == offset:
            queue.head = after
        else:
            before = queue.head
            while nexts[before & mask] != offset:
                before = nexts[before & mask]
            nexts[before & mask] = after
            if after == NO_OFFSET:
                queue.tail = before
        self.queues[offset & mask] = None
