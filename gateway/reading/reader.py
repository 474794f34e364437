"""Reading records for windows: a pool of fetches per upstream broker, and the cache they fill.

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

from gateway.core.cluster.busiest_topics import BusiestTopics
from gateway.core.cluster.topology import TopicPartition, Topology
from gateway.core.limits import LONG_STEP_BYTES, RETRY_BASE_MS
from gateway.core.reading.cache import BatchCache, Cut, RecordsGone, RecordsLarge, Source
from gateway.core.reading.fetch_messages import (
    Damages,
    Records,
    end_of_first,
    shortest_first,
    why_unplaced,
)
from gateway.core.reading.fetching import (
    Fetch,
    FetchSchedule,
    Place,
    ReadResult,
    Unreadable,
    leader_of,
)
from gateway.core.wire.errors import ErrorCode, error_name
from gateway.core.wire.long_bytes import LongBytes
from gateway.core.wire.records import Batch, CorruptBatch, TooLargeBatch
from gateway.core.wire.schema import Message
from gateway.reading.limits import (
    CACHE_BYTES_MAX,
    FETCH_LANES,
    UNKNOWN_TOPIC_MS,
)
from gateway.reading.record_starts import RecordStarts
from gateway.reading.record_times import RecordTimes
from gateway.reading.refetch import (
    FIRST_FETCH_LANE,
    ReaderCounts,
    Refetches,
    committed_of,
    fetched,
    monotonic_ms,
)
from gateway.upstream.cluster import EARLIEST, LATEST, READ_COMMITTED, Upstream
from gateway.upstream.errors import Refused, UpstreamError

__all__ = ["ReadResult", "Reader", "ReaderCounts", "RecordsGone", "RecordsLarge"]

log = structlog.get_logger("keyway.reader")

NO_BYTES_MAX = 2**63 - 1
WORTH_A_LINE_MS = 1_000  # a new topic, or a moved leader, is found well within this
WISHES_TURNS_MAX = 8  # of the event loop; two or three are usual
MEAN_RECORD_BYTES = 1_024  # a guess until a partition was read

# Errors that a sink hears of when they last: nothing here will mend them.
_LASTING = (
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.UNKNOWN_TOPIC_ID,
    ErrorCode.INCONSISTENT_TOPIC_ID,
    ErrorCode.TOPIC_AUTHORIZATION_FAILED,
)


Sink = Callable[[ReadResult], None]


@dataclass(frozen=True, slots=True)
class _Wish:
    place: Place
    offsets_max: int


@dataclass(frozen=True, slots=True)
class _Bounds:
    log_start: int
    end: int


class Reader:
    """`run()` belongs in a task group, and must run for anything to be read."""

    def __init__(self, upstream: Upstream, *, cache_bytes_max: int = CACHE_BYTES_MAX) -> None:
        self.counts = ReaderCounts()
        self.read_by_topic = BusiestTopics()
        self._upstream = upstream
        self._cache = BatchCache(cache_bytes_max)
        self.record_times = RecordTimes(upstream, self._cache)
        self._damages = Damages()
        self._refetches = Refetches(upstream, self._cache, self.counts, self._keep)
        self.record_starts = RecordStarts(self._refetches)
        self._schedule = FetchSchedule(FETCH_LANES)
        self._long = asyncio.Lock()
        self._wishes: dict[tuple[Source, Sink], _Wish] = {}
        self._sinks_at: dict[Place, dict[Sink, None]] = {}
        self._floors: dict[Source, dict[Sink, int]] = {}
        self._bounds: dict[Source, _Bounds] = {}
        self._mean_bytes: dict[Source, int] = {}
        self._due: dict[tuple[Source, Sink], None] = {}  # wishes the cache may be able to meet now
        self._due_event = asyncio.Event()
        self._work: dict[
            int, asyncio.Event
        ] = {}  # by broker: its lanes look for something to fetch
        self._unplaced_event = asyncio.Event()
        self._tasks: asyncio.TaskGroup | None = None
        # By topic, and why; logged when it starts and when it ends.
        self._failing: dict[str, dict[Place, Unreadable]] = {}
        upstream.on_topology(self._topology_changed)

    # --------------------------------------------------------------------------------------- wishes

    def read_on(
        self,
        tp: TopicPartition,
        position: int,
        offsets_max: int,
        sink: Sink,
        *,
        isolation: int = READ_COMMITTED,
    ) -> None:
        """One result with something in it for `sink`, from `position`, at most `offsets_max`
        offsets; later, never at once.

        A second wish of the sink for this partition replaces the first.
        """
        assert offsets_max > 0
        source = Source(tp, isolation)
        place = Place(source, position)
        self._withdraw(source, sink)
        self._wishes[source, sink] = _Wish(place, offsets_max)
        self._sinks_at.setdefault(place, {})[sink] = None
        self._floors.setdefault(source, {}).setdefault(sink, position)
        self._serve_soon(source, sink)

    def stop(self, tp: TopicPartition, sink: Sink, *, isolation: int = READ_COMMITTED) -> None:
        """The sink hears nothing more of this partition."""
        source = Source(tp, isolation)
        self._withdraw(source, sink)
        floors = self._floors.get(source, {})
        floors.pop(sink, None)
        if not floors:
            self._forget(source)

    def _forget(self, source: Source) -> None:
        self._floors.pop(source, None)
        self._bounds.pop(source, None)
        self._mean_bytes.pop(source, None)
        self._refetches.forget(source)
        self._damages.forget(source)
        self._cache.forget(source)

    def forget_below(
        self, tp: TopicPartition, offset: int, sink: Sink, *, isolation: int = READ_COMMITTED
    ) -> None:
        """The sink's cursor: once no sink of the partition needs a batch it leaves the cache."""
        source = Source(tp, isolation)
        floors = self._floors.get(source)
        if floors is not None and sink in floors:
            floors[sink] = offset
            self._cache.forget_below(source, min(floors.values()))

    def mean_record_bytes(self, tp: TopicPartition, *, isolation: int = READ_COMMITTED) -> int:
        """Of the records read last, uncompressed; at least 1."""
        return self._mean_bytes.get(Source(tp, isolation), MEAN_RECORD_BYTES)

    def log_end(self, tp: TopicPartition, *, isolation: int = READ_COMMITTED) -> int:
        """Behind the last record that consumers may see, as the last fetch said; -1: not known."""
        return self._bounds_of(Source(tp, isolation)).end

    def unreadable(
        self, tp: TopicPartition, position: int, *, isolation: int = READ_COMMITTED
    ) -> Unreadable | None:
        """Why nothing more of a partition can be read at this position; None if it can. It is
        tried again for ever: a group that gives the records up reads on behind them.
        """
        return self._failing.get(tp.topic, {}).get(Place(Source(tp, isolation), position))

    def failing_partitions(self) -> int:
        """How many cannot be read at the moment."""
        places = (place for places in self._failing.values() for place in places)
        return len({place.source for place in places})

    def _withdraw(self, source: Source, sink: Sink) -> None:
        wish = self._wishes.pop((source, sink), None)
        if wish is None:
            return
        sinks = self._sinks_at[wish.place]
        del sinks[sink]
        if not sinks:
            del self._sinks_at[wish.place]
            self._schedule.drop(wish.place)
            self._mended(wish.place)

    def _serve_soon(self, source: Source, sink: Sink) -> None:
        self._due[source, sink] = None
        self._due_event.set()

    # ---------------------------------------------------------------------------------------- bytes

    async def bytes_for(
        self,
        tp: TopicPartition,
        offsets: list[int],
        records_max: int,
        bytes_max: int = NO_BYTES_MAX,
        *,
        isolation: int = READ_COMMITTED,
    ) -> bytes | LongBytes:
        """Batches with exactly these records (ascending), each of at most `records_max`; those that
        have left the cache are read again. Raises RecordsGone, RecordsLarge, UpstreamError.
        """
        source = Source(tp, isolation)
        if self._cache.is_long(source, offsets):
            await self._long_turn()
        ready = self._cache.slices(source, offsets, records_max, bytes_max)
        if ready is not None:
            return ready
        out = Cut(offsets, records_max, bytes_max)
        while (offset := out.next()) is not None:
            piece = self._cache.piece(source, offset)
            if piece is not None:
                end, batch = piece.end, piece.batch
            else:
                end, batch = await self._refetches.piece(source, offset)
                if batch is not None and batch.size > LONG_STEP_BYTES:
                    await self._long_turn()
            out.add(end, batch)
        return out.done()

    async def _long_turn(self) -> None:
        """Returns to one caller only in each turn of the event loop."""
        async with self._long:
            await asyncio.sleep(0)

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
            self.counts.evicted += self._cache.shrink()

    def _bounds_of(self, source: Source) -> _Bounds:
        """Of a source that was never read, or is forgotten: none known."""
        return self._bounds.get(source, _Bounds(-1, -1))

    def _serve(self, source: Source, sink: Sink) -> None:
        wish = self._wishes.get((source, sink))
        if wish is None:
            return
        columns = self._cache.columns(source, wish.place.position, wish.offsets_max)
        bounds = self._bounds_of(source)
        if columns is None:
            at_end = wish.place.position == bounds.end
            self._schedule.want(wish.place, at_end=at_end)
            self._wake(source.tp)
            return
        self._withdraw(source, sink)
        found = (columns.start, columns.end, columns.offsets, columns.keys)
        sink(ReadResult(*found, bounds.log_start, bounds.end))

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
        self.counts.fetches += 1
        try:
            answers = await fetched(self._upstream, broker, FIRST_FETCH_LANE + lane, fetch)
        except UpstreamError as error:
            code = error.error_code if isinstance(error, Refused) else ErrorCode.NETWORK_EXCEPTION
            for place in fetch.places:
                self._failed(place, code, str(error))
            return
        for place in shortest_first(fetch.places, answers):
            await self._fetched(place, answers[place.source.tp])
            await asyncio.sleep(0)  # a full response takes long to scan: others go in between

    async def _asked_for_more(self) -> None:
        """Windows that got records want the next ones within a few turns: those go into one fetch
        with the places that got none.
        """
        for _ in range(WISHES_TURNS_MAX):
            if not self._due:
                return
            await asyncio.sleep(0)

    # -------------------------------------------------------------------------------------- answers

    async def _fetched(self, place: Place, answer: Message) -> None:
        code = answer["ErrorCode"]
        if code == ErrorCode.OFFSET_OUT_OF_RANGE:
            await self._out_of_range(place)
        elif code != 0:
            self._failed(place, code, "answer to a fetch")
        else:
            try:
                end = await self._keep(place, answer)
            except TooLargeBatch as error:
                self._failed(place, error.code, str(error), end_of_first(answer["Records"]))
            except CorruptBatch as error:
                self._failed(place, error.code, str(error))
            else:
                self._moved_on(place, end)

    async def _keep(self, place: Place, answer: Message) -> int:
        """Into the cache; returns the position behind the records. Of many records in turns, and
        without the answer's own bytes, which may be 90 MB, unless they are one long batch. Raises
        CorruptBatch.
        """
        source = place.source
        committed = source.isolation == READ_COMMITTED
        log_end = answer["LastStableOffset"] if committed else answer["HighWatermark"]
        self._bounds[source] = _Bounds(answer["LogStartOffset"], log_end)
        size = len(answer["Records"] or b"")
        self.counts.fetched_bytes += size
        self.read_by_topic.count(source.tp.topic, size)
        batches = await self._scanned(place, answer["Records"] or b"")
        answer["Records"] = None
        if not batches:
            return place.position
        end = batches[-1].last_offset + 1
        committed_batches = committed_of(batches, answer, source.isolation)
        visible = [batch for batch in committed_batches if batch.count]
        if visible:
            records = sum(batch.count for batch in visible)
            self._mean_bytes[source] = 1 + sum(len(batch.body) for batch in visible) // records
        for _ in self._cache.adding(source, place.position, visible, end):
            await asyncio.sleep(0)
        return end

    async def _scanned(self, place: Place, records: Records) -> list[Batch]:
        """Raises CorruptBatch."""
        scan = self._damages.undamaged(place, records)
        while True:
            more = await asyncio.to_thread(scan.step) if scan.long_next else scan.step()
            if not more:
                return scan.batches
            await asyncio.sleep(0)

    def _moved_on(self, place: Place, end: int) -> None:
        self._mended(place)
        if end > place.position:
            self._schedule.read(place)
            for sink in self._sinks_at.get(place, ()):
                self._serve_soon(place.source, sink)
        else:
            bounds = self._bounds_of(place.source)
            self._schedule.empty(place, at_end=place.position >= bounds.end)
        if place.source not in self._floors:  # everybody stopped meanwhile
            self._forget(place.source)

    async def _out_of_range(self, place: Place) -> None:
        tp = place.source.tp
        try:
            log_start = await self._upstream.list_offset(tp, EARLIEST)
            log_end = await self._upstream.list_offset(tp, LATEST, place.source.isolation)
        except UpstreamError as error:
            self._failed(place, ErrorCode.NETWORK_EXCEPTION, str(error))
            return
        bounds = _Bounds(log_start, log_end)
        self._bounds[place.source] = bounds
        if bounds.log_start <= place.position <= bounds.end:
            self._failed(place, ErrorCode.OFFSET_NOT_AVAILABLE, "the leader lags behind")
        else:
            self._report(place, ErrorCode.OFFSET_OUT_OF_RANGE)

    def _report(self, place: Place, code: int) -> None:
        """The final word on a place, to all its sinks."""
        self._schedule.read(place)
        self._mended(place)
        bounds = self._bounds_of(place.source)
        sinks = list(self._sinks_at.get(place, ()))
        position = place.position
        tp = place.source.tp
        log.warning(
            "read_refused", topic=tp.topic, partition=tp.partition, error=code, position=position
        )
        for sink in sinks:
            self._withdraw(place.source, sink)
            sink(ReadResult(position, position, [], [], bounds.log_start, bounds.end, code))

    def _failed(self, place: Place, code: int, reason: str, end: int = -1) -> None:
        """`end`: behind a batch that is too large; its readers may give it up."""
        now_ms = monotonic_ms()
        self._upstream.request_refresh()
        failing_ms = self._schedule.failing_ms(place, now_ms)
        if failing_ms >= WORTH_A_LINE_MS and place in self._sinks_at:  # else nobody reads there
            self._note_failing(place, code, reason, end)
        if code in _LASTING and failing_ms >= UNKNOWN_TOPIC_MS:
            self._report(place, code)
            return
        pause_ms = self._schedule.failed(place, now_ms)
        asyncio.get_running_loop().call_later(pause_ms / 1000 + 0.001, self._wake, place.source.tp)
        if end > place.position:
            bounds = self._bounds_of(place.source)
            for sink in list(self._sinks_at.get(place, ())):
                sink(ReadResult(place.position, end, [], [], bounds.log_start, bounds.end, code))

    def _note_failing(self, place: Place, code: int, reason: str, end: int) -> None:
        """One line per topic, not per partition: a broker that is down leads many."""
        topic = place.source.tp.topic
        if topic not in self._failing:
            log.warning("reading_stopped", topic=topic, error=code, reason=reason)
        why = f"offset {place.position}: {reason} ({error_name(code)})"
        self._failing.setdefault(topic, {})[place] = Unreadable(why, end)

    def _mended(self, place: Place) -> None:
        topic = place.source.tp.topic
        failing = self._failing.get(topic)
        if failing is None:
            return
        failing.pop(place, None)
        if not failing:
            del self._failing[topic]
            log.info("reading_again", topic=topic)

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
