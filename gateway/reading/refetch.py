"""Records that have left the cache are read again, one fetch at a time for a partition, on a lane
of their own: the answer to a client waits for them.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from gateway.core.cluster.topology import TopicPartition
from gateway.core.limits import LONG_STEP_BYTES, RETRY_BASE_MS, RETRY_MAX_MS
from gateway.core.reading.cache import BatchCache, Source
from gateway.core.reading.fetch_messages import answers_by_partition, fetch_request
from gateway.core.reading.fetching import Fetch, FetchPosition, leader_of
from gateway.core.wire.apis import ApiKey
from gateway.core.wire.errors import ErrorCode
from gateway.core.wire.records import Batch, CorruptBatch, drop_aborted
from gateway.core.wire.schema import Message
from gateway.reading.limits import FETCH_LANES
from gateway.upstream.cluster import EARLIEST, READ_COMMITTED, Upstream
from gateway.upstream.errors import Refused, UpstreamError

# Lane 0 of a broker belongs to short requests (gateway/upstream/cluster.py).
FIRST_FETCH_LANE = 1
REFETCH_LANE = FIRST_FETCH_LANE + FETCH_LANES
REFETCH_MS_MAX = 5_000  # a share client gives its fetch up after 30 s; it may ask again


@dataclass(slots=True)
class ReaderCounts:
    """Since the start of the gateway."""

    fetches: int = 0
    fetched_bytes: int = 0
    refetches: int = 0  # fetches for records that had left the cache
    evicted: int = 0  # batches that made room for others


class Refetches:
    """`keep` puts an answer into the cache; it raises CorruptBatch."""

    def __init__(
        self,
        upstream: Upstream,
        cache: BatchCache,
        counts: ReaderCounts,
        keep: Callable[[FetchPosition, Message], Awaitable[tuple[int, int]]],
    ) -> None:
        self._upstream = upstream
        self._cache = cache
        self._counts = counts
        self._keep = keep
        self._locks: dict[Source, asyncio.Lock] = {}

    def forget(self, source: Source) -> None:
        self._locks.pop(source, None)

    async def piece(self, source: Source, offset: int) -> tuple[int, Batch | None]:
        """The piece of the log with `offset`: its end, and its batch (None: nothing is there any
        more). Raises UpstreamError.
        """
        lock = self._locks.setdefault(source, asyncio.Lock())
        deadline_ms = monotonic_ms() + REFETCH_MS_MAX
        pause_ms = RETRY_BASE_MS
        async with lock:
            while True:
                piece = self._cache.piece(
                    source, offset
                )  # the lock's last holder may have brought it
                if piece is not None:
                    return piece.end, piece.batch
                try:
                    found = await self._read(source, offset)
                except UpstreamError:
                    if monotonic_ms() + pause_ms >= deadline_ms:
                        raise
                else:
                    # Out of the cache at once if need be, but not before we have its batch.
                    self._counts.evicted += self._cache.shrink()
                    return found
                self._upstream.request_refresh()
                await asyncio.sleep(pause_ms / 1000)
                pause_ms = min(pause_ms * 2, RETRY_MAX_MS)

    async def _read(self, source: Source, offset: int) -> tuple[int, Batch | None]:
        broker = leader_of(self._upstream.topology, source.tp)
        if broker is None:
            await self._upstream.refresh([source.tp.topic])
            broker = leader_of(self._upstream.topology, source.tp)
        if broker is None:
            what = f"leader of {source.tp.topic}-{source.tp.partition}"
            raise Refused(ErrorCode.LEADER_NOT_AVAILABLE, what)
        self._counts.refetches += 1
        fetch = Fetch(source.isolation, 0, (FetchPosition(source, offset),))
        answers = await fetched(self._upstream, broker, REFETCH_LANE, fetch)
        answer = answers[source.tp]
        code = answer["ErrorCode"]
        what = f"offset {offset} of {source.tp.topic}-{source.tp.partition}"
        if code == ErrorCode.OFFSET_OUT_OF_RANGE:
            log_start = await self._upstream.list_offset(source.tp, EARLIEST)
            if log_start > offset:
                return log_start, None
        elif code != 0:
            raise Refused(code, what)
        else:
            try:
                await self._keep(FetchPosition(source, offset), answer)
            except CorruptBatch as error:
                raise Refused(error.code, f"{what}: {error}") from error
        piece = self._cache.piece(source, offset)
        if piece is None:
            # Not gone: a leader that was just elected and a follower show less than was read before
            # until they have caught up. A log that was cut off is found where the window reads on.
            raise Refused(ErrorCode.OFFSET_NOT_AVAILABLE, what)
        return piece.end, piece.batch


async def fetched(
    upstream: Upstream, broker: int, lane: int, fetch: Fetch
) -> dict[TopicPartition, Message]:
    """One answer for each partition of the fetch. Raises UpstreamError."""
    timeout_ms = upstream.settings.request_timeout_ms + fetch.max_wait_ms
    response = await upstream.call(
        ApiKey.FETCH, fetch_request(fetch), broker_id=broker, lane=lane, timeout_ms=timeout_ms
    )
    if response["ErrorCode"] != 0:
        raise Refused(response["ErrorCode"], f"fetch from broker {broker}")
    if not response["Responses"] and response["ThrottleTimeMs"] > 0:
        # Kafka leaves all partitions out of the answer, and reads no request until then.
        what = f"broker {broker} holds up the gateway's reads for {response['ThrottleTimeMs']} ms"
        raise Refused(ErrorCode.THROTTLING_QUOTA_EXCEEDED, what)
    answers = answers_by_partition(fetch, response)
    if sum(len(answer["Records"] or b"") for answer in answers.values()) > LONG_STEP_BYTES:
        await asyncio.sleep(0)  # between decoding and scanning
    return answers


def committed_of(batches: list[Batch], answer: Message, isolation: int) -> list[Batch]:
    """`batches` of one partition's answer, without those that its reader may not see."""
    aborted = [
        (entry["ProducerId"], entry["FirstOffset"])
        for entry in (answer["AbortedTransactions"] or ())
        if isolation == READ_COMMITTED
    ]
    return drop_aborted(batches, aborted)


def monotonic_ms() -> int:
    return time.monotonic_ns() // 1_000_000
