"""Commits that stand, and when each was made: it is made again every hour.

Kafka forgets an offset some time after its last commit (offsets.retention.minutes), also while the
group is at work elsewhere. A cluster that groups may fail over to keeps the offsets of their quiet
partitions, and has just committed them when all else is gone.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field
from itertools import islice

from offsets.core.entries import GroupPartition
from offsets.core.plan import Committed
from offsets.limits import COMMITTED_AGAIN_AT_ONCE, COMMITTED_AGAIN_MS


@dataclass(slots=True)
class StandingCommits:
    """`seen`: the position of a place as Kafka has it, as far as is known."""

    now_ms: Callable[[], int]
    seen: Callable[[GroupPartition], Committed | None]
    _made_ms: dict[GroupPartition, int] = field(default_factory=dict)

    def old(self, standing: Iterable[GroupPartition]) -> Collection[GroupPartition]:
        """Some of the places whose commits are to be made again."""
        before_ms = self.now_ms() - COMMITTED_AGAIN_MS
        old = (place for place in standing if self._made_at(place) <= before_ms)
        return set(islice(old, COMMITTED_AGAIN_AT_ONCE))

    def _made_at(self, place: GroupPartition) -> int:
        """After a restart of the service: when it was seen first, if nothing tells."""
        if place not in self._made_ms:
            seen = self.seen(place)
            self._made_ms[place] = (seen and seen.committed_ms) or self.now_ms()
        return self._made_ms[place]

    def made(self, places: Iterable[GroupPartition]) -> None:
        self._made_ms |= dict.fromkeys(places, self.now_ms())

    def forget(self, places: Iterable[GroupPartition]) -> None:
        for place in places:
            self._made_ms.pop(place, None)
