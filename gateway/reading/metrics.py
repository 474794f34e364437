"""Metrics of reading: fetches, the cache, partitions that cannot be read, bytes by topic."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from gateway.core.cluster.busiest_topics import BusiestTopics
from gateway.reading.reader import ReaderCounts

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
    """Bytes of Key-Shared groups by topic, of the busiest; a scrape decides which they are."""

    read: BusiestTopics
    delivered: BusiestTopics

    def collect(self) -> Iterator[Metric]:
        for topics, name, said in (
            (self.read, "read", "Bytes of records read from Kafka for Key-Shared groups, by topic"),
            (self.delivered, "delivered", "Bytes of records sent to share consumers, by topic"),
        ):
            counter = CounterMetricFamily(f"keyway_topic_{name}_bytes", said, labels=["topic"])
            topics.rank()
            for topic, size in topics.rows():
                counter.add_metric([topic], size)
            yield counter
