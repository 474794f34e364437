"""A log that is written to all the time, so that librdkafka never tells where it ends."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from confluent_kafka import Producer

from tests.rig.meanwhile import meanwhile

WRITES_A_SECOND = 50  # a fetch waits for 100 ms and longer, so it always brings some
WRITES_S = 20.0  # then it ends by itself, and a reader that waits for a lull is told so


@contextmanager
def steady_writes(write: Callable[[], object]) -> Iterator[Callable[[], bool]]:
    """`write` is called all the time; the answer tells whether it still is."""
    begun, until = threading.Event(), time.monotonic() + WRITES_S

    def work(over: threading.Event) -> None:
        while time.monotonic() < until and not over.wait(1 / WRITES_A_SECOND):
            write()
            begun.set()

    with meanwhile(work):
        assert begun.wait(WRITES_S), "nothing could be written"
        yield lambda: time.monotonic() < until


@contextmanager
def steady_records(front: str, topic: str) -> Iterator[Callable[[], bool]]:
    """Records without a header of a copy, to partition 0."""
    producer = Producer({"bootstrap.servers": front, "linger.ms": 0})

    def write() -> None:
        producer.produce(topic, b"v", partition=0)
        producer.flush(WRITES_S)

    with steady_writes(write) as goes_on:
        yield goes_on
