"""Outside knowledge at the moment of the store's file, for a store that is set back to it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from dispatcher.core.steps import BitsSet, Snapshot
from tests.sim.holds import Hold


@dataclass(frozen=True, slots=True)
class Filed:
    settled: set[int] = field(default_factory=set)
    causes: dict[int, str] = field(default_factory=dict)
    deliveries: dict[int, int] = field(default_factory=dict)
    holds: list[Hold] = field(default_factory=list)

    def not_the_union(
        self, records: Iterable[int], known: set[int], committed: Snapshot
    ) -> list[int]:
        """Records that are settled in the file or by the commit and are not `known`, or the other
        way round.
        """
        wanted = self.settled | settled_of(committed)
        return [offset for offset in records if (offset in known) != (offset in wanted)]

    def holds_left(self, known: set[int], end: int) -> list[Hold]:
        """Nobody can rely on them; an acknowledgement of them may be taken."""
        return [
            replace(hold, expired=True, leased=False)
            for hold in self.holds
            if hold.offset not in known and hold.offset < end
        ]


def filed(
    settled: set[int],
    causes: dict[int, str],
    deliveries: dict[int, int],
    holds: Iterable[Hold],
    end: int,
) -> Filed:
    """As it is now, up to `end`; later changes do not reach it."""
    return Filed(
        {offset for offset in settled if offset < end},
        {offset: cause for offset, cause in causes.items() if offset < end},
        {offset: count for offset, count in deliveries.items() if offset < end},
        [replace(hold) for hold in holds if hold.offset < end],
    )


def held_back(snapshot: Snapshot) -> list[int]:
    """Offsets that are leased, or were delivered before."""
    leased = [offset for lease in snapshot.leases for offset in lease.offsets]
    return [*leased, *(retry.offset for retry in snapshot.retries)]


def settled_of(snapshot: Snapshot) -> set[int]:
    behind = [range(low, high + 1) for low, high in snapshot.settled]
    return set(range(snapshot.cursor)).union(*behind)


def offsets_of(change: BitsSet) -> list[int]:
    base = change.chunk * 65_536 + change.byte_at * 8
    return [
        base + index * 8 + bit
        for index, value in enumerate(change.data)
        for bit in range(8)
        if value >> bit & 1
    ]
