"""The reader and its records, over partitions kept in memory."""

from __future__ import annotations

import asyncio
from bisect import bisect_right
from collections.abc import Callable
from itertools import accumulate

from gateway.core.reading.cache import EPOCH_MAX, RecordsGone, RecordsLarge, RecordsReplaced, Source
from gateway.core.reading.fetching import ReadResult, Unreadable
from gateway.core.wire.errors import ErrorCode
from gateway.upstream.errors import UpstreamError

Sink = Callable[[ReadResult], None]


class ScriptedLog:
    """The reader, over partitions kept in memory: offset -> key, and where each log starts."""

    def __init__(self) -> None:
        self.records: dict[int, list[bytes | None]] = {}
        # The leaders of each partition, in the order of their epochs, as the first offset of each.
        self.leaders: dict[int, list[int]] = {}
        self.starts: dict[int, int] = {}
        self.wishes: dict[tuple[int, Sink], tuple[int, int, int]] = {}  # (partition, sink)
        self.rests = False  # what nobody awaits is not read before it is hastened
        self._resting: set[tuple[int, Sink]] = set()
        self.forgotten: dict[tuple[int, Sink], int] = {}  # below which a sink needs nothing
        self.gone: set[int] = set()  # offsets that cannot be read again
        self.failure: UpstreamError | None = None
        self.troubles: dict[int, Unreadable] = {}  # by partition, as operators see them
        self.gate: asyncio.Event | None = None  # `bytes_for` waits for it
        self.asked: list[list[int]] = []
        self.mean_bytes = 10  # of a record
        self.sizes: dict[int, int] = {}  # bytes of records that are no small ones, by offset

    def produce(self, *keys: bytes | None, partition: int = 0) -> None:
        self.records.setdefault(partition, []).extend(keys)
        self.serve()

    def end(self, partition: int = 0) -> int:
        return len(self.records.get(partition, ()))

    def elect(self, end: int, partition: int = 0) -> None:
        """Another leader, which has the log up to `end`."""
        del self.records.setdefault(partition, [])[end:]
        leaders = self.leaders.setdefault(partition, [0])
        leaders[:] = [min(first, end) for first in leaders] + [end]
        self.serve()

    def epoch_at(self, offset: int, partition: int = 0) -> int:
        return bisect_right(self.leaders.get(partition, [0]), offset) - 1

    def _parted(self, partition: int, position: int, epoch: int) -> tuple[int, int] | None:
        """As Kafka finds it: where the log parts from the one that was read; the epoch there."""
        leaders = self.leaders.get(partition, [0])
        if epoch < 0 or epoch >= len(leaders) or len(leaders) == 1:
            return None
        end = leaders[epoch + 1] if epoch + 1 < len(leaders) else self.end(partition)
        before = self.epoch_at(end - 1, partition) if end else epoch
        known = epoch if leaders[epoch] < end or epoch + 1 == len(leaders) else before
        return (end, known) if known < epoch or end < position else None

    def serve(self) -> None:
        """Meets every wish that can be met, from the event loop as the reader does."""
        for (partition, sink), (position, offsets_max, epoch) in list(self.wishes.items()):
            if self.rests and (partition, sink) in self._resting:
                continue
            end = min(self.end(partition), position + offsets_max)
            if (parted := self._parted(partition, position, epoch)) is not None:
                del self.wishes[partition, sink]
                code = int(ErrorCode.OFFSET_OUT_OF_RANGE)
                found = ReadResult(position, position, [], [], 0, self.end(partition), code)
                found.diverged_at, found.epoch = parted
                asyncio.get_running_loop().call_soon(sink, found)
            elif end > position:
                del self.wishes[partition, sink]
                epoch = self.epoch_at(position, partition)
                later = self.leaders.get(partition, [0])[epoch + 1 :]
                end = min([end, *later])
                keys = self.records[partition][position:end]
                start = self.starts.get(partition, 0)
                offsets = list(range(position, end))
                read = ReadResult(position, end, offsets, keys, start, self.end(partition))
                read.epoch = epoch
                asyncio.get_running_loop().call_soon(sink, read)

    def refuse(self, error: int, *, partition: int = 0, log_end: int = 0) -> None:
        """The reader's last word on the wishes for a partition."""
        for (place, sink), (position, *_) in list(self.wishes.items()):
            if place == partition:
                del self.wishes[place, sink]
                start = self.starts.get(partition, 0)
                sink(ReadResult(position, position, [], [], start, log_end, error))

    def read_on(
        self,
        source: Source,
        position: int,
        offsets_max: int,
        sink: Sink,
        epoch: int,
        *,
        awaited: bool,
    ) -> None:
        assert offsets_max > 0
        assert source.isolation in (0, 1)
        wish = (source.tp.partition, sink)
        self.wishes[wish] = (position, offsets_max, epoch)
        (self._resting.discard if awaited else self._resting.add)(wish)
        asyncio.get_running_loop().call_soon(self.serve)

    def hasten(self, source: Source, sink: Sink) -> None:
        wish = (source.tp.partition, sink)
        if wish in self._resting:
            self._resting.discard(wish)
            asyncio.get_running_loop().call_soon(self.serve)

    def stop(self, source: Source, sink: Sink) -> None:
        self.wishes.pop((source.tp.partition, sink), None)

    def forget_below(self, source: Source, offset: int, sink: Sink) -> None:
        self.forgotten[source.tp.partition, sink] = offset

    def mean_record_bytes(self, source: Source) -> int:  # noqa: ARG002
        return self.mean_bytes

    def failing_partitions(self) -> int:
        return len(self.troubles)

    def unreadable(self, source: Source, position: int) -> Unreadable | None:  # noqa: ARG002
        return self.troubles.get(source.tp.partition)

    async def bytes_for(
        self,
        source: Source,
        offsets: list[int],
        records_max: int,
        bytes_max: int,
        epoch_max: int = EPOCH_MAX,
    ) -> bytes:
        """Not Kafka's bytes: the offsets, for a test to read back."""
        assert source.isolation in (0, 1)
        assert records_max > 0
        self.asked.append(offsets)
        if self.gate is not None:
            await self.gate.wait()
        if self.failure is not None:
            raise self.failure
        held = [offset for offset in offsets if offset not in self.gone]
        if any(self.epoch_at(offset, source.tp.partition) > epoch_max for offset in held):
            raise RecordsReplaced
        if lost := [offset for offset in offsets if offset in self.gone]:
            raise RecordsGone(lost)
        parts = [b"%d-%d" % (source.tp.partition, offset) for offset in offsets]
        parts = [p.ljust(self.sizes.get(o, 0) - 1) for o, p in zip(offsets, parts, strict=True)]
        fitting = sum(size <= bytes_max for size in accumulate(len(part) + 1 for part in parts))
        if fitting < len(parts):
            raise RecordsLarge(fitting)
        return b",".join(parts)
