"""Metrics of groups: lag and members."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from gateway.core.share.membership import ShareGroup
from gateway.operations.lag import Lag


@dataclass(slots=True, eq=False)
class LagCollector(Collector):
    """Under the names that kafka_exporter has given them, which boards and alerts know. They are as
    of the last look (gateway/operations/lag.py): a scrape asks nobody.
    """

    lags: Callable[[], Iterable[Lag]]
    groups: Callable[[], Iterable[ShareGroup]]

    def collect(self) -> Iterator[Metric]:
        labels = ["consumergroup", "topic", "partition"]
        offset = GaugeMetricFamily(
            "kafka_consumergroup_current_offset", "Next offset not settled", labels=labels
        )
        lag = GaugeMetricFamily(
            "kafka_consumergroup_lag",
            "Records of the log that the group has not settled",
            labels=labels,
        )
        members = GaugeMetricFamily(
            "kafka_consumergroup_members", "Members of the group", labels=labels[:1]
        )
        for one in self.lags():
            values = [one.group, one.tp.topic, str(one.tp.partition)]
            offset.add_metric(values, one.cursor)
            if one.records is not None:
                lag.add_metric(values, one.records)
        for group in self.groups():
            members.add_metric([group.name], len(group.members))
        yield from (offset, lag, members)
