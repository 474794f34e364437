"""The names and labels of all metrics that the code exports, from its collectors."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator

from prometheus_client.metrics import MetricWrapperBase
from prometheus_client.registry import Collector

from gateway.admin.health import Health, HealthCollector
from gateway.admin.problems import Refusals
from gateway.config.file import Config, ConfigSource
from gateway.node.process import process_part
from gateway.node.redis_state import RunningRedis
from gateway.node.wiring import Process, wire
from gateway.part import Part
from gateway.routing.metrics import NodesCollector
from gateway.routing.moves import PendingMoves
from gateway.routing.owners import SharedOwners
from offsets.metrics import Metrics as OffsetsMetrics
from schema_dist.metrics import Metrics as SchemasMetrics
from spark.links.metrics import LinkCollector
from tests.rig.table_in_memory import Shared, TableInMemory

TARGET = frozenset({"instance", "job"})  # Prometheus adds them
_SAMPLES = {"counter": ("_total",), "gauge": ("",), "histogram": ("_bucket", "_sum", "_count")}


def exported() -> dict[str, frozenset[str]]:
    """The labels of each time series by its name, Prometheus' own labels among them."""
    found = {"up": TARGET}
    for collector in _collectors():
        for name, kind, labels in _families(collector):
            for ending in _SAMPLES[kind]:
                le = {"le"} if ending == "_bucket" else set()
                found[name + ending] = TARGET | set(labels) | le
    return found


def parts() -> list[Part[object]]:
    """Those of a node that is not started."""

    async def wired() -> list[Part[object]]:
        redis = RunningRedis("redis://127.0.0.1:6379/0", None)
        event = asyncio.Event()
        process = Process(process_part(event), redis, asyncio.TaskGroup(), lambda: 0, event)
        return wire(Config(), ConfigSource(), process)

    return asyncio.run(wired())


def _collectors() -> Iterator[Collector]:
    for part in parts():
        yield from part.collectors
    yield _of_several_nodes()
    yield Refusals()
    yield HealthCollector(Health(True, (), {}))
    yield LinkCollector(list)
    for metrics in (OffsetsMetrics(), SchemasMetrics()):
        yield from (
            metric for metric in vars(metrics).values() if isinstance(metric, MetricWrapperBase)
        )


def _of_several_nodes() -> Collector:
    async def collector() -> Collector:
        table = TableInMemory(Shared(), "i")
        owners = SharedOwners("a", table, serves=dict, agreed=dict, facts=dict)
        moves = PendingMoves(lambda: 0.0)
        return NodesCollector(owners, moves, list, lambda: table.clock_off_ms)

    return asyncio.run(collector())


def _families(collector: Collector) -> Iterable[tuple[str, str, tuple[str, ...]]]:
    if isinstance(collector, MetricWrapperBase):
        yield collector._name, str(collector._type), tuple(collector._labelnames)
        return
    for family in collector.collect():
        yield family.name, family.type, family._labelnames  # type: ignore[attr-defined]
