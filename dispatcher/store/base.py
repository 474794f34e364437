"""The promises of a window store (ARCHITECTURE, Crashes): one round trip per step, one owner per
window, nothing half-written.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, NewType, Protocol

from dispatcher.core.steps import Change, Snapshot

# grows with every claim of a window; writes under an older one are refused
Fence = NewType("Fence", int)


class WindowKey(NamedTuple):
    """One window. The topic's id, not its name: a topic recreated under the same name is another
    window.
    """

    group: str
    topic_id: str  # 22 characters, Kafka's URL-safe base64 without padding
    partition: int


class StoreError(Exception):
    """The store could not be reached or answered with an error; nothing is known to be applied.
    Retriable.
    """


class StoreRefuses(StoreError):
    """The store answers, and does not take the write: as a rule it is full, a replica, or cannot
    save.
    """


class FencedError(StoreError):
    """Another owner has claimed the window: throw the core away and do not retry."""


class WindowGone(StoreError):
    """The store no longer has the window (flushed), or only an older state of it than it has
    confirmed: do not retry; claim again and rebuild.
    """


@dataclass(frozen=True, slots=True)
class Claimed:
    fence: Fence
    snapshot: Snapshot | None  # None: the store knows nothing of this window
    origin: int = 0  # of its incarnation (dispatcher/core/stored/reconcile.py); 0 = not known

    @property
    def next_origin(self) -> int:
        """The origin of an incarnation that begins with this claim: later than any before, also
        where clocks differ.
        """
        return max(self.fence, self.origin + 1)


class Write(NamedTuple):
    key: WindowKey
    fence: Fence
    changes: Sequence[Change]


class Counts(NamedTuple):
    """What a window in the store has. `settled`: offsets behind the cursor, without holes of the
    log.
    """

    cursor: int
    parked: int
    settled: int


class WindowStore(Protocol):
    async def claim(self, key: WindowKey, owner: str, generation: int = 0) -> Claimed:
        """Takes the window over from its last owner and reads it. `generation`: of the owners among
        several nodes, as far as the claimer knows. Raises StoreError; FencedError if it was claimed
        under a newer generation.
        """
        ...

    async def create(
        self, key: WindowKey, fence: Fence, snapshot: Snapshot, *, origin: int = 0
    ) -> None:
        """Replaces the window by `snapshot` (first use, or rebuilt from Kafka); its origin is
        `fence`, or `origin` if that is later. Raises StoreError, FencedError.
        """
        ...

    async def apply(self, writes: Sequence[Write]) -> list[StoreError | None]:
        """Applies each write whole or not at all, all of them in one round trip, in order; one
        result per write.

        Never raises for the world's failures: an unreachable store is a StoreError in every place.
        A window the store no longer has (flushed) is a StoreError too: the caller claims again and
        rebuilds it from Kafka.
        """
        ...

    async def release(self, key: WindowKey, fence: Fence) -> None:
        """Gives up a claim of a window that was never created, so that nothing of it stays. Does
        nothing to one that was, or that somebody else has claimed since. Raises StoreError.
        """
        ...

    def forget(self, key: WindowKey) -> None:
        """The window leaves memory: nothing more is written under its claim. What the store has of
        it stays.
        """
        ...

    async def delete(self, key: WindowKey) -> None:
        """Forgets the window (its topic, its group or its position deleted). Raises StoreError."""
        ...

    async def positions(self, group: str | None) -> dict[WindowKey, int]:
        """The cursors of all windows of the group (None: of every group), also of those that nobody
        owns now; takes none over. Raises StoreError.
        """
        ...

    async def counts(self, keys: Sequence[WindowKey]) -> list[Counts]:
        """The counts of each window, without taking one over. All 0: the store has no such window.
        Raises StoreError.
        """
        ...

    async def close(self) -> None: ...
