"""Records of Key-Shared groups on their way, by group and topic: delivered to members, and settled.
Plain numbers that only grow, as long as the group is known.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

from prometheus_client.core import Metric
from prometheus_client.registry import Collector

from dispatcher.core.model import Notice, Noticed
from gateway.core.cluster.topology import TopicPartition
from gateway.metric_rows import Labels, Rows, families
from gateway.windows.limits import WINDOWS_READ_AT_ONCE

# Of an unreliable group, records that were sent are settled, and so are those that were not.
_SETTLED = frozenset(
    {
        Notice.ACCEPTED,
        Notice.SKIPPED,
        Notice.DROPPED,
        Notice.DEAD_LETTERED,
        Notice.TRUNCATED,
        Notice.SENT,
        Notice.UNDELIVERED,
    }
)


@dataclass(slots=True)
class RecordFlow:
    delivered: dict[str, Counter[str]] = field(default_factory=dict)  # by group and topic
    settled: dict[str, Counter[str]] = field(default_factory=dict)

    def sent(self, group: str, topic: str, records: int) -> None:
        """Counts records that went out in an answer to a member."""
        _count(self.delivered, group, topic, records)

    def noticed(self, group: str, partition: TopicPartition, noticed: Noticed) -> None:
        if noticed.notice in _SETTLED:
            _count(self.settled, group, partition.topic, noticed.count)

    def of(self, group: str, topic: str) -> tuple[int, int]:
        """Delivered, settled."""
        delivered = self.delivered.get(group, Counter())[topic]
        return delivered, self.settled.get(group, Counter())[topic]

    def forget(self, group: str) -> None:
        self.delivered.pop(group, None)
        self.settled.pop(group, None)


def _count(flow: dict[str, Counter[str]], group: str, topic: str, records: int) -> None:
    topics = flow.get(group)
    if topics is None:
        topics = flow[group] = Counter()
    topics[topic] += records


@dataclass(slots=True, eq=False)
class FlowCollector(Collector):
    flow: RecordFlow

    def collect(self) -> Iterator[Metric]:
        return families(self)

    def gather(self) -> Iterator[tuple[Rows, ...]]:
        names = ("group", "topic")
        delivered = Rows(
            "keyway_group_delivered_records",
            "Records sent to members, again or for the first time",
            names,
            "counter",
        )
        settled = Rows(
            "keyway_group_settled_records",
            "Records accepted, dropped, dead-lettered, skipped or taken by retention",
            names,
            "counter",
        )
        found = (delivered, settled)
        for rows, counted in ((delivered, self.flow.delivered), (settled, self.flow.settled)):
            for at, (group, topics) in enumerate(list(counted.items()), 1):
                for topic, count in topics.items():
                    rows.add(Labels(group, topic), count)
                if at % WINDOWS_READ_AT_ONCE == 0:
                    yield found
        yield found
