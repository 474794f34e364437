"""Metrics of groups: lag and members."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from prometheus_client.core import Metric
from prometheus_client.registry import Collector

from gateway.core.cluster.topology import TopicPartition
from gateway.core.share.membership import ShareGroup
from gateway.metric_rows import Labels, Rows, families
from gateway.operations.lag import Lag
from gateway.operations.lag_sums import GroupLag
from gateway.operations.limits import LAGS_AT_ONCE


@dataclass(slots=True, eq=False)
class LagCollector(Collector):
    """Lags under the names of kafka_exporter (`consumergroup`) and kafka-lag-exporter (`group`),
    which boards and alerts know. They are as of the last look (gateway/operations/lag.py): a scrape
    asks nobody. Ages are as of the scrape. `left_out`: groups without rows
    (gateway/members/shown_groups.py).
    """

    lags: Callable[[frozenset[str]], Iterable[Lag]]  # but of these groups
    groups: Callable[[], Iterable[ShareGroup]]
    left_out: Callable[[], frozenset[str]]

    def collect(self) -> Iterator[Metric]:
        return families(self)

    def gather(self) -> Iterator[tuple[Rows, ...]]:
        partitions, sums = _Partitions(), _Sums()
        members = Rows("kafka_consumergroup_members", "Members of the group", ("consumergroup",))
        said = "Groups that have long been without members: too many to have metrics of their own"
        fewer, left_out = Rows("keyway_groups_left_out", said), self.left_out()
        fewer.add(Labels(), len(left_out))
        found = (*partitions.rows(), *sums.rows(), members, fewer)
        for at, one in enumerate(self.lags(left_out), 1):
            partitions.add(one)
            sums.add(one)
            if at % LAGS_AT_ONCE == 0:
                yield found
        partitions.end()
        sums.end()
        for group in self.groups():
            if group.name not in left_out:
                members.add(Labels(group.name), len(group.members))
        yield found


class _Partitions:
    """Rows of each partition of a group. Both tools have the position and the lag."""

    def __init__(self) -> None:
        position, behind = "Next offset not settled", "Records that the group has not settled"
        names = ("consumergroup", "partition", "topic")
        self.current = Rows("kafka_consumergroup_current_offset", position, names)
        self.records = Rows("kafka_consumergroup_lag", behind, names)
        names = ("group", "partition", "topic")
        self.offset = Rows("kafka_consumergroup_group_offset", position, names)
        self.lag = Rows("kafka_consumergroup_group_lag", behind, names)
        self.seconds = Rows(
            "kafka_consumergroup_group_lag_seconds",
            "Age of the oldest record that the group has not settled; 0: there is none",
            names,
        )
        self.latest = Rows(
            "kafka_partition_latest_offset", "End of the log that members may read", names[1:]
        )
        self.held = Rows(
            "keyway_group_transaction_wait_seconds",
            "For how long an open transaction has held up the group, at least; none: it does not",
            names,
        )
        self._ends: dict[TopicPartition, int] = {}  # several groups read them

    def rows(self) -> tuple[Rows, ...]:
        positions = (self.current, self.records, self.offset, self.lag)
        return (*positions, self.seconds, self.latest, self.held)

    def add(self, one: Lag) -> None:
        values = (one.group, str(one.tp.partition), one.tp.topic)
        by_consumergroup, by_group = Labels(*values), Labels(*values)
        self.current.add(by_consumergroup, one.cursor)
        self.offset.add(by_group, one.cursor)
        if one.records is not None:
            self.records.add(by_consumergroup, one.records)
            self.lag.add(by_group, one.records)
        if one.seconds is not None:
            self.seconds.add(by_group, one.seconds)
        if one.held is not None:
            self.held.add(by_group, one.held.seconds)
        end = one.end_seen(one.cursor)
        if end is not None:
            self._ends[one.tp] = max(end, self._ends.get(one.tp, 0))

    def end(self) -> None:
        for tp, end in self._ends.items():
            self.latest.add(Labels(str(tp.partition), tp.topic), end)


class _Sums:
    """Rows of each group, and of each of its topics. Partitions whose lag is not known are left
    out.
    """

    def __init__(self) -> None:
        self.most = Rows(
            "kafka_consumergroup_group_max_lag", "Lag of the partition that lags most", ("group",)
        )
        self.whole = Rows(
            "kafka_consumergroup_group_sum_lag", "Lag of the group's partitions", ("group",)
        )
        self.topics = Rows(
            "kafka_consumergroup_group_topic_sum_lag",
            "Lag of the group's partitions of a topic",
            ("group", "topic"),
        )
        self.oldest = Rows(
            "kafka_consumergroup_group_max_lag_seconds",
            "Age of the oldest record that the group has not settled, of all partitions",
            ("group",),
        )
        self._most: dict[str, int] = {}
        self._groups: defaultdict[str, GroupLag] = defaultdict(GroupLag)
        self._topics: defaultdict[tuple[str, str], GroupLag] = defaultdict(GroupLag)

    def rows(self) -> tuple[Rows, ...]:
        return (self.most, self.whole, self.topics, self.oldest)

    def add(self, one: Lag) -> None:
        if one.records is not None:
            self._most[one.group] = max(one.records, self._most.get(one.group, 0))
        self._groups[one.group].add(one)
        self._topics[one.group, one.tp.topic].add(one)

    def end(self) -> None:
        for name, most in self._most.items():
            self.most.add(Labels(name), most)
        for name, group in self._groups.items():
            if group.records is not None:
                self.whole.add(Labels(name), group.records)
            if group.seconds is not None:
                self.oldest.add(Labels(name), group.seconds)
        for place, topic in self._topics.items():
            if topic.records is not None:
                self.topics.add(Labels(*place), topic.records)
