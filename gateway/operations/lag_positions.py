"""The positions of Key-Shared groups, as of the last look at them (lag.py asks what they mean).

A window in memory knows its own. Others have the one of the store; those that the store lacks,
because it lost its data or is not meant to have them, have the one that was committed to Kafka. As
long as a group rests, its positions and their places are the same, and nobody looks again.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

from dispatcher.store.base import WindowKey
from gateway.core.cluster.topology import Topic, TopicPartition
from gateway.core.reading.cache import Source
from gateway.operations.errors import StateUnavailable
from gateway.operations.group_offsets import GroupOffsets, Position
from gateway.operations.limits import LAG_REFRESH_S_MAX
from gateway.operations.portions import Portions
from gateway.upstream.errors import Refused
from gateway.windows.start_position import isolation_of
from gateway.windows.window_keys import topic_id_text


@dataclass(slots=True)
class Placed:
    """The places of a group's positions: as long as it rests, they are the same."""

    isolation: int
    places: list[tuple[WindowKey, Source]]
    sources: set[Source]
    looked_at: bool = False  # for the times of their oldest records


@dataclass(slots=True)
class LagPositions:
    offsets: GroupOffsets
    by_group: dict[str, dict[WindowKey, Position]] = field(default_factory=dict)
    _seen_at: dict[str, int] = field(default_factory=dict)  # the group's rest, at that look
    _placed: dict[str, Placed] = field(default_factory=dict)
    _topics: dict[str, Topic] = field(default_factory=dict)  # by the text of their ids
    # Parked records by window in the store, of groups of which it lacks some window.
    _lacking: dict[str, dict[WindowKey, int | None]] = field(default_factory=dict)

    def known(self) -> list[str]:
        """Groups of which anything is known."""
        return list(dict.fromkeys([*self.by_group, *self._seen_at, *self._placed, *self._lacking]))

    def of(self, group: str) -> list[tuple[WindowKey, Position]]:
        return list(self.by_group.get(group, {}).items())

    def find(self, key: WindowKey) -> Position | None:
        return self.by_group.get(key.group, {}).get(key)

    def forget(self, group: str) -> list[WindowKey]:
        """Returns the windows that it had."""
        self._seen_at.pop(group, None)
        self._placed.pop(group, None)
        self._lacking.pop(group, None)
        return list(self.by_group.pop(group, ()))

    async def read_store(self, group: str) -> None:
        """Positions from the store, which has none of an unreliable group. What it lacks is told by
        `read_commits`. Raises StateUnavailable.
        """
        windows = self.offsets.windows
        reliable = windows.dependencies.settings.of(group).reliable
        stored = await self.offsets.stored(group) if reliable else {}
        up = {window.key for window in windows.of_group(group) if window.dispatcher is not None}
        counts = await self.offsets.counts(stored, up)
        known = self.by_group.get(group, {})
        parked = {key: None if count is None else count.parked for key, count in counts.items()}
        if stored and known.keys() <= stored.keys():
            windows.parked.stored(group, parked)
            self._lacking.pop(group, None)
        else:
            self._lacking[group] = parked
        for key, cursor in stored.items():
            if key not in known or known[key].offset != cursor:
                count = counts[key]
                settled = count.settled if count is not None and count.cursor == cursor else 0
                known[key] = Position(cursor, settled)
        self._found(group, known)

    async def read_commits(self, group: str) -> list[WindowKey]:
        """Positions that the store lacks, as they were committed to Kafka: there the windows start
        again. A group that Kafka refuses keeps what is known. Returns the windows that are gone.
        Raises StateUnavailable.
        """
        parked = self._lacking.get(group)
        if parked is None:
            return []
        try:
            async with asyncio.timeout(LAG_REFRESH_S_MAX):
                committed = await self._committed(group)
        except TimeoutError:
            raise StateUnavailable("upstream: no answer in time") from None
        except StateUnavailable as error:
            if isinstance(error.__cause__, Refused):
                return []
            raise
        lost = {key: position for key, position in committed.items() if key not in parked}
        windows = self.offsets.windows
        if lost and windows.dependencies.settings.of(group).reliable:
            windows.parked.forget(group)  # not known, and no 0
        else:
            windows.parked.stored(group, parked)
        known = self.by_group.get(group, {})
        gone = [key for key in known if key not in parked and key not in lost]
        for key in gone:
            del known[key]
        self._found(group, known | lost)
        return gone

    async def _committed(self, group: str) -> dict[WindowKey, Position]:
        """Raises StateUnavailable."""
        found = await self.offsets.committed(group, ours_only=True)
        topics = await self.offsets.topics({topic for topic, _ in found})
        return {
            WindowKey(group, topic_id_text(topics[topic].topic_id), partition): position
            for (topic, partition), position in found.items()
            if topic in topics
        }

    def _found(self, group: str, positions: dict[WindowKey, Position]) -> None:
        if positions:
            self.by_group[group] = positions
        self._seen_at.pop(group, None)
        self._placed.pop(group, None)

    async def read_memory(self, group: str, portions: Portions) -> None:
        """Takes the positions from windows in memory. A group at rest has the same ones as
        before.
        """
        windows = self.offsets.windows
        rest = windows.ticks.rest_of(group)
        if rest is not None and self._seen_at.get(group) == rest:
            return
        self._seen_at.pop(group, None)
        for window in windows.of_group(group):
            core = window.dispatcher
            if core is not None:
                position = Position(core.cursor, core.settled_count())
                self.by_group.setdefault(group, {})[window.key] = position
                windows.parked.note(window)
                await portions.give_way()  # O(span) each
        self._placed.pop(group, None)
        if rest is not None:
            self._seen_at[group] = rest

    async def resolve_topics(self) -> None:
        """Raises UpstreamError."""
        ids = {key.topic_id for positions in self.by_group.values() for key in positions}
        topics = await self.offsets.topics_by_id(ids)
        if topics != self._topics:
            self._topics = topics
            self._placed.clear()
        self.offsets.windows.topics.asked_for = {topic.name for topic in topics.values()}

    async def places(self, group: str, portions: Portions) -> tuple[Placed, bool]:
        """The places of the group's positions in topics that exist. True: they may differ from
        those looked at last.
        """
        isolation = self.isolation(group)
        placed = self._placed.get(group)
        if placed is None or placed.isolation != isolation or group not in self._seen_at:
            found = [(key, self.source(key, isolation)) for key in self.by_group.get(group, ())]
            places = [(key, source) for key, source in found if source is not None]
            placed = self._placed[group] = Placed(
                isolation, places, {source for _, source in places}
            )
            await portions.give_way()
        return placed, not placed.looked_at

    def isolation(self, group: str) -> int:
        """The log as the group's members see it: its end differs with the isolation level."""
        return isolation_of(self.offsets.windows.dependencies.settings.of(group))

    def source(self, key: WindowKey, isolation: int) -> Source | None:
        """None: the topic is gone."""
        topic = self._topics.get(key.topic_id)
        if topic is None:
            return None
        return Source(TopicPartition(topic.name, topic.topic_id, key.partition), isolation)
