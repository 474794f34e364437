"""The sum of a window's changes: the one definition for every store.

The memory store calls it, Redis is compared with it in tests.

`WindowState` keeps the changes as they were written and interprets them when it is read. A lease
still names offsets that were settled or given back since: taking single offsets out of it at every
acknowledgement would rewrite it each time. So an offset is in flight if the newest lease that names
it (lease ids grow) does so, and it is not settled, waiting, parked or being dead-lettered.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import assert_never

from dispatcher.core.limits import CHUNK_OFFSETS
from dispatcher.core.model import (
    BitsSet,
    Change,
    CursorMoved,
    LeaseEnded,
    LeaseExtended,
    LeaseId,
    LeaseState,
    LeaseTaken,
    RetriesForgotten,
    RetryNoted,
    RetryState,
    Snapshot,
)
from settled.core.bitmap import bits_of, ranges_of, united


class WindowState:
    """One window as a store holds it: cursor, bitmap chunks, leases as taken, retries."""

    def __init__(self, cursor: int) -> None:
        self.cursor = cursor
        self.chunks: dict[int, bytearray] = {}
        self.leases: dict[LeaseId, LeaseState] = {}
        self.retries: dict[int, RetryNoted] = {}

    def apply(self, changes: Sequence[Change]) -> None:
        for change in changes:
            match change:
                case CursorMoved():
                    self._move(change.cursor)
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
        return Snapshot(self.cursor, self._settled_ranges(), leases, retries)

    def is_settled(self, offset: int) -> bool:
        if offset < self.cursor:
            return True
        chunk = self.chunks.get(offset // CHUNK_OFFSETS)
        at = offset % CHUNK_OFFSETS
        return chunk is not None and at >> 3 < len(chunk) and bool(chunk[at >> 3] >> (at & 7) & 1)

    def _in_flight(self, offset: int) -> bool:
        retry = self.retries.get(offset)
        held_back = retry is not None and retry.state is not RetryState.IN_FLIGHT
        return not held_back and not self.is_settled(offset)

    def _settled_ranges(self) -> list[tuple[int, int]]:
        ranges: list[tuple[int, int]] = []
        for number, chunk in self.chunks.items():
            ranges += ranges_of(bytes(chunk), number * CHUNK_OFFSETS)
        return united([(max(a, self.cursor), b) for a, b in ranges if b >= self.cursor])

    def _move(self, cursor: int) -> None:
        self.cursor = cursor
        for number in [n for n in self.chunks if n < cursor // CHUNK_OFFSETS]:
            del self.chunks[number]

    def _set_bits(self, change: BitsSet) -> None:
        # Below the cursor's chunk everything is settled: such bytes would only stay behind.
        if change.chunk < self.cursor // CHUNK_OFFSETS:
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


def state_of(snapshot: Snapshot) -> WindowState:
    state = WindowState(snapshot.cursor)
    state.apply(changes_of(snapshot))
    return state


def apply_changes(snapshot: Snapshot, changes: Sequence[Change]) -> Snapshot:
    state = state_of(snapshot)
    state.apply(changes)
    return state.snapshot()


def changes_of(snapshot: Snapshot) -> list[Change]:
    """The changes that make an empty window into `snapshot`."""
    changes: list[Change] = [CursorMoved(snapshot.cursor)]
    changes += bits_changes(snapshot.settled)
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
    return changes


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
