"""Metrics of groups: lag and members."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from prometheus_client.core import Metric
from prometheus_client.registry import Collector

from gateway.core.share.membership import ShareGroup
from gateway.metric_rows import Labels, Rows, families
from gateway.operations.lag import Lag
from gateway.operations.limits import LAGS_AT_ONCE


@dataclass(slots=True, eq=False)
class LagCollector(Collector):
    """Under the names of kafka_exporter (`consumergroup`) and kafka-lag-exporter (`group`), which
    boards and alerts know. They are as of the last look (gateway/operations/lag.py): a scrape asks
    nobody. Ages are as of the scrape.
    """

    lags: Callable[[], Iterable[Lag]]
    groups: Callable[[], Iterable[ShareGroup]]

    def collect(self) -> Iterator[Metric]:
        return families(self)

    def gather(self) -> Iterator[tuple[Rows, ...]]:
        names = ("consumergroup", "partition", "topic")
        offset = Rows("kafka_consumergroup_current_offset", "Next offset not settled", names)
        lag = Rows(
            "kafka_consumergroup_lag", "Records of the log that the group has not settled", names
        )
        seconds = Rows(
            "kafka_consumergroup_group_lag_seconds",
            "Age of the oldest record that the group has not settled; 0: there is none",
            ("group", "partition", "topic"),
        )
        oldest = Rows(
            "kafka_consumergroup_group_max_lag_seconds",
            "The same, of the group's oldest record of all partitions",
            ("group",),
        )
        members = Rows("kafka_consumergroup_members", "Members of the group", names[:1])
        found = (offset, lag, seconds, oldest, members)
        oldest_of: dict[str, float] = {}
        for at, one in enumerate(self.lags(), 1):
            values = (one.group, str(one.tp.partition), one.tp.topic)
            labels = Labels(*values)
            offset.add(labels, one.cursor)
            if one.records is not None:
                lag.add(labels, one.records)
            if one.seconds is not None:
                seconds.add(Labels(*values), one.seconds)
                oldest_of[one.group] = max(oldest_of.get(one.group, 0), one.seconds)
            if at % LAGS_AT_ONCE == 0:
                yield found
        for name, age in oldest_of.items():
            oldest.add(Labels(name), age)
        for group in self.groups():
            members.add(Labels(group.name), len(group.members))
        yield found
