"""Metrics of groups: lag and members."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from gateway.core.share.membership import ShareGroup
from gateway.operations.lag import Lag

_GROUP_LABELS = ["group", "topic", "partition"]


@dataclass(slots=True, eq=False)
class LagCollector(Collector):
    """Under the names of kafka_exporter (`consumergroup`) and kafka-lag-exporter (`group`), which
    boards and alerts know. They are as of the last look (gateway/operations/lag.py): a scrape asks
    nobody. Ages are as of the scrape.
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
        seconds = GaugeMetricFamily(
            "kafka_consumergroup_group_lag_seconds",
            "Age of the oldest record that the group has not settled; 0: there is none",
            labels=_GROUP_LABELS,
        )
        oldest = GaugeMetricFamily(
            "kafka_consumergroup_group_max_lag_seconds",
            "The same, of the group's oldest record of all partitions",
            labels=_GROUP_LABELS[:1],
        )
        oldest_of: dict[str, float] = {}
        members = GaugeMetricFamily(
            "kafka_consumergroup_members", "Members of the group", labels=labels[:1]
        )
        for one in self.lags():
            values = [one.group, one.tp.topic, str(one.tp.partition)]
            offset.add_metric(values, one.cursor)
            if one.records is not None:
                lag.add_metric(values, one.records)
            if one.seconds is not None:
                seconds.add_metric(values, one.seconds)
                oldest_of[one.group] = max(oldest_of.get(one.group, 0), one.seconds)
        for name, age in oldest_of.items():
            oldest.add_metric([name], age)
        for group in self.groups():
            members.add_metric([group.name], len(group.members))
        yield from (offset, lag, seconds, oldest, members)
