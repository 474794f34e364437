"""The lag of Key-Shared groups: per partition, the unsettled records between the cursor and the end
of the log that members may read.

A group that stopped must not look as if it kept up: its lag grows with the log, although no member
reads and its windows have left memory. So every `LAG_MS` the positions of all groups of the node
are read, and upstream is asked for the ends of their logs. A window that is not in memory has its
last known position, or the one of the store, with the records settled beyond the cursor. Holes of a
compacted log count until they are read. A partition without a leader keeps its last known end.

A window in memory has the cursor and the read position of now, as the lag in seconds is that of
now: a lag of 0 never stands beside an age. Its lag may be too high by the records of the span that
were settled since the last look.

The lag in seconds is the age of the oldest unsettled record (oldest_records.py), by the record's
own timestamp and the node's clock, at the time of the question. It is 0 where the log has no
unsettled record, and not known (never 0) where the record's time is not.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from time import perf_counter
from typing import NamedTuple

import structlog

from dispatcher.store.base import Counts, WindowKey
from gateway.core.cluster.topology import Topic, TopicPartition
from gateway.core.reading.cache import Source
from gateway.core.wire.errors import EncodeError
from gateway.operations.errors import StateUnavailable
from gateway.operations.group_offsets import GroupOffsets, Position
from gateway.operations.lag_sums import GroupLag, LagSum, TopicSum
from gateway.operations.limits import (
    LAG_MS,
    LAG_PAUSE_FACTOR,
    LAG_REFRESH_S_MAX,
    LAG_STORED_MS,
    LAG_WATCHED_MS,
    LAGS_AT_ONCE,
    OLDEST_LOOK_S_MAX,
)
from gateway.operations.log_ends import LogEnds
from gateway.operations.oldest_records import OldestRecords, Place
from gateway.operations.portions import Portions
from gateway.upstream.errors import UpstreamError
from gateway.windows.start_position import isolation_of

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

    def end_seen(self, read_position: int | None) -> int | None:
        """The end of the log; a window may have read beyond it since the last look."""
        return None if self.log_end is None else max(self.log_end, read_position or 0)


class _Known(NamedTuple):
    """The figures of one group's partition. `end` None: not seen yet."""

    cursor: int
    read_position: int  # the cursor of a window that is not in memory
    settled: int  # behind the cursor, at least
    end: int | None

    @property
    def records(self) -> int | None:
        return None if self.end is None else max(0, self.end - self.cursor - self.settled)


@dataclass(slots=True)
class _Placed:
    """The places of a group's positions: as long as it rests, they are the same."""

    isolation: int
    places: list[tuple[WindowKey, Source]]
    sources: set[Source]
    looked_at: bool = False  # for the times of their oldest records


@dataclass(slots=True)
class Lags:
    offsets: GroupOffsets
    oldest: OldestRecords
    now_ms: Callable[[], int]
    _positions: dict[str, dict[WindowKey, Position]] = field(default_factory=dict)  # by group
    _seen_at: dict[str, int] = field(default_factory=dict)  # the group's rest, at that look
    _placed: dict[str, _Placed] = field(default_factory=dict)
    _unknown: set[str] = field(default_factory=set)  # groups with records whose time is not known
    _sums: dict[str, LagSum] = field(default_factory=dict)
    _looks: Counter[str] = field(default_factory=Counter)  # that found other figures, by group
    _topics: dict[str, Topic] = field(default_factory=dict)  # by the text of their ids
    _failed: str = ""
    _told: list[Callable[[Portions], Awaitable[None]]] = field(default_factory=list)
    _watched: asyncio.Event = field(default_factory=asyncio.Event)
    clock: Callable[[], float] = perf_counter  # seconds
    _ends: LogEnds = field(init=False)

    def __post_init__(self) -> None:
        self._ends = LogEnds(self.offsets.upstream)

    async def refresh_forever(self) -> None:
        stored_ms = 0  # Unix time
        while True:
            began_ms = self.now_ms()
            portions = Portions(self.clock)
            stored = began_ms - stored_ms >= LAG_STORED_MS
            try:
                await self.refresh(stored=stored, portions=portions)
            except (StateUnavailable, UpstreamError) as error:
                if str(error) != self._failed:
                    log.info("lag_not_known", reason=str(error))
                self._failed = str(error)
            except EncodeError:
                return  # an upstream that knows no topic ids
            except Exception:  # A figure is not worth the node.
                log.exception("lag_not_looked_at")
            else:
                stored_ms = began_ms if stored else stored_ms
                self._failed = ""
            await self._tell(portions)
            await self._pause(int(portions.worked_s * 1_000))

    def on_look(self, tell: Callable[[Portions], Awaitable[None]]) -> None:
        """After each look at all groups."""
        self._told.append(tell)

    async def _tell(self, portions: Portions) -> None:
        for tell in self._told:
            try:
                await tell(portions)
            except Exception:  # A figure is not worth the node.
                log.exception("lag_not_told")

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

    async def refresh(self, *, stored: bool, portions: Portions | None = None) -> None:
        """`stored`: also at windows that only the store has. Raises StateUnavailable,
        UpstreamError.
        """
        portions = portions or Portions(self.clock)
        groups = self.offsets.groups
        for name in dict.fromkeys([*self._positions, *self._seen_at, *self._placed, *self._looks]):
            if groups.get(name) is None:
                self._forget_group(name)
        failure: StateUnavailable | None = None
        for group in groups.all() if stored else ():
            try:
                await self._positions_in_store(group.name)
            except StateUnavailable as error:  # Logs grow meanwhile.
                failure = error
                break
            portions.begin()
            await portions.give_way()
        for name in dict.fromkeys([*self._positions, *self.offsets.windows.names()]):
            await self._positions_in_memory(name, portions)
        await self._resolve_topics()
        portions.begin()
        ends: set[Source] = set()
        for name in list(self._positions):
            placed, _ = await self._places(name, portions)
            ends |= placed.sources
        await self._ends.look(ends, all_there_are=True)
        portions.begin()
        await self._look_for_oldest(portions, again=stored)
        if failure is not None:
            raise failure

    async def refresh_group(self, group: str) -> None:
        """At one group, for a waiting caller; figures that come too late stay as they were."""
        try:
            async with asyncio.timeout(LAG_REFRESH_S_MAX):
                await self._refresh_group(group)
        except (StateUnavailable, UpstreamError, EncodeError, TimeoutError) as error:
            log.info("lag_not_known", group=group, reason=str(error) or "timeout")

    async def _refresh_group(self, group: str) -> None:
        portions = Portions(self.clock, factor=0)
        failure: StateUnavailable | None = None
        try:
            await self._positions_in_store(group)
        except StateUnavailable as error:
            failure = error
        await self._positions_in_memory(group, portions)
        await self._resolve_topics()
        placed, _ = await self._places(group, portions)
        await self._ends.look(placed.sources)
        if await self.oldest.look(await self._unsettled(placed, portions), again=True):
            self._unknown.add(group)
        self._looks[group] += 1
        if failure is not None:
            raise failure

    def all(self) -> Iterator[Lag]:
        """As of the last look, by group, topic id and partition. The seconds are as of now, and so
        is the cursor of a window in memory.
        """
        for name in sorted(self._positions):
            yield from sorted(self.of_group(name), key=_place_of)

    async def walk(self) -> AsyncIterator[Lag]:
        """As `all`, in no order; other work goes on meanwhile."""
        for name in list(self._positions):
            for at, lag in enumerate(self.of_group(name), 1):
                yield lag
                if at % LAGS_AT_ONCE == 0:
                    await asyncio.sleep(0)
            await asyncio.sleep(0)

    def of_group(self, group: str) -> Iterator[Lag]:
        """As `all`, in no order."""
        if self.offsets.groups.get(group) is not None:
            now_ms = self.now_ms()
            isolation = self._isolation(group)
            for key, position in list(self._positions.get(group, {}).items()):
                source = self._source(key, isolation)
                if source is not None:
                    yield self._lag(key, position, source, now_ms)

    async def by_group(
        self, portions: Portions | None = None, *, names: Iterable[str] | None = None
    ) -> dict[str, GroupLag]:
        """As `all`, in sum. Other work goes on meanwhile. `names`: of these groups only."""
        now_ms = self.now_ms()
        sums = await self.sums(portions, names=names)
        return {name: GroupLag(it.records, it.seconds(now_ms)) for name, it in sums.items()}

    async def sums(
        self, portions: Portions | None = None, *, names: Iterable[str] | None = None
    ) -> dict[str, LagSum]:
        """As `by_group`, with the sums of each topic."""
        portions = portions or Portions(self.clock)
        sums: dict[str, LagSum] = {}
        for name in list(self._positions if names is None else names):
            if name in self._positions and self.offsets.groups.get(name) is not None:
                known = self._sums.get(name)
                if known is None or known.of is None or known.of != self._as_of(name):
                    known = self._sums[name] = self._sum(name)
                    await portions.give_way()
                if known.partitions:
                    sums[name] = known
        return sums

    # --------------------------------------------------------------------------------------- inside

    def _as_of(self, group: str) -> tuple[int, int] | None:
        """Equal: all figures of the group are as they were, but for the age of its records."""
        rest = self.offsets.windows.ticks.rest_of(group)
        return None if rest is None else (rest, self._looks[group])

    def _sum(self, group: str) -> LagSum:
        total = LagSum(self._as_of(group))
        isolation = self._isolation(group)
        for key, position in self._positions.get(group, {}).items():
            source = self._source(key, isolation)
            if source is not None:
                known = self._known(key, position, source)
                total.partitions += 1
                total.add(known.records, *self._oldest_ms(key, known, source))
                total.topics.setdefault(source.tp.topic, TopicSum()).add(known.end, known.records)
        return total

    def _lag(self, key: WindowKey, position: Position, source: Source, now_ms: int) -> Lag:
        it = self._known(key, position, source)
        caught_up, oldest_ms = self._oldest_ms(key, it, source)
        seconds = 0.0 if caught_up else None
        if oldest_ms is not None:
            seconds = max(0, now_ms - oldest_ms) / 1000
        return Lag(key.group, source.tp, it.cursor, it.end, it.records, seconds, it.settled)

    def _known(self, key: WindowKey, position: Position, source: Source) -> _Known:
        """All figures are of one moment, so that they agree."""
        window = self.offsets.windows.find(key)
        core = None if window is None else window.dispatcher
        end = self._ends.of(source)
        if core is None:
            return _Known(position.offset, position.offset, position.settled, end)
        cursor, read_position = core.cursor, core.read_position
        passed = cursor - position.offset
        # So many at least are still behind the cursor. One that went back is of another life.
        settled = max(0, position.settled - passed) if passed >= 0 else 0
        settled = max(settled, core.passed)
        return _Known(
            cursor, read_position, settled, None if end is None else max(end, read_position)
        )

    def _forget_group(self, group: str) -> None:
        self.oldest.forget(self._positions.pop(group, ()))
        self._seen_at.pop(group, None)
        self._placed.pop(group, None)
        self._sums.pop(group, None)
        self._looks.pop(group, None)
        self._unknown.discard(group)

    async def _positions_in_store(self, group: str) -> None:
        """Positions from the store, which has none of an unreliable group: its last ones stay."""
        if not self.offsets.windows.dependencies.settings.of(group).reliable:
            self.offsets.windows.parked.stored(group, {})  # nothing of it is ever parked
            return
        stored = await self.offsets.stored(group)
        counts = await self._counts_in_store(group, stored)
        known = self._positions.get(group, {})
        gone = [key for key in known if key not in stored]
        self.oldest.forget(gone)
        for key in gone:
            del known[key]
        for key, cursor in stored.items():
            if key not in known or known[key].offset != cursor:
                count = counts[key]
                settled = count.settled if count is not None and count.cursor == cursor else 0
                known[key] = Position(cursor, settled)
        if known:
            self._positions[group] = known
        self._seen_at.pop(group, None)
        self._placed.pop(group, None)

    async def _counts_in_store(
        self, group: str, stored: Iterable[WindowKey]
    ) -> dict[WindowKey, Counts | None]:
        windows = self.offsets.windows
        up = {window.key for window in windows.of_group(group) if window.dispatcher is not None}
        counts = await self.offsets.counts(stored, up)
        parked = {key: None if count is None else count.parked for key, count in counts.items()}
        windows.parked.stored(group, parked)
        return counts

    async def _positions_in_memory(self, group: str, portions: Portions) -> None:
        """Of a group at rest they are as they were."""
        windows = self.offsets.windows
        rest = windows.ticks.rest_of(group)
        if rest is not None and self._seen_at.get(group) == rest:
            return
        self._seen_at.pop(group, None)
        for window in windows.of_group(group):
            core = window.dispatcher
            if core is not None:
                position = Position(core.cursor, core.settled_count())
                self._positions.setdefault(group, {})[window.key] = position
                windows.parked.note(window)
                await portions.give_way()  # O(span) each
        self._placed.pop(group, None)
        if rest is not None:
            self._seen_at[group] = rest

    def _oldest_ms(self, key: WindowKey, known: _Known, source: Source) -> tuple[bool, int | None]:
        """Whether nothing waits, and the time of the oldest record that does; None: not known."""
        place, unsettled = self._oldest_place(key, known, source)
        if not unsettled:
            return unsettled is False, None
        return False, self.oldest.timestamp_ms(key, place)

    def _oldest_place(
        self, key: WindowKey, known: _Known, source: Source
    ) -> tuple[Place, bool | None]:
        """The cursor, and whether there are records at it or behind it; None: not known."""
        place = Place(source, known.cursor)
        if known.read_position > known.cursor:
            return place, True  # a hole at the cursor is passed when it is read
        end = known.end
        return place, None if end is None else end > self.oldest.empty_until(key, place)

    async def _unsettled(self, placed: _Placed, portions: Portions) -> dict[WindowKey, Place]:
        """Those that wait for something. The ones that the cache tells of are noted."""
        found: dict[WindowKey, Place] = {}
        for at, (key, source) in enumerate(placed.places, 1):
            position = self._positions.get(key.group, {}).get(key)
            if position is not None:  # not deleted meanwhile
                known = self._known(key, position, source)
                place, unsettled = self._oldest_place(key, known, source)
                if unsettled:
                    self.oldest.remember(key, place)
                    found[key] = place
            if at % LAGS_AT_ONCE == 0:
                await portions.give_way()
        return found

    async def _look_for_oldest(self, portions: Portions, *, again: bool) -> None:
        """Of groups at rest, on logs that did not grow, they are known; `again`: look at all."""
        moved = self._ends.take_moved()
        places: dict[WindowKey, Place] = {}
        looked_at: list[str] = []
        for name in list(self._positions):
            placed, fresh = await self._places(name, portions)
            if again or fresh or name in self._unknown or not placed.sources.isdisjoint(moved):
                placed.looked_at = True
                looked_at.append(name)
                places |= await self._unsettled(placed, portions)
                await portions.give_way()  # also of many groups with few partitions each
        unknown = list(places)
        try:
            async with asyncio.timeout(OLDEST_LOOK_S_MAX):
                unknown = await self.oldest.look(places, again=again)
        except TimeoutError:
            log.info("lag_seconds_not_known", reason="timeout")
        self._unknown = {key.group for key in unknown}
        self._looks.update(looked_at)

    async def _resolve_topics(self) -> None:
        ids = {key.topic_id for positions in self._positions.values() for key in positions}
        topics = await self.offsets.topics_by_id(ids)
        if topics != self._topics:
            self._topics = topics
            self._placed.clear()
        self.offsets.windows.topics.asked_for = {topic.name for topic in topics.values()}

    async def _places(self, group: str, portions: Portions) -> tuple[_Placed, bool]:
        """Of topics that are there; True: they may be others than those looked at last."""
        isolation = self._isolation(group)
        placed = self._placed.get(group)
        if placed is None or placed.isolation != isolation or group not in self._seen_at:
            found = [(key, self._source(key, isolation)) for key in self._positions.get(group, ())]
            places = [(key, source) for key, source in found if source is not None]
            placed = self._placed[group] = _Placed(
                isolation, places, {source for _, source in places}
            )
            await portions.give_way()
        return placed, not placed.looked_at

    def _isolation(self, group: str) -> int:
        """The log as the group's members see it: its end differs with the isolation level."""
        return isolation_of(self.offsets.windows.dependencies.settings.of(group))

    def _source(self, key: WindowKey, isolation: int) -> Source | None:
        """None: the topic is gone."""
        topic = self._topics.get(key.topic_id)
        if topic is None:
            return None
        return Source(TopicPartition(topic.name, topic.topic_id, key.partition), isolation)


def _place_of(lag: Lag) -> tuple[bytes, int]:
    return lag.tp.topic_id, lag.tp.partition
