"""The sum of a window's changes: the one definition for every store.

The memory store calls it, Redis is compared with it in tests.

`StoredWindow` keeps the changes as they were written and interprets them when it is read. A lease
still names offsets that were settled or given back since: taking single offsets out of it at every
acknowledgement would rewrite it each time. So an offset is in flight if the newest lease that names
it (lease ids grow) does so, and it is not settled, waiting, parked or being dead-lettered.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import assert_never

from dispatcher.core.epochs import Epochs
from dispatcher.core.limits import ASIDE_RESTORED_MAX, CHUNK_OFFSETS, STRETCH_OFFSETS
from dispatcher.core.model import LeaseId
from dispatcher.core.records.offset_bits import offsets_in, packed
from dispatcher.core.steps import (
    AsideSet,
    BitsSet,
    Change,
    CursorMoved,
    EpochsMoved,
    LeaseEnded,
    LeaseExtended,
    LeaseState,
    LeaseTaken,
    RetriesForgotten,
    RetryNoted,
    RetryState,
    Snapshot,
)
from keyway.commit_metadata.core.bitmap import bits_of, ranges_of, united
from keyway.commit_metadata.core.limits import OFFSET_MAX, SPAN_OFFSETS_MAX


class StoredWindow:
    """One window as a store holds it: cursor, front, the records aside between the two, bitmap
    chunks from the front on, leases as taken, retries.
    """

    def __init__(self, cursor: int, front: int = -1) -> None:
        self.cursor = cursor
        self.front = max(cursor, front)
        self.aside: dict[int, bytes] = {}  # by stretch, as in AsideSet
        self.chunks: dict[int, bytearray] = {}
        self.leases: dict[LeaseId, LeaseState] = {}
        self.retries: dict[int, RetryNoted] = {}
        self.epochs: Epochs = ()

    def apply(self, changes: Sequence[Change]) -> None:  # noqa: C901 - one case each
        for change in changes:
            match change:
                case CursorMoved():
                    self._move(change.cursor, change.front)
                case AsideSet():
                    self.aside.pop(change.stretch, None)
                    if change.data:
                        self.aside[change.stretch] = change.data
                case BitsSet():
                    self._set_bits(change)
                case LeaseTaken():
                    self.leases[change.lease_id] = LeaseState(
                        change.lease_id,
                        change.member_id,
                        change.session_id,
                        change.deadline_ms,
                        list(change.offsets),
                    )
                case LeaseExtended():
                    self._extend(change)
                case LeaseEnded():
                    self.leases.pop(change.lease_id, None)
                case RetryNoted():
                    self.retries[change.offset] = change
                case RetriesForgotten():
                    for offset in change.offsets:
                        self.retries.pop(offset, None)
                case EpochsMoved():
                    self.epochs = change.epochs
                case _:
                    assert_never(change)

    def snapshot(self) -> Snapshot:
        leases: list[LeaseState] = []
        taken: set[int] = set()
        for lease_id in sorted(self.leases, reverse=True):
            lease = self.leases[lease_id]
            offsets = [o for o in lease.offsets if o not in taken and self._in_flight(o)]
            taken.update(lease.offsets)
            # Also without offsets: while it is not ended its id must not be taken by a newer one.
            leases.append(
                LeaseState(lease_id, lease.member_id, lease.session_id, lease.deadline_ms, offsets)
            )
        leases.reverse()
        retries = [self.retries[o] for o in sorted(self.retries) if not self.is_settled(o)]
        settled = self._settled_ranges()
        return Snapshot(self.cursor, settled, leases, retries, self.front, self.epochs)

    def is_settled(self, offset: int) -> bool:
        if offset < self.cursor:
            return True
        if offset < self.front:
            bits = self.aside.get(offset // STRETCH_OFFSETS, b"")
            at = offset % STRETCH_OFFSETS
            return at >> 3 >= len(bits) or not bits[at >> 3] >> (at & 7) & 1
        chunk = self.chunks.get(offset // CHUNK_OFFSETS)
        at = offset % CHUNK_OFFSETS
        return chunk is not None and at >> 3 < len(chunk) and bool(chunk[at >> 3] >> (at & 7) & 1)

    def _in_flight(self, offset: int) -> bool:
        retry = self.retries.get(offset)
        held_back = retry is not None and retry.state is not RetryState.IN_FLIGHT
        return not held_back and not self.is_settled(offset)

    def _settled_ranges(self) -> list[tuple[int, int]]:
        ahead: list[tuple[int, int]] = []
        for number, chunk in self.chunks.items():
            ahead += ranges_of(bytes(chunk), number * CHUNK_OFFSETS)
        ahead = [(max(a, self.front), b) for a, b in ahead if b >= self.front]
        ranges: list[tuple[int, int]] = []
        expected = self.cursor
        for stretch in sorted(self.aside):
            for offset in offsets_in(stretch, self.aside[stretch]):
                if self.cursor <= offset < self.front:
                    if offset > expected:
                        ranges.append((expected, offset - 1))
                    expected = offset + 1
        if expected < self.front:
            ranges.append((expected, self.front - 1))
        return united(ranges + ahead)

    def _move(self, cursor: int, front: int) -> None:
        self.cursor, self.front = cursor, front
        for number in [n for n in self.chunks if n < front // CHUNK_OFFSETS]:
            del self.chunks[number]

    def _set_bits(self, change: BitsSet) -> None:
        # Below the front's chunk they say nothing any more: such bytes would only stay behind.
        if change.chunk < self.front // CHUNK_OFFSETS:
            return
        chunk = self.chunks.setdefault(change.chunk, bytearray())
        chunk += bytes(change.byte_at)[len(chunk) :]
        chunk[change.byte_at : change.byte_at + len(change.data)] = change.data

    def _extend(self, change: LeaseExtended) -> None:
        lease = self.leases.get(change.lease_id)
        if lease is not None:
            self.leases[change.lease_id] = LeaseState(
                lease.lease_id,
                lease.member_id,
                lease.session_id,
                change.deadline_ms,
                lease.offsets,
            )


def state_of(snapshot: Snapshot) -> StoredWindow:
    state = StoredWindow(snapshot.cursor, snapshot.front)
    state.apply(changes_of(snapshot))
    return state


def apply_changes(snapshot: Snapshot, changes: Sequence[Change]) -> Snapshot:
    state = state_of(snapshot)
    state.apply(changes)
    return state.snapshot()


def changes_of(snapshot: Snapshot) -> list[Change]:
    """The changes that make an empty window into `snapshot`."""
    front, settled = kept(snapshot)
    aside = _aside_changes(snapshot.cursor, front, settled)
    records = sum(int.from_bytes(stretch.data, "little").bit_count() for stretch in aside)
    changes: list[Change] = [CursorMoved(snapshot.cursor, front, records)]
    changes += aside
    changes += bits_changes([(max(low, front), high) for low, high in settled if high >= front])
    for lease in snapshot.leases:
        changes.append(
            LeaseTaken(
                lease.lease_id,
                lease.member_id,
                lease.session_id,
                lease.deadline_ms,
                list(lease.offsets),
            )
        )
    changes += snapshot.retries
    if snapshot.epochs:
        changes.append(EpochsMoved(snapshot.epochs))
    return changes


def known_end(snapshot: Snapshot) -> int:
    """Behind the last offset that something is known of."""
    ends = [max(snapshot.cursor, snapshot.front)]
    ends += [last + 1 for _, last in snapshot.settled[-1:]]
    ends += [offset + 1 for lease in snapshot.leases for offset in lease.offsets]
    ends += [retry.offset + 1 for retry in snapshot.retries[-1:]]
    return max(ends)


def kept(snapshot: Snapshot) -> tuple[int, list[tuple[int, int]]]:
    """`placed`, as the store keeps the window: a snapshot from there has its front; a commit has
    none, and may say anything.
    """
    return placed(snapshot, CHUNK_OFFSETS if snapshot.front < 0 else OFFSET_MAX)


def placed(snapshot: Snapshot, reach: int) -> tuple[int, list[tuple[int, int]]]:
    """The front of the rings for this window, and the settled ranges as far as the rings then go.

    It is at most `reach` before the end, if the records before it may go aside. Ranges that lie too
    far behind the front are left out: their records are delivered again.
    """
    cursor, settled = snapshot.cursor, snapshot.settled
    end = settled[-1][1] + 1 if settled else cursor
    front = max(snapshot.front, cursor)
    if end - front > reach:
        unsettled = 0
        expected = cursor
        for low, high in settled:
            unsettled += max(low - expected, 0)
            if unsettled > ASIDE_RESTORED_MAX:
                break
            expected = high + 1
            front = max(front, min(expected, end - reach))
    limit = front + SPAN_OFFSETS_MAX
    return front, [(low, min(high, limit - 1)) for low, high in settled if low < limit]


def _aside_changes(cursor: int, front: int, settled: Sequence[tuple[int, int]]) -> list[AsideSet]:
    bits: dict[int, int] = {}
    expected = cursor
    for low, high in [*settled, (front, front)]:
        for offset in range(expected, min(low, front)):
            number = offset // STRETCH_OFFSETS
            bits[number] = bits.get(number, 0) | 1 << (offset % STRETCH_OFFSETS)
        expected = max(expected, high + 1)
    return [AsideSet(number, packed(offsets)) for number, offsets in bits.items()]


def bits_changes(settled: Sequence[tuple[int, int]]) -> list[BitsSet]:
    """Whole bitmap chunks, each as short as it can be, that hold exactly these ranges."""
    ends: dict[int, int] = {}  # chunk -> behind its last settled offset; ascending, as the ranges
    for low, high in settled:
        for number in range(low // CHUNK_OFFSETS, high // CHUNK_OFFSETS + 1):
            ends[number] = min(high + 1, (number + 1) * CHUNK_OFFSETS)
    result: list[BitsSet] = []
    for number, end in ends.items():
        first = number * CHUNK_OFFSETS
        size = (end - first + 7) // 8
        result.append(BitsSet(number, 0, bytes(bits_of(settled, first, size))))
    return result
