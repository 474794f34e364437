"""Metrics of reading: fetches, the cache, partitions that cannot be read, bytes by topic."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from gateway.core.cluster.busiest_topics import BusiestTopics
from gateway.metric_rows import bytes_by_topic
from gateway.reading.refetch import ReaderCounts

_READER = {  # by field of ReaderCounts: the counter and its text
    "fetches": ("fetches", "Fetch requests for records that windows wait for"),
    "fetched_bytes": ("fetched_bytes", "Bytes of records read, as upstream has them"),
    "refetches": ("refetches", "Fetch requests for records that had left the cache"),
    "evicted": ("evicted_batches", "Batches that left the cache to make room for others"),
}


@dataclass(slots=True, eq=False)
class ReaderCollector(Collector):
    counts: ReaderCounts
    failing_partitions: Callable[[], int]

    def collect(self) -> Iterator[Metric]:
        for count, value in asdict(self.counts).items():
            name, said = _READER[count]
            counter = CounterMetricFamily(f"keyway_reader_{name}", said)
            counter.add_metric([], value)
            yield counter
        failing = GaugeMetricFamily(
            "keyway_reader_failing_partitions", "Partitions that cannot be read now"
        )
        failing.add_metric([], self.failing_partitions())
        yield failing


@dataclass(slots=True, eq=False)
class TopicCollector(Collector):
    """Bytes of Key-Shared groups by topic."""

    read: BusiestTopics
    delivered: BusiestTopics

    def collect(self) -> Iterator[Metric]:
        yield bytes_by_topic(
            self.read, "read", "Bytes of records read from Kafka for Key-Shared groups, by topic"
        )
        yield bytes_by_topic(
            self.delivered, "delivered", "Bytes of records sent to share consumers, by topic"
        )
