"""The lag of Key-Shared groups: per partition, the unsettled records between the cursor and the end
of the log that members may read.

A group that stopped must not look as if it kept up: its lag grows with the log, although no member
reads and its windows have left memory. So every `LAG_MS` the positions of all groups of the node
are read, and upstream is asked for the ends of their logs. A window that is not in memory has its
last known position, or the one of the store, with the records settled beyond the cursor. Holes of a
compacted log count until they are read. A partition without a leader keeps its last known end.

Where a transaction that is not ended holds up the readers of committed records, the log ends at
its high watermark once that has lasted (log_ends.py): those records are lag, too, and the first of
them gives the age.

A window in memory has the cursor and the read position of now, as the lag in seconds is that of
now: a lag of 0 never stands beside an age. Its lag may be too high by the records of the span that
were settled since the last look.

The lag in seconds is the age of the oldest unsettled record (oldest_records.py), by the record's
own timestamp and the node's clock, at the time of the question. It is 0 where the log has no
unsettled record, and not known (never 0) where the record's time is not. That of a group is the
highest that is known, and never 0 while that of some partition is not known.
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

from dispatcher.store.base import WindowKey
from gateway.core.cluster.topology import TopicPartition
from gateway.core.health_lines import first_named
from gateway.core.reading.cache import Source
from gateway.core.wire.errors import EncodeError
from gateway.operations.errors import StateUnavailable
from gateway.operations.group_offsets import GroupOffsets, Position
from gateway.operations.lag_positions import LagPositions, Placed
from gateway.operations.lag_sums import GroupLag, LagSum, TopicSum
from gateway.operations.limits import (
    LAG_MS,
    LAG_PAUSE_FACTOR,
    LAG_REFRESH_S_MAX,
    LAG_STORED_MS,
    LAG_TOLD_MS,
    LAG_WATCHED_MS,
    LAGS_AT_ONCE,
    OLDEST_LOOK_S_MAX,
    TRANSACTIONS_NAMED,
)
from gateway.operations.log_ends import LogEnds
from gateway.operations.oldest_records import CursorPosition, OldestRecords
from gateway.operations.portions import Portions
from gateway.upstream.cluster import READ_UNCOMMITTED
from gateway.upstream.errors import UpstreamError

log = structlog.get_logger("keyway.lag")


@dataclass(frozen=True, slots=True)
class Held:
    """An open transaction holds up all readers of committed records: none gets beyond `offset`."""

    offset: int
    seconds: float  # for at least so long


@dataclass(frozen=True, slots=True)
class Lag:
    """The lag of one group's partition. None: the end of its log was not seen yet."""

    group: str
    tp: TopicPartition
    cursor: int
    log_end: int | None
    records: int | None
    seconds: float | None = None  # age of the oldest unsettled record; None: not known
    settled: int = 0  # offsets behind the cursor, as far as is known without loading
    held: Held | None = None

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
class Lags:
    offsets: GroupOffsets
    oldest: OldestRecords
    now_ms: Callable[[], int]
    _unknown: set[str] = field(default_factory=set)  # groups with records whose time is not known
    _sums: dict[str, LagSum] = field(default_factory=dict)
    _looks: Counter[str] = field(default_factory=Counter)  # that found other figures, by group
    _failed: str = ""
    _looked_ms: int = -1  # Unix time of the last whole look that succeeded; -1: nobody looks
    _told: list[Callable[[Portions], Awaitable[None]]] = field(default_factory=list)
    _watched: asyncio.Event = field(default_factory=asyncio.Event)
    clock: Callable[[], float] = perf_counter  # seconds
    _ends: LogEnds = field(init=False)
    _positions: LagPositions = field(init=False)

    def __post_init__(self) -> None:
        self._positions = LagPositions(self.offsets)
        self._ends = LogEnds(self.offsets.upstream, self.now_ms)

    async def refresh_forever(self) -> None:
        stored_ms = 0  # Unix time
        self._looked_ms = self.now_ms()
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
                self._looked_ms = -1
                return  # an upstream that knows no topic ids
            except Exception as bug:  # A figure is not worth the node.
                log.exception("lag_not_looked_at")
                self._failed = type(bug).__name__
            else:
                stored_ms = began_ms if stored else stored_ms
                self._failed, self._looked_ms = "", began_ms
            await self._tell(portions)
            await self._pause(int(portions.worked_s * 1_000))

    def on_look(self, tell: Callable[[Portions], Awaitable[None]]) -> None:
        """The callback is called after each look at all groups."""
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
        """Waits until the next look, so that looks take a small part of the time: a look at many
        windows costs.
        """
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
        for name in dict.fromkeys([*self._positions.known(), *self._looks]):
            if groups.get(name) is None:
                self._forget_group(name)
        failure: StateUnavailable | None = None
        for read in (self._positions.read_store, self._read_commits) if stored else ():
            for group in groups.all():
                try:
                    await read(group.name)
                except StateUnavailable as error:  # Logs grow meanwhile.
                    failure = error
                    break
                portions.begin()
                await portions.give_way()
        for name in dict.fromkeys([*self._positions.by_group, *self.offsets.windows.names()]):
            await self._positions.read_memory(name, portions)
        await self._positions.resolve_topics()
        portions.begin()
        ends: set[Source] = set()
        for name in list(self._positions.by_group):
            placed, _ = await self._positions.places(name, portions)
            ends |= placed.sources
        await self._ends.look(ends, all_there_are=True, transactions=stored)
        portions.begin()
        await self._look_for_oldest(portions, again=stored)
        if failure is not None:
            raise failure

    async def refresh_group(self, group: str) -> None:
        """Looks at one group, for a waiting caller. Figures that come too late stay as they
        were.
        """
        try:
            async with asyncio.timeout(LAG_REFRESH_S_MAX):
                await self._refresh_group(group)
        except (StateUnavailable, UpstreamError, EncodeError, TimeoutError) as error:
            log.info("lag_not_known", group=group, reason=str(error) or "timeout")

    async def _refresh_group(self, group: str) -> None:
        portions = Portions(self.clock, factor=0)
        failure: StateUnavailable | None = None
        try:
            await self._positions.read_store(group)
            await self._read_commits(group)
        except StateUnavailable as error:
            failure = error
        await self._positions.read_memory(group, portions)
        await self._positions.resolve_topics()
        placed, _ = await self._positions.places(group, portions)
        await self._ends.look(placed.sources)
        if await self.oldest.look(await self._unsettled(placed, portions), again=True):
            self._unknown.add(group)
        self._looks[group] += 1
        if failure is not None:
            raise failure

    async def _read_commits(self, group: str) -> None:
        self.oldest.forget(await self._positions.read_commits(group))

    def all(self, left_out: frozenset[str] = frozenset()) -> Iterator[Lag]:
        """All lags as of the last look, by group, topic id and partition, but those of the groups
        `left_out`. The seconds and the cursors of windows in memory are as of now.
        """
        for name in sorted(self._positions.by_group.keys() - left_out):
            yield from sorted(self.of_group(name), key=_place_of)

    async def walk(self) -> AsyncIterator[Lag]:
        """As `all`, in no particular order; other work goes on meanwhile."""
        for name in list(self._positions.by_group):
            for at, lag in enumerate(self.of_group(name), 1):
                yield lag
                if at % LAGS_AT_ONCE == 0:
                    await asyncio.sleep(0)
            await asyncio.sleep(0)

    def of_group(self, group: str) -> Iterator[Lag]:
        """As `all`, of one group and in no particular order."""
        if self.offsets.groups.get(group) is not None:
            now_ms = self.now_ms()
            isolation = self._positions.isolation(group)
            for key, position in self._positions.of(group):
                source = self._positions.source(key, isolation)
                if source is not None:
                    yield self._lag(key, position, source, now_ms)

    async def by_group(
        self, portions: Portions | None = None, *, names: Iterable[str] | None = None
    ) -> dict[str, GroupLag]:
        """The sum of each group's lags; other work goes on meanwhile. `names`: of these groups
        only.
        """
        now_ms = self.now_ms()
        sums = await self.sums(portions, names=names)
        return {
            name: GroupLag(total.records, total.seconds(now_ms), total.held)
            for name, total in sums.items()
        }

    async def sums(
        self, portions: Portions | None = None, *, names: Iterable[str] | None = None
    ) -> dict[str, LagSum]:
        """The sums of each group, and of each of its topics."""
        portions = portions or Portions(self.clock)
        sums: dict[str, LagSum] = {}
        for name in list(self._positions.by_group if names is None else names):
            if name in self._positions.by_group and self.offsets.groups.get(name) is not None:
                known = self._sums.get(name)
                if known is None or known.of is None or known.of != self._as_of(name):
                    known = self._sums[name] = self._sum(name)
                    await portions.give_way()
                if known.partitions:
                    sums[name] = known
        return sums

    def warnings(self) -> list[str]:
        """Whether the figures are old; and a line for each log that an open transaction holds up,
        of many the first by name and their number.
        """
        now_ms = self.now_ms()
        old_ms = now_ms - self._looked_ms if self._looked_ms >= 0 else 0
        said = []
        if old_ms >= LAG_TOLD_MS:
            reason = self._failed or "a look takes so long"
            said.append(f"the lag of groups may be {old_ms // 1000} s old: {reason}")
        held = sorted(self._ends.all_held())
        lines = (
            f"{tp.topic}-{tp.partition} waits for an open transaction at offset {begun.begins}, for"
            f" {(now_ms - begun.since_ms) // 1000} s or longer:"
            f" {begun.high_watermark - begun.begins} offsets are behind it"
            for (tp, _), begun in held
        )
        others = "so do {} more partitions"
        return said + first_named(lines, len(held), TRANSACTIONS_NAMED, others)

    # --------------------------------------------------------------------------------------- inside

    def _as_of(self, group: str) -> tuple[int, int] | None:
        """Equal: all figures of the group are as they were, but for the age of its records."""
        rest = self.offsets.windows.ticks.rest_of(group)
        return None if rest is None else (rest, self._looks[group])

    def _sum(self, group: str) -> LagSum:
        total = LagSum(self._as_of(group))
        isolation = self._positions.isolation(group)
        for key, position in self._positions.of(group):
            source = self._positions.source(key, isolation)
            if source is not None:
                known = self._known(key, position, source)
                total.add(known.records, *self._oldest_ms(key, known, source))
                total.held += self._ends.held(source) is not None
                total.topics.setdefault(source.tp.topic, TopicSum()).add(known.end, known.records)
        return total

    def _lag(self, key: WindowKey, position: Position, source: Source, now_ms: int) -> Lag:
        known = self._known(key, position, source)
        caught_up, oldest_ms = self._oldest_ms(key, known, source)
        seconds = 0.0 if caught_up else None
        if oldest_ms is not None:
            seconds = max(0, now_ms - oldest_ms) / 1000
        begun = self._ends.held(source)
        held = None if begun is None else Held(begun.begins, (now_ms - begun.since_ms) / 1000)
        figures = (known.cursor, known.end, known.records, seconds, known.settled)
        return Lag(key.group, source.tp, *figures, held)

    def _known(self, key: WindowKey, position: Position, source: Source) -> _Known:
        """What is known of one partition. All figures are of one moment, so that they agree."""
        window = self.offsets.windows.find(key)
        core = None if window is None else window.dispatcher
        end = self._ends.of(source)
        if core is None:
            return _Known(position.offset, position.offset, position.settled, end)
        cursor, read_position = core.cursor, core.read_position
        passed = cursor - position.offset
        # At least this many are still behind the cursor. A cursor that went back has another life.
        settled = max(0, position.settled - passed) if passed >= 0 else 0
        settled = max(settled, core.passed)
        return _Known(
            cursor, read_position, settled, None if end is None else max(end, read_position)
        )

    def _forget_group(self, group: str) -> None:
        self.oldest.forget(self._positions.forget(group))
        self.offsets.windows.parked.forget(group)  # it may have gone while the store was asked
        self._sums.pop(group, None)
        self._looks.pop(group, None)
        self._unknown.discard(group)

    def _oldest_ms(self, key: WindowKey, known: _Known, source: Source) -> tuple[bool, int | None]:
        """Whether nothing waits, and the time of the oldest record that does; None: not known."""
        place, unsettled = self._oldest_place(key, known, source)
        if not unsettled:
            return unsettled is False, None
        return False, self.oldest.timestamp_ms(key, place)

    def _oldest_place(
        self, key: WindowKey, known: _Known, source: Source
    ) -> tuple[CursorPosition, bool | None]:
        """The cursor, and whether there are records at it or behind it; None: not known."""
        place = CursorPosition(source, known.cursor)
        if known.read_position > known.cursor:
            return place, True  # a hole at the cursor is passed when it is read
        begun = self._ends.held(source)
        if begun is not None and known.cursor >= begun.begins:
            return CursorPosition(Source(source.tp, READ_UNCOMMITTED), known.cursor), True
        end = known.end
        return place, None if end is None else end > self.oldest.empty_until(key, place)

    async def _unsettled(
        self, placed: Placed, portions: Portions
    ) -> dict[WindowKey, CursorPosition]:
        """The windows with unsettled records, and where. Those whose oldest record the cache knows
        are noted.
        """
        found: dict[WindowKey, CursorPosition] = {}
        for at, (key, source) in enumerate(placed.places, 1):
            position = self._positions.find(key)
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
        """Looks for the oldest records. Those of groups at rest, on logs that did not grow, are
        known. `again`: look for all.
        """
        moved = self._ends.take_moved()
        places: dict[WindowKey, CursorPosition] = {}
        looked_at: list[str] = []
        for name in list(self._positions.by_group):
            placed, fresh = await self._positions.places(name, portions)
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


def _place_of(lag: Lag) -> tuple[bytes, int]:
    return lag.tp.topic_id, lag.tp.partition
