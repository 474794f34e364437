"""How late a record is on the target of a link: from the producer's `produce` to a consumer there
that reads committed records.

A steady load of RATE records a second. The first seconds, in which the link starts, do not count.
"""

from __future__ import annotations

import threading
import time
from statistics import quantiles

from confluent_kafka import Consumer, Producer, TopicPartition

RATE = 5_000  # records/s
TICK_S = 0.01
STARTS_S_MAX = 120.0
CAUGHT_UP_MS = 10_000  # from then on the link is no longer at what came before it began
SETTLES_S = 45.0  # behind that: Java's compiler has seen what every batch goes through


def measured(source: str, target: str, topic: str, partitions: int, seconds: float) -> str:
    """Raises AssertionError if no record arrives."""
    over = threading.Event()
    thread = threading.Thread(target=_produce, args=(source, topic, partitions, over), daemon=True)
    thread.start()
    try:
        late_ms = _consumed(target, topic, partitions, seconds)
    finally:
        over.set()
        thread.join()
    cuts = quantiles(late_ms, n=100)
    return (
        f"{len(late_ms):,} records in {seconds:.0f} s: p50 {cuts[49]:,.0f} ms,"
        f" p99 {cuts[98]:,.0f} ms, the latest {max(late_ms):,.0f} ms"
    )


def _produce(source: str, topic: str, partitions: int, over: threading.Event) -> None:
    """The value of a record is the time at which it was produced, in ns of the machine's clock."""
    producer = Producer({"bootstrap.servers": source, "linger.ms": 5, "log_level": 0})
    began, sent = time.monotonic(), 0
    while not over.wait(TICK_S):
        due = int((time.monotonic() - began) * RATE)
        for at in range(sent, due):
            value = b"%020d" % time.monotonic_ns() + bytes(180)
            producer.produce(topic, value, b"%d" % (at % 10_000), at % partitions)
        sent = due
        producer.poll(0)
    producer.flush(30)


def _consumed(target: str, topic: str, partitions: int, seconds: float) -> list[float]:
    """How late the records of so many seconds were, in ms, once the link is warm."""
    settings = {"bootstrap.servers": target, "group.id": "lag", "isolation.level": "read_committed"}
    consumer = Consumer({**settings, "fetch.wait.max.ms": 10})
    consumer.assign([TopicPartition(topic, number, 0) for number in range(partitions)])
    late_ms: list[float] = []
    end = time.monotonic() + STARTS_S_MAX
    first = 0.0
    try:
        while time.monotonic() < end:
            for message in consumer.consume(5_000, 0.05):
                assert message.error() is None, message.error()
                value = message.value()
                assert value is not None
                now = time.monotonic()
                late = (time.monotonic_ns() - int(value[:20])) / 1e6
                if not first and late < CAUGHT_UP_MS:
                    first, end = now, now + SETTLES_S + seconds
                if first and now > first + SETTLES_S:
                    late_ms.append(late)
    finally:
        consumer.close()
    assert late_ms, "no record arrived"
    return late_ms
