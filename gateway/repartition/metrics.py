"""Metrics of repartitions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from gateway.repartition.running import RunningTopic


@dataclass(slots=True, eq=False)
class RepartitionCollector(Collector):
    running: Mapping[str, RunningTopic]  # by topic

    def collect(self) -> Iterator[Metric]:
        since = GaugeMetricFamily(
            "keyway_repartition_began_seconds",
            "When the repartition of a topic that runs now began, Unix time",
            labels=["topic", "phase"],
        )
        late = CounterMetricFamily(
            "keyway_repartition_late_records",
            "Records of keys that move, above the boundary of an old partition",
            labels=["topic"],
        )
        closed = CounterMetricFamily(
            "keyway_repartition_closed_connections",
            "Connections that were closed because they had not adopted the new partitions",
            labels=["topic"],
        )
        given_up = GaugeMetricFamily(
            "keyway_repartition_given_up_groups",
            "Consumer groups that are no longer waited for: their keys may be out of order",
            labels=["topic"],
        )
        for topic, run in sorted(self.running.items()):
            since.add_metric([topic, run.record.phase.value], run.record.began_ms / 1000)
            late.add_metric([topic], run.late.records)
            closed.add_metric([topic], run.closed)
            given_up.add_metric([topic], len(run.given_up))
        yield from (since, late, closed, given_up)
