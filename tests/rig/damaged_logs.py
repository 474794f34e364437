"""A record that is damaged on a broker's disk."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from gateway.embedded.kafka import KafkaCluster


def first_segment(kafka: KafkaCluster, topic: str, partition: int = 0) -> Path:
    return kafka.brokers[0].directory / "data" / f"{topic}-{partition}" / f"{0:020}.log"


@contextmanager
def damaged(log: Path, what: bytes) -> Iterator[None]:
    """One bit of the only place where `what` stands in a log segment is wrong."""
    at = log.read_bytes().index(what)
    with log.open("r+b", buffering=0) as segment:
        for byte in (what[0] ^ 1, what[0]):
            segment.seek(at)
            segment.write(bytes([byte]))
            if byte != what[0]:
                yield
