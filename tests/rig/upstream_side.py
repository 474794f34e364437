"""The gateway's upstream side alone: `Upstream` and `Reader` running, and a sink that collects."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TypeVar

import uvloop

from gateway.core.cluster.topology import TopicPartition
from gateway.core.reading.cache import Source
from gateway.core.reading.fetching import ReadResult
from gateway.reading.limits import CACHE_BYTES_MAX
from gateway.reading.reader import Reader
from gateway.upstream.cluster import READ_COMMITTED, Upstream
from gateway.upstream.settings import UpstreamSettings
from tests.rig.patience import patient_s

DEADLINE_S = 30.0

T = TypeVar("T")

# Brokers end with the thread that started them (gateway/embedded/process.py), so it must outlive
# the event loop of one test.
_KEEPER = ThreadPoolExecutor(max_workers=1, thread_name_prefix="broker-keeper")


async def blocking(work: Callable[[], object]) -> None:
    """Runs `work`, which may start brokers, while the event loop goes on."""
    await asyncio.get_running_loop().run_in_executor(_KEEPER, work)


def run(work: Coroutine[object, object, T]) -> T:
    """On uvloop, as the gateway does."""
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(work)


async def until(true: Callable[[], Coroutine[object, object, bool]]) -> None:
    """Asks again and again, for at most DEADLINE_S."""
    async with asyncio.timeout(patient_s(DEADLINE_S)):
        while True:
            if await true():
                return
            await asyncio.sleep(0.05)


@dataclass
class Side:
    upstream: Upstream
    reader: Reader

    async def partition(self, topic: str, partition: int = 0) -> TopicPartition:
        """Waits until the topic is known: a new one takes a moment to show everywhere."""
        async with asyncio.timeout(patient_s(DEADLINE_S)):
            while True:
                known = (await self.upstream.refresh([topic])).topics[topic]
                if partition in known.partitions and known.partitions[partition].leader >= 0:
                    return TopicPartition(topic, known.topic_id, partition)
                await asyncio.sleep(0.05)


@asynccontextmanager
async def running(
    settings: UpstreamSettings, *, cache_bytes_max: int = CACHE_BYTES_MAX
) -> AsyncIterator[Side]:
    async with Upstream(settings) as upstream, asyncio.TaskGroup() as tasks:
        await upstream.start(timeout_ms=10_000)
        reader = Reader(upstream, cache_bytes_max=cache_bytes_max)
        loops = [tasks.create_task(upstream.run()), tasks.create_task(reader.run())]
        try:
            yield Side(upstream, reader)
        finally:
            for loop in loops:
                loop.cancel()


def committed(tp: TopicPartition) -> Source:
    return Source(tp, READ_COMMITTED)


@dataclass(eq=False)
class Collector:
    """A sink that reads on by itself, `offsets_max` at a time, and checks that it skips nothing."""

    reader: Reader
    tp: TopicPartition
    position: int = 0
    offsets_max: int = 1_000
    isolation: int = READ_COMMITTED
    results: list[ReadResult] = field(default_factory=list)
    offsets: list[int] = field(default_factory=list)
    keys: list[bytes | None] = field(default_factory=list)
    arrived: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def source(self) -> Source:
        return Source(self.tp, self.isolation)

    def start(self) -> Collector:
        self._read_on()
        return self

    def _read_on(self) -> None:
        self.reader.read_on(self.source, self.position, self.offsets_max, self.sink)

    def sink(self, result: ReadResult) -> None:
        assert result.start == self.position
        assert len(result.offsets) == len(result.keys)
        assert all(result.start <= offset < result.end for offset in result.offsets)
        self.results.append(result)
        self.arrived.set()
        if result.error:
            return
        assert result.start < result.end <= result.start + self.offsets_max
        self.offsets += result.offsets
        self.keys += result.keys
        self.position = result.end
        self._read_on()

    def stop(self) -> None:
        self.reader.stop(self.source, self.sink)

    async def until(self, enough: Callable[[Collector], bool]) -> None:
        async with asyncio.timeout(patient_s(DEADLINE_S)):
            while not enough(self):
                self.arrived.clear()
                await self.arrived.wait()

    async def reached(self, position: int) -> None:
        await self.until(lambda self: self.position >= position)
