"""Timestamps of records that are not yet settled: from the cache of batches, or else by a Fetch of
one batch from upstream, on a lane of its own.

The fetch of a whole batch is the only way: upstream finds an offset by its time (ListOffsets),
never the time of an offset.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from gateway.core.limits import LONG_STEP_RECORDS
from gateway.core.reading.cache import BatchCache, Source, oldest_of
from gateway.core.reading.fetching import Fetch, FetchPosition, leader_of
from gateway.core.wire.errors import ErrorCode
from gateway.core.wire.records import CorruptBatch, Scan
from gateway.core.wire.schema import Message
from gateway.reading.limits import BATCHES_LOOKED_AT
from gateway.reading.long_scans import LongScans
from gateway.reading.refetch import REFETCH_LANE, committed_of, fetched
from gateway.upstream.cluster import EARLIEST, Upstream
from gateway.upstream.errors import Refused

TIMES_LANE = REFETCH_LANE + 1
ONE_BATCH = 1  # bytes: a broker sends the first batch even if it is larger


@dataclass(frozen=True, slots=True)
class Seen:
    """The log from one position on: `offset` has the first record there, made at `timestamp_ms`
    (-1: it has none). None for both: no record is before `end`, where the look goes on.
    """

    end: int
    offset: int | None = None
    timestamp_ms: int | None = None


class RecordTimes:
    def __init__(self, upstream: Upstream, cache: BatchCache, long_scans: LongScans) -> None:
        self._upstream = upstream
        self._long_scans = long_scans
        self._cache = cache

    def in_cache(self, source: Source, position: int) -> Seen | None:
        """None: the cache does not say."""
        found = self._cache.oldest_from(source, position)
        return None if found is None else Seen(found[0] + 1, *found)

    async def look(self, source: Source, position: int) -> Seen:
        """Looks at upstream, in at most BATCHES_LOOKED_AT batches: batches of aborted transactions
        and of markers have no record. Raises UpstreamError.
        """
        for _ in range(BATCHES_LOOKED_AT):
            seen = await self._look_once(source, position)
            if seen.offset is not None or seen.end == position:
                return seen
            position = seen.end
        return Seen(position)

    async def _look_once(self, source: Source, position: int) -> Seen:
        tp = source.tp
        what = f"offset {position} of {tp.topic}-{tp.partition}"
        broker = leader_of(self._upstream.topology, tp)
        if broker is None:
            raise Refused(ErrorCode.LEADER_NOT_AVAILABLE, what)
        fetch = Fetch(source.isolation, 0, (FetchPosition(source, position),), ONE_BATCH)
        answer = (await fetched(self._upstream, broker, TIMES_LANE, fetch))[tp]
        code = answer["ErrorCode"]
        if code == ErrorCode.OFFSET_OUT_OF_RANGE:
            log_start = await self._upstream.list_offset(tp, EARLIEST, source.isolation)
            return Seen(max(log_start, position))  # retention took the records before
        if code != 0:
            raise Refused(code, what)
        try:
            return await self._first_record(answer, source.isolation, position)
        except CorruptBatch as error:
            raise Refused(error.code, f"{what}: {error}") from error

    async def _first_record(self, answer: Message, isolation: int, position: int) -> Seen:
        """Raises CorruptBatch."""
        scan = Scan(answer["Records"] or b"", enough=1)
        step = partial(scan.step, LONG_STEP_RECORDS)
        async with self._long_scans.scanned(step, lambda: scan.long_next):
            for batch in committed_of(scan.batches, answer, isolation):
                found = oldest_of(batch, position)
                if found is not None:
                    return Seen(found[0] + 1, *found)
            return Seen(max(position, *(batch.last_offset + 1 for batch in scan.batches), position))
