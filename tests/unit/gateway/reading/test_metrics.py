"""The metrics of reading."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.registry import Collector

from gateway.reading.metrics import ReaderCollector
from gateway.reading.reader import ReaderCounts


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
