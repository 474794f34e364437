"""The text of all metrics, in portions."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.core import Metric
from prometheus_client.registry import Collector

from gateway.admin.exposition import exposition
from gateway.admin.limits import SAMPLES_AT_ONCE
from gateway.metric_rows import Labels, Rows, families


@dataclass(slots=True, eq=False)
class Scripted(Collector):
    def collect(self) -> Iterator[Metric]:
        return families(self)

    def gather(self) -> Iterator[tuple[Rows, ...]]:
        rows = Rows("rows", "Some rows", ("group",))
        rows.add(Labels("g"), 1)
        yield (rows,)


def registry_of(groups: int) -> CollectorRegistry:
    registry = CollectorRegistry()
    counter = Counter("outcomes", "Of records", ["group", "outcome"], registry=registry)
    times = Histogram("times", "Of requests", ["api"], registry=registry)
    Gauge("nothing", "Has no row yet", ["group"], registry=registry)
    Gauge("one", "Has one\nline", registry=registry).set(0.5)
    for at in range(groups):
        counter.labels(f"group-{at}", "accepted").inc(at)
        counter.labels(f"group-{at}", "dropped").inc()
        times.labels(f"api-{at}").observe(0.3 * at)
    return registry


def portions(registry: CollectorRegistry) -> list[bytes]:
    async def work() -> list[bytes]:
        return [portion async for portion in exposition(registry, [Scripted()])]

    return asyncio.run(work())


def test_the_portions_are_the_librarys_text() -> None:
    for groups in (0, 1, SAMPLES_AT_ONCE // 2, 2 * SAMPLES_AT_ONCE + 1):
        registry = registry_of(groups)
        expected = generate_latest(registry)
        registry.register(Scripted())
        found = portions(registry_of(groups))
        rows = b'# HELP rows Some rows\n# TYPE rows gauge\nrows{group="g"} 1.0\n'
        assert without_times(b"".join(found)) == without_times(expected + rows)
        assert max(portion.count(b"\n") for portion in found) <= SAMPLES_AT_ONCE + 4


def without_times(text: bytes) -> list[bytes]:
    """The samples of creation differ between two registries."""
    lines = text.splitlines()
    return [
        line.rpartition(b" ")[0] if b"_created" in line and line[:1] != b"#" else line
        for line in lines
    ]


def test_other_work_goes_on_meanwhile() -> None:
    turns = 0

    async def work() -> None:
        nonlocal turns
        registry = registry_of(3 * SAMPLES_AT_ONCE)

        async def other() -> None:
            nonlocal turns
            while True:
                turns += 1
                await asyncio.sleep(0)

        async with asyncio.TaskGroup() as tasks:
            beside = tasks.create_task(other())
            found = [portion async for portion in exposition(registry, [])]
            assert turns >= len(found) > 30
            beside.cancel()

    asyncio.run(work())
