"""Records of Key-Shared groups on their way, by group and topic: delivered to members, and settled.
Plain numbers that only grow, as long as the group is known and some group uses the topic.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass, field

from dispatcher.core.steps import Notice, Noticed
from gateway.core.cluster.topology import TopicPartition

# An unreliable group settles records that were sent, and records that were not.
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

    def forget_topics(self, topics: Collection[str]) -> None:
        """No group has a use for them: as a rule they are deleted."""
        for flow in (self.delivered, self.settled):
            for counts in flow.values():
                for topic in topics:
                    counts.pop(topic, None)

    def forget(self, group: str) -> None:
        self.delivered.pop(group, None)
        self.settled.pop(group, None)


def _count(flow: dict[str, Counter[str]], group: str, topic: str, records: int) -> None:
    topics = flow.get(group)
    if topics is None:
        topics = flow[group] = Counter()
    topics[topic] += records
