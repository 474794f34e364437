"""Reading records for windows: a pool of fetches per upstream broker, which fill the cache
(read_records.py).

`read_on` is a wish for one result, from the cache or else by a Fetch. The records of one Fetch
serve every wish they can; the rest stays in the cache. A wish is never dropped: a failure is tried
again, until the topic has been unknown for a while, and the result says so. Sinks are called from
this module's task.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

import structlog

from gateway.core.cluster.topology import TopicPartition, Topology
from gateway.core.limits import REST_MS, RETRY_BASE_MS
from gateway.core.reading.cache import Source, epoch_max_of
from gateway.core.reading.fetch_messages import (
    brings_nothing,
    divergence,
    end_of_first,
    shortest_first,
    why_unplaced,
)
from gateway.core.reading.fetching import (
    Fetch,
    FetchPosition,
    FetchSchedule,
    ReadResult,
    leader_of,
    shown_of,
)
from gateway.core.wire.errors import ErrorCode
from gateway.core.wire.records import CorruptBatch, TooLargeBatch
from gateway.core.wire.schema import Message
from gateway.reading.failing_reads import FailingReads
from gateway.reading.limits import (
    CACHE_BYTES_MAX,
    FETCH_LANES,
    LEADER_LAGS_MS_MAX,
    TURN_ANSWERS,
    UNKNOWN_TOPIC_MS,
)
from gateway.reading.read_records import LogBounds, ReadRecords
from gateway.reading.refetch import FIRST_FETCH_LANE, fetched, monotonic_ms
from gateway.upstream.cluster import EARLIEST, LATEST, Upstream
from gateway.upstream.errors import Refused, UpstreamError

log = structlog.get_logger("keyway.reader")

WORTH_A_LINE_MS = 1_000  # a new topic, or a moved leader, is found well within this
WISHES_TURNS_MAX = 8  # of the event loop; two or three are usual

# Errors that a sink hears of when they last: nothing here will mend them.
_LASTING = (
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.UNKNOWN_TOPIC_ID,
    ErrorCode.INCONSISTENT_TOPIC_ID,
    ErrorCode.TOPIC_AUTHORIZATION_FAILED,
)


Sink = Callable[[ReadResult], None]


@dataclass(slots=True)
class _Wish:
    """Records of a later leader epoch than `epoch_max` may belong to another log than those that
    the sink has: they have to come from a fetch that asks for its place.
    """

    place: FetchPosition
    offsets_max: int
    epoch_max: int
    awaited: bool


class Reader:
    """`run()` belongs in a task group, and must run for anything to be read."""

    def __init__(self, upstream: Upstream, *, cache_bytes_max: int = CACHE_BYTES_MAX) -> None:
        self.records = ReadRecords(upstream, cache_bytes_max=cache_bytes_max)
        self.failing = FailingReads()
        self._upstream = upstream
        self._schedule = FetchSchedule(FETCH_LANES)
        self._wishes: dict[tuple[Source, Sink], _Wish] = {}
        self._sinks_at: dict[FetchPosition, dict[Sink, None]] = {}
        self._floors: dict[Source, dict[Sink, int]] = {}
        self._due: dict[tuple[Source, Sink], None] = {}  # wishes the cache may be able to meet now
        self._due_event = asyncio.Event()
        # By broker: its lanes look for something to fetch.
        self._work: dict[int, asyncio.Event] = {}
        self._unplaced_event = asyncio.Event()
        self._tasks: asyncio.TaskGroup | None = None
        upstream.on_topology(self._topology_changed)

    # --------------------------------------------------------------------------------------- wishes

    def read_on(
        self,
        source: Source,
        position: int,
        offsets_max: int,
        sink: Sink,
        epoch: int = -1,
        *,
        awaited: bool = True,
    ) -> None:
        """Reads one result that is not empty for `sink`, from `position` on, at most
        `offsets_max` offsets. `epoch`: as in FetchPosition. The result comes later, never at once;
        some milliseconds later than it could if nobody awaits it (`hasten`).

        A second wish of the sink for this partition replaces the first.
        """
        assert offsets_max > 0
        place = FetchPosition(source, position, epoch)
        self._withdraw(source, sink)
        self._wishes[source, sink] = _Wish(place, offsets_max, epoch_max_of(epoch), awaited)
        self._sinks_at.setdefault(place, {})[sink] = None
        self._floors.setdefault(source, {}).setdefault(sink, position)
        self._serve_soon(source, sink)

    def hasten(self, source: Source, sink: Sink) -> None:
        """From now on somebody awaits the result of the sink's wish."""
        wish = self._wishes.get((source, sink))
        if wish is not None and not wish.awaited:
            wish.awaited = True
            self._schedule.hasten(wish.place)
            self._wake(source.tp)

    def stop(self, source: Source, sink: Sink) -> None:
        """The sink hears nothing more of this partition."""
        self._withdraw(source, sink)
        floors = self._floors.get(source, {})
        floors.pop(sink, None)
        if not floors:
            self._forget(source)

    def _forget(self, source: Source) -> None:
        self._floors.pop(source, None)
        self.records.forget(source)

    def forget_below(self, source: Source, offset: int, sink: Sink) -> None:
        """The sink needs nothing below `offset`. A batch that no sink needs leaves the cache."""
        floors = self._floors.get(source)
        if floors is not None and sink in floors:
            floors[sink] = offset
            self.records.cache.forget_below(source, min(floors.values()))

    def _withdraw(self, source: Source, sink: Sink) -> None:
        wish = self._wishes.pop((source, sink), None)
        if wish is None:
            return
        sinks = self._sinks_at[wish.place]
        del sinks[sink]
        if not sinks:
            del self._sinks_at[wish.place]
            self._schedule.drop(wish.place)
            self.failing.dropped(wish.place)

    def _serve_soon(self, source: Source, sink: Sink) -> None:
        self._due[source, sink] = None
        self._due_event.set()

    # ---------------------------------------------------------------------------------------- tasks

    async def run(self) -> None:
        """Serves wishes until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            self._tasks = tasks
            self._topology_changed(self._upstream.topology)
            tasks.create_task(self._serve_due())
            tasks.create_task(self._find_leaders())

    def _topology_changed(self, topology: Topology) -> None:
        self._schedule.hurry()
        for broker in topology.brokers:
            if broker not in self._work and self._tasks is not None:
                self._work[broker] = asyncio.Event()
                for lane in range(FETCH_LANES):
                    self._tasks.create_task(self._fetch_on(broker, lane))
        for event in self._work.values():
            event.set()
        self._unplaced_event.set()

    async def _serve_due(self) -> None:
        while True:
            await self._due_event.wait()
            self._due_event.clear()
            due, self._due = self._due, {}
            for source, sink in due:
                self._serve(source, sink)
            # Only now: all waiting readers have looked at the records just read.
            self.records.shrink()

    def _serve(self, source: Source, sink: Sink) -> None:
        wish = self._wishes.get((source, sink))
        if wish is None:
            return
        columns = self.records.cache.columns(source, wish.place.position, wish.offsets_max)
        bounds = self.records.bounds_of(source)
        if columns is None or columns.epoch > wish.epoch_max:
            at_end = wish.place.position == bounds.end
            rests_with = None if wish.awaited else self._leader(source.tp)
            self._schedule.want(wish.place, at_end=at_end, rests_with=rests_with)
            self._wake(source.tp)
            return
        self._withdraw(source, sink)
        found = (columns.start, columns.end, columns.offsets, columns.keys)
        sink(ReadResult(*found, bounds.start, bounds.end, epoch=columns.epoch))

    def _leader(self, tp: TopicPartition) -> int | None:
        return leader_of(self._upstream.topology, tp)

    def _wake(self, tp: TopicPartition) -> None:
        broker = self._leader(tp)
        event = self._unplaced_event if broker is None else self._work.get(broker)
        if event is not None:
            event.set()

    async def _fetch_on(self, broker: int, lane: int) -> None:
        work = self._work[broker]
        while True:
            work.clear()
            fetch = self._schedule.next_fetch(broker, lane, self._leader, monotonic_ms())
            if fetch is None:
                await work.wait()
                continue
            work.set()  # the rest is for the other lanes
            try:
                await self._fetch(broker, lane, fetch)
                await self._asked_for_more()
            finally:
                self._schedule.lane_free(broker, lane)
            work.set()  # its place may now be for another lane

    async def _fetch(self, broker: int, lane: int, fetch: Fetch) -> None:
        self.records.counts.fetches += 1
        try:
            answers = await fetched(self._upstream, broker, FIRST_FETCH_LANE + lane, fetch)
        except UpstreamError as error:
            code = error.error_code if isinstance(error, Refused) else ErrorCode.NETWORK_EXCEPTION
            for place in fetch.places:
                self._failed(place, code, str(error))
            return
        except Exception as bug:  # An answer that meets one keeps its partitions, not the node.
            log.exception("fetch_not_read", broker=broker)
            for place in fetch.places:
                self._failed(place, ErrorCode.UNKNOWN_SERVER_ERROR, repr(bug))
            return
        if fetch.max_wait_ms and not all(map(brings_nothing, answers.values())):
            self._rest(broker)
        for at, place in enumerate(shortest_first(fetch.places, answers), 1):
            answer = answers[place.source.tp]
            if brings_nothing(answer):
                self.records.note_bounds(place.source, answer)
                self._moved_on(place, place.position, -1)
                if at % TURN_ANSWERS:
                    continue
            else:
                await self._fetched(place, answer)
            await asyncio.sleep(0)  # a full response takes long to scan: others go in between

    def _rest(self, broker: int) -> None:
        self._schedule.rest(broker, monotonic_ms())
        asyncio.get_running_loop().call_later(REST_MS / 1000 + 0.001, self._work[broker].set)

    async def _asked_for_more(self) -> None:
        """Windows that got records ask for more within a few turns of the event loop. Waiting for
        them puts all into one fetch, together with the places that got nothing.
        """
        for _ in range(WISHES_TURNS_MAX):
            if not self._due:
                return
            await asyncio.sleep(0)

    # -------------------------------------------------------------------------------------- answers

    async def _fetched(self, place: FetchPosition, answer: Message) -> None:
        code = answer["ErrorCode"]
        parted = divergence(answer)
        if code == ErrorCode.OFFSET_OUT_OF_RANGE:
            await self._out_of_range(place)
        elif parted is not None:
            self._diverged(place, *parted)
        elif code != 0:
            self._failed(place, code, "answer to a fetch")
        else:
            try:
                end, epoch = await self.records.keep(place, answer)
            except TooLargeBatch as error:
                self._failed(place, error.code, str(error), end_of_first(answer["Records"]))
            except CorruptBatch as error:
                self._failed(place, error.code, str(error))
            except Exception as bug:  # Records that meet one keep their partition, not the node.
                log.exception("records_not_read", topic=place.source.tp.topic)
                self._failed(place, ErrorCode.UNKNOWN_SERVER_ERROR, f"{type(bug).__name__}: {bug}")
            else:
                self._moved_on(place, end, epoch)

    def _moved_on(self, place: FetchPosition, end: int, epoch: int) -> None:
        self.failing.over(place)
        if end > place.position:
            self._schedule.read(place)
            for sink in self._sinks_at.get(place, ()):
                wish = self._wishes[place.source, sink]
                wish.epoch_max = max(wish.epoch_max, epoch)
                self._serve_soon(place.source, sink)
        else:
            bounds = self.records.bounds_of(place.source)
            self._schedule.empty(place, at_end=place.position >= bounds.end)
        if place.source not in self._floors:  # everybody stopped meanwhile
            self._forget(place.source)

    async def _out_of_range(self, place: FetchPosition) -> None:
        tp = place.source.tp
        try:
            log_start = await self._upstream.list_offset(tp, EARLIEST)
            log_end = await self._upstream.list_offset(tp, LATEST, place.source.isolation)
        except UpstreamError as error:
            self._failed(place, ErrorCode.NETWORK_EXCEPTION, str(error))
            return
        self.records.bounds[place.source] = LogBounds(log_start, log_end)
        within = log_start <= place.position <= log_end
        # A broker that does not know of its successor yet answers for a log that is too short.
        shown = shown_of(self._upstream.topology, tp)
        leader_epoch = -1 if shown is None else shown.leader_epoch
        former = place.position > log_end and place.epoch > leader_epoch
        waited_ms = self._schedule.failing_ms(place, monotonic_ms())
        if (within or former) and (place.epoch < 0 or waited_ms < LEADER_LAGS_MS_MAX):
            self._failed(place, ErrorCode.OFFSET_NOT_AVAILABLE, "the leader lags behind")
        elif within:
            self._diverged(place, log_end, -1)  # no leader has got to that epoch
        else:
            self._report(place, ErrorCode.OFFSET_OUT_OF_RANGE)

    def _diverged(self, place: FetchPosition, end: int, epoch: int) -> None:
        self.records.cache.forget_from(place.source, end)
        self._report(place, ErrorCode.OFFSET_OUT_OF_RANGE, diverged_at=end, epoch=epoch)

    def _report(
        self, place: FetchPosition, code: int, *, diverged_at: int = -1, epoch: int = -1
    ) -> None:
        """The final word on a place, to all its sinks."""
        self._schedule.read(place)
        self.failing.dropped(place)
        bounds = self.records.bounds_of(place.source)
        sinks = list(self._sinks_at.get(place, ()))
        position = place.position
        tp = place.source.tp
        log.warning(
            "read_refused", topic=tp.topic, partition=tp.partition, error=code, position=position
        )
        for sink in sinks:
            self._withdraw(place.source, sink)
            result = ReadResult(position, position, [], [], bounds.start, bounds.end, code)
            result.epoch, result.diverged_at = epoch, diverged_at
            sink(result)

    def _failed(self, place: FetchPosition, code: int, reason: str, end: int = -1) -> None:
        """`end`: behind a batch that is too large; its readers may give it up."""
        now_ms = monotonic_ms()
        self._upstream.request_refresh()
        failing_ms = self._schedule.failing_ms(place, now_ms)
        if failing_ms >= WORTH_A_LINE_MS and place in self._sinks_at:  # else nobody reads there
            self.failing.failed(place, code, reason, end)
        if code in _LASTING and failing_ms >= UNKNOWN_TOPIC_MS:
            self._report(place, code)
            return
        pause_ms = self._schedule.failed(place, now_ms)
        asyncio.get_running_loop().call_later(pause_ms / 1000 + 0.001, self._wake, place.source.tp)
        if end > place.position:
            bounds = self.records.bounds_of(place.source)
            for sink in list(self._sinks_at.get(place, ())):
                sink(ReadResult(place.position, end, [], [], bounds.start, bounds.end, code))

    async def _find_leaders(self) -> None:
        """Looks after places that no broker leads: new topics, lost leaders, deleted topics."""
        while True:
            self._unplaced_event.clear()
            places = self._schedule.unplaced(self._leader, monotonic_ms())
            if not places:
                await self._unplaced_event.wait()
                continue
            try:
                await self._upstream.refresh({place.source.tp.topic: None for place in places})
            except UpstreamError:
                await asyncio.sleep(RETRY_BASE_MS / 1000)
                continue
            for place in self._schedule.unplaced(self._leader, monotonic_ms()):
                self._failed(
                    place, why_unplaced(self._upstream.topology, place.source.tp), "leader"
                )
