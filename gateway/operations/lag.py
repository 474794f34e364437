"""The lag of Key-Shared groups: per partition, the unsettled records between the cursor and the end
of the log that members may read.

A group that stopped must not look as if it kept up: its lag grows with the log, although no member
reads and its windows have left memory. So every `LAG_MS` the positions of all groups of the node
are read, and upstream is asked for the ends of their logs. A window that is not in memory has its
last known position, or the one of the store. The records settled beyond the cursor of the latter
are not known here, so its lag may be too high by their number. Holes of a compacted log count until
they are read. A partition without a leader keeps its last known end.

The lag in seconds is the age of the oldest unsettled record (oldest_records.py), by the record's
own timestamp and the node's clock, at the time of the question. It is 0 where the log has no
unsettled record, and not known (never 0) where the record's time is not.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field

import structlog

from dispatcher.store.base import WindowKey
from gateway.core.cluster.topology import Topic, TopicPartition
from gateway.core.reading.cache import Source
from gateway.core.reading.fetching import leader_of
from gateway.core.wire.errors import EncodeError
from gateway.operations.errors import StateUnavailable
from gateway.operations.group_offsets import GroupOffsets, Position
from gateway.operations.limits import (
    LAG_ANSWER_S_MAX,
    LAG_ENDS_AT_ONCE,
    LAG_MS,
    LAG_PAUSE_FACTOR,
    LAG_REFRESH_S_MAX,
    LAG_STORED_EVERY,
    LAG_WATCHED_MS,
    LAGS_AT_ONCE,
    OLDEST_LOOK_S_MAX,
)
from gateway.operations.oldest_records import OldestRecords, Place
from gateway.upstream.cluster import LATEST
from gateway.upstream.errors import UpstreamError
from gateway.upstream.requests import offsets_at_leader
from gateway.windows.start_position import isolation_of
from gateway.windows.window import Window

log = structlog.get_logger("keyway.lag")


@dataclass(frozen=True, slots=True)
class Lag:
    """Of one group's partition. None: the end of its log was not seen yet."""

    group: str
    tp: TopicPartition
    cursor: int
    log_end: int | None
    records: int | None
    seconds: float | None = None  # age of the oldest unsettled record; None: not known
    settled: int = 0  # offsets behind the cursor, as far as is known without loading


@dataclass(slots=True)
class GroupLag:
    """Records behind, and the age of the oldest of them. None: not known of any partition."""

    records: int | None = None
    seconds: float | None = None

    def add(self, lag: Lag) -> None:
        if lag.records is not None:
            self.records = lag.records + (self.records or 0)
        if lag.seconds is not None:
            self.seconds = max(lag.seconds, self.seconds or 0.0)


@dataclass(slots=True)
class Lags:
    offsets: GroupOffsets
    oldest: OldestRecords
    now_ms: Callable[[], int]
    _positions: dict[WindowKey, Position] = field(default_factory=dict)  # as seen last
    _topics: dict[str, Topic] = field(default_factory=dict)  # by the text of their ids
    _ends: dict[Source, int] = field(default_factory=dict)
    _failed: str = ""
    _watched: asyncio.Event = field(default_factory=asyncio.Event)

    async def refresh_forever(self) -> None:
        refreshes = 0
        while True:
            began_ms = self.now_ms()
            try:
                await self.refresh(stored=refreshes % LAG_STORED_EVERY == 0)
            except (StateUnavailable, UpstreamError) as error:
                if str(error) != self._failed:
                    log.info("lag_not_known", reason=str(error))
                self._failed = str(error)
            except EncodeError:
                return  # an upstream that knows no topic ids
            except Exception:  # A figure is not worth the node.
                log.exception("lag_not_looked_at")
            else:
                refreshes += 1
                self._failed = ""
            await self._pause(self.now_ms() - began_ms)

    def watched(self) -> None:
        """Somebody looks all the time: the next look comes after LAG_WATCHED_MS."""
        self._watched.set()

    async def _pause(self, took_ms: int) -> None:
        """Until the next look. A look at many windows costs: it takes a small part of the time."""
        self._watched.clear()
        least_ms = min(LAG_MS, max(LAG_WATCHED_MS, LAG_PAUSE_FACTOR * took_ms))
        await asyncio.sleep(least_ms / 1000)
        with suppress(TimeoutError):
            async with asyncio.timeout((LAG_MS - least_ms) / 1000):
                await self._watched.wait()

    async def refresh(self, *, stored: bool) -> None:
        """`stored`: also at windows that only the store has. Raises StateUnavailable,
        UpstreamError.
        """
        groups = self.offsets.groups
        for key in [key for key in self._positions if groups.get(key.group) is None]:
            del self._positions[key]
        for group in groups.all() if stored else ():
            await self._positions_in_store(group.name)
        await self._positions_in_memory(self.offsets.windows.all())
        await self._resolve_topics()
        ends = {self._source(key, tp) for key, tp in self._places()}
        self._ends = {of: end for of, end in self._ends.items() if of in ends}
        await self._fetch_log_ends(ends)
        await self._look_for_oldest(again=stored)

    async def refresh_group(self, group: str) -> None:
        """At one group, for a waiting caller; figures that come too late stay as they were."""
        try:
            async with asyncio.timeout(LAG_REFRESH_S_MAX):
                await self._refresh_group(group)
        except (StateUnavailable, UpstreamError, EncodeError, TimeoutError) as error:
            log.info("lag_not_known", group=group, reason=str(error) or "timeout")

    async def _refresh_group(self, group: str) -> None:
        await self._positions_in_store(group)
        await self._positions_in_memory(self.offsets.windows.of_group(group))
        await self._resolve_topics()
        places = [(key, tp) for key, tp in self._places() if key.group == group]
        await self._fetch_log_ends({self._source(key, tp) for key, tp in places})
        await self.oldest.look(await self._unsettled(places), again=True)

    def all(self) -> Iterator[Lag]:
        """As of the last look, by group, topic id and partition; the seconds as of now."""
        now_ms = self.now_ms()
        for key, _ in sorted(self._places()):
            lag = self._lag(key, now_ms)
            if lag is not None:
                yield lag

    async def walk(self) -> AsyncIterator[Lag]:
        """As `all`, in no order; other work goes on meanwhile."""
        now_ms = self.now_ms()
        for at, key in enumerate(list(self._positions), 1):
            lag = self._lag(key, now_ms)
            if lag is not None:
                yield lag
            if at % LAGS_AT_ONCE == 0:
                await asyncio.sleep(0)

    def of_group(self, group: str) -> Iterator[Lag]:
        """As `all`, in no order."""
        now_ms = self.now_ms()
        for key in [key for key in self._positions if key.group == group]:
            lag = self._lag(key, now_ms)
            if lag is not None:
                yield lag

    async def by_group(self) -> dict[str, GroupLag]:
        """As of the last look; the seconds as of now. Other work goes on meanwhile."""
        sums: dict[str, GroupLag] = {}
        async for lag in self.walk():
            sums.setdefault(lag.group, GroupLag()).add(lag)
        return sums

    # --------------------------------------------------------------------------------------- inside

    def _lag(self, key: WindowKey, now_ms: int) -> Lag | None:
        """None for a topic or a position that is not there any more."""
        topic, position = self._topics.get(key.topic_id), self._positions.get(key)
        if topic is None or position is None:
            return None
        tp = TopicPartition(topic.name, topic.topic_id, key.partition)
        source = self._source(key, tp)
        end = self._ends.get(source)
        behind = None if end is None else max(0, end - position.offset - position.settled)
        seconds = self._seconds(key, source, now_ms)
        return Lag(key.group, tp, position.offset, end, behind, seconds, position.settled)

    async def _positions_in_store(self, group: str) -> None:
        """Positions from the store, which has none of an unreliable group: its last ones stay."""
        if not self.offsets.windows.dependencies.settings.of(group).reliable:
            return
        stored = await self.offsets.stored(group)
        for key in [key for key in self._positions if key.group == group]:
            if key not in stored:
                del self._positions[key]
        for key, cursor in stored.items():
            if key not in self._positions or self._positions[key].offset != cursor:
                self._positions[key] = Position(cursor)

    async def _positions_in_memory(self, windows: Iterable[Window]) -> None:
        for window in windows:
            core = window.dispatcher
            if core is not None:
                settled = sum(last - first + 1 for first, last in core.settled_ranges())
                self._positions[window.key] = Position(core.cursor, settled)
                await asyncio.sleep(0)  # O(span) each

    def _seconds(self, key: WindowKey, source: Source, now_ms: int) -> float | None:
        place, unsettled = self._oldest_place(key, source)
        if not unsettled:
            return None if unsettled is None else 0.0
        timestamp_ms = self.oldest.timestamp_ms(key, place)
        return None if timestamp_ms is None else max(0, now_ms - timestamp_ms) / 1000

    def _oldest_place(self, key: WindowKey, source: Source) -> tuple[Place, bool | None]:
        """The cursor, and whether there are records at it or behind it; None: not known."""
        window = self.offsets.windows.find(key)
        core = None if window is None else window.dispatcher
        place = Place(source, self._positions[key].offset if core is None else core.cursor)
        if core is not None and core.read_position > place.cursor:
            return place, True  # a hole at the cursor is passed when it is read
        end = self._ends.get(source)
        return place, None if end is None else end > self.oldest.empty_until(key, place)

    async def _unsettled(
        self, places: Iterable[tuple[WindowKey, TopicPartition]]
    ) -> dict[WindowKey, Place]:
        """Those that wait for something. The ones that the cache tells of are noted."""
        found: dict[WindowKey, Place] = {}
        for at, (key, tp) in enumerate(places, 1):
            if key in self._positions:  # not deleted meanwhile
                place, unsettled = self._oldest_place(key, self._source(key, tp))
                if unsettled:
                    self.oldest.remember(key, place)
                    found[key] = place
            if at % LAGS_AT_ONCE == 0:
                await asyncio.sleep(0)
        return found

    async def _look_for_oldest(self, *, again: bool) -> None:
        self.oldest.keep(self._positions)
        places = await self._unsettled(self._places())
        try:
            async with asyncio.timeout(OLDEST_LOOK_S_MAX):
                await self.oldest.look(places, again=again)
        except TimeoutError:
            log.info("lag_seconds_not_known", reason="timeout")

    async def _resolve_topics(self) -> None:
        self._topics = await self.offsets.topics_by_id({key.topic_id for key in self._positions})
        self.offsets.windows.asked_for = {topic.name for topic in self._topics.values()}

    def _places(self) -> list[tuple[WindowKey, TopicPartition]]:
        """Of groups and topics that are there."""
        groups = self.offsets.groups
        return [
            (key, TopicPartition(topic.name, topic.topic_id, key.partition))
            for key in self._positions
            if groups.get(key.group) is not None
            and (topic := self._topics.get(key.topic_id)) is not None
        ]

    def _source(self, key: WindowKey, tp: TopicPartition) -> Source:
        """The log as the group's members see it: its end differs with the isolation level."""
        return Source(tp, isolation_of(self.offsets.windows.dependencies.settings.of(key.group)))

    async def _fetch_log_ends(self, logs: Iterable[Source]) -> None:
        by_leader: dict[tuple[int, int], list[TopicPartition]] = {}
        topology = self.offsets.upstream.topology
        for tp, isolation in sorted(logs):
            leader = leader_of(topology, tp)
            if leader is not None:
                by_leader.setdefault((leader, isolation), []).append(tp)
        for (leader, isolation), led in by_leader.items():
            for at in range(0, len(led), LAG_ENDS_AT_ONCE):
                await self._fetch_log_ends_of_leader(
                    leader, isolation, led[at : at + LAG_ENDS_AT_ONCE]
                )

    async def _fetch_log_ends_of_leader(
        self, leader: int, isolation: int, led: list[TopicPartition]
    ) -> None:
        asked = {(tp.topic, tp.partition): tp for tp in led}
        # A time limit of the call itself would end the connection, which others wait on, too.
        try:
            async with asyncio.timeout(LAG_ANSWER_S_MAX):
                answers = await offsets_at_leader(
                    self.offsets.upstream, leader, asked, LATEST, isolation
                )
        except (UpstreamError, TimeoutError):
            return  # gateway/upstream/cluster.py has logged it; the other brokers' count
        for place, (code, end) in answers.items():
            if code == 0:
                self._ends[Source(asked[place], isolation)] = end
