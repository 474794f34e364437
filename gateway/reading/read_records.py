"""Records that were read: kept in the cache, cut out for clients, and read again after they have
left it.
"""

from __future__ import annotations

import asyncio
from typing import NamedTuple

from gateway.core.cluster.busiest_topics import BusiestTopics
from gateway.core.limits import LONG_STEP_BYTES
from gateway.core.reading.cache import EPOCH_MAX, BatchCache, Cut, Source
from gateway.core.reading.fetch_messages import Damages
from gateway.core.reading.fetching import FetchPosition
from gateway.core.wire.long_bytes import LongBytes
from gateway.core.wire.records import Batch
from gateway.core.wire.schema import Message
from gateway.reading.limits import CACHE_BYTES_MAX
from gateway.reading.long_scans import LongScans
from gateway.reading.record_starts import RecordStarts
from gateway.reading.record_times import RecordTimes
from gateway.reading.refetch import ReaderCounts, Refetches, committed_of
from gateway.upstream.cluster import READ_COMMITTED, Upstream

NO_BYTES_MAX = 2**63 - 1
MEAN_RECORD_BYTES = 1_024  # a guess until a partition was read


class LogBounds(NamedTuple):
    """The bounds of a log as the last fetch said; -1: not known. `end`: behind the last record that
    consumers may see.
    """

    start: int = -1
    end: int = -1


NOT_KNOWN = LogBounds()


class ReadRecords:
    def __init__(self, upstream: Upstream, *, cache_bytes_max: int = CACHE_BYTES_MAX) -> None:
        self.counts = ReaderCounts()
        self.read_by_topic = BusiestTopics()
        self.cache = BatchCache(cache_bytes_max)
        self._long_scans = LongScans()
        self.times = RecordTimes(upstream, self.cache, self._long_scans)
        self.bounds: dict[Source, LogBounds] = {}
        self._refetches = Refetches(upstream, self.cache, self.counts, self.keep)
        self.starts = RecordStarts(self._refetches)
        self._damages = Damages()
        self._mean_bytes: dict[Source, int] = {}
        self._long = asyncio.Lock()

    def bounds_of(self, source: Source) -> LogBounds:
        return self.bounds.get(source, NOT_KNOWN)

    def mean_record_bytes(self, source: Source) -> int:
        """The mean size of the records read last, uncompressed; at least 1."""
        return self._mean_bytes.get(source, MEAN_RECORD_BYTES)

    async def bytes_for(
        self,
        source: Source,
        offsets: list[int],
        records_max: int,
        bytes_max: int = NO_BYTES_MAX,
        epoch_max: int = EPOCH_MAX,
    ) -> bytes | LongBytes:
        """Batches with exactly these records (ascending), each of at most `records_max`. Records
        that have left the cache are read again. They are of no later leader epoch than `epoch_max`.
        Raises RecordsGone, RecordsLarge, RecordsReplaced, UpstreamError.
        """
        if self.cache.is_long(source, offsets):
            await self._long_turn()
        ready = self.cache.slices(source, offsets, records_max, bytes_max, epoch_max)
        if ready is not None:
            return ready
        out = Cut(offsets, records_max, bytes_max, epoch_max)
        while (offset := out.next()) is not None:
            piece = self.cache.piece(source, offset)
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

    async def keep(self, place: FetchPosition, answer: Message) -> tuple[int, int]:
        """Puts the records of an answer into the cache and returns the position behind them, and
        the leader epoch of the last one (-1: not known, or there is none). Many records take
        several turns of the event loop. The answer's own bytes, which may be 90 MB, are let go
        before, unless they are one long batch. Raises CorruptBatch.
        """
        source = place.source
        self.note_bounds(source, answer)
        size = len(answer["Records"] or b"")
        self.counts.fetched_bytes += size
        self.read_by_topic.count(source.tp.topic, size)
        scan = self._damages.undamaged(place, answer["Records"] or b"")
        async with self._long_scans.scanned(scan.step, lambda: scan.long_next):
            answer["Records"] = None
            return await self._add(place, scan.batches, answer)

    def note_bounds(self, source: Source, answer: Message) -> None:
        committed = source.isolation == READ_COMMITTED
        log_end = answer["LastStableOffset"] if committed else answer["HighWatermark"]
        self.bounds[source] = LogBounds(answer["LogStartOffset"], log_end)

    async def _add(
        self, place: FetchPosition, batches: list[Batch], answer: Message
    ) -> tuple[int, int]:
        if not batches:
            return place.position, -1
        source = place.source
        end, epoch = batches[-1].last_offset + 1, batches[-1].leader_epoch
        committed_batches = committed_of(batches, answer, source.isolation)
        visible = [batch for batch in committed_batches if batch.count]
        if visible:
            records = sum(batch.count for batch in visible)
            self._mean_bytes[source] = 1 + sum(len(batch.body) for batch in visible) // records
        for _ in self.cache.adding(source, place.position, visible, end, epoch):
            await asyncio.sleep(0)
        return end, epoch

    def shrink(self) -> None:
        """Drops the oldest batches beyond the bound of the cache."""
        self.counts.evicted += self.cache.shrink()

    def forget(self, source: Source) -> None:
        """Nobody reads there any more."""
        self.bounds.pop(source, None)
        self._mean_bytes.pop(source, None)
        self._refetches.forget(source)
        self._damages.forget(source)
        self.cache.forget(source)
