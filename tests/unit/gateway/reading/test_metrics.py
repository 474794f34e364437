"""The metrics of reading."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.registry import Collector

from gateway.core.cluster.busiest_topics import BusiestTopics
from gateway.reading.metrics import ReaderCollector, TopicCollector
from gateway.reading.refetch import ReaderCounts


def exported(*collectors: Collector) -> str:
    registry = CollectorRegistry()
    for collector in collectors:
        registry.register(collector)
    return generate_latest(registry).decode()


def test_the_reader_is_read_when_asked() -> None:
    counts = ReaderCounts()
    counts.fetches, counts.fetched_bytes, counts.refetches, counts.evicted = 7, 8_000, 2, 5
    text = exported(ReaderCollector(counts, lambda: 3))
    for line in (
        "# TYPE keyway_reader_fetches_total counter",
        "keyway_reader_fetches_total 7.0",
        "keyway_reader_fetched_bytes_total 8000.0",
        "keyway_reader_refetches_total 2.0",
        "keyway_reader_evicted_batches_total 5.0",
        "keyway_reader_failing_partitions 3.0",
    ):
        assert f"{line}\n" in text


def test_topics_are_ranked_with_each_scrape() -> None:
    read, delivered = BusiestTopics(2, 2), BusiestTopics(2, 2)
    metrics = TopicCollector(read, delivered)
    read.count("orders", 100)
    assert 'keyway_topic_read_bytes_total{topic="orders"} 0.0\n' in exported(metrics)
    read.count("orders", 11)
    delivered.count("orders", 7)
    text = exported(metrics)
    assert 'keyway_topic_read_bytes_total{topic="orders"} 11.0\n' in text
    assert 'keyway_topic_read_bytes_total{topic="other"} 100.0\n' in text
    assert 'keyway_topic_delivered_bytes_total{topic="other"} 7.0\n' in text
