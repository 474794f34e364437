"""Topics full of records, written to Kafka itself as fast as a busy producer makes them."""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator

from confluent_kafka import Producer

KEYED_BYTES = 100
BY_KEY = -1  # the partition is the client's choice
FLUSH_S_MAX = 120.0


def load(bootstrap: str, topic: str, places: Iterable[tuple[bytes, int]]) -> None:
    """A record of KEYED_BYTES per (key, partition)."""
    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "linger.ms": 20,
            "batch.size": 131_072,
            "partitioner": "murmur2_random",
            "queue.buffering.max.messages": 500_000,
            "log_level": 3,
        }
    )
    value = bytes(KEYED_BYTES)
    for key, partition in places:
        while True:
            try:
                producer.produce(topic, value, key, partition)
                break
            except BufferError:
                producer.poll(0.1)
    assert producer.flush(FLUSH_S_MAX) == 0, f"records unsent after {FLUSH_S_MAX:.0f} s"


def drawn(records: int, keys: int) -> Iterator[tuple[bytes, int]]:
    """Keys drawn from so many, in the same order each time."""
    chosen = random.Random(7)
    for _ in range(records):
        yield b"key-%05d" % int(chosen.random() * keys), BY_KEY
