"""A stock librdkafka consumer of a plain group in a process of its own, until its standard input
ends. It works for a while on what came, and commits that.

    python -m tests.rig.clients.plain_consumer BOOTSTRAP TOPICS GROUP PAUSE_MS PROPERTY=VALUE...

A line for each record: when it came and when it was done (the monotonic clock in ns), partition
(1000 more with each further topic), key, value (PlainConsumer.java prints the same).
"""

from __future__ import annotations

import sys
import threading
import time
from contextlib import suppress
from typing import Any

from confluent_kafka import Consumer, KafkaException


def main(bootstrap: str, topic: str, group: str, pause_ms: int, config: list[str]) -> None:
    ended = threading.Event()

    def wait_for_end() -> None:
        sys.stdin.read()
        ended.set()

    threading.Thread(target=wait_for_end, daemon=True).start()
    properties: dict[str, Any] = dict(item.split("=", 1) for item in config)
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "topic.metadata.refresh.interval.ms": 500,
            **properties,
        }
    )
    topics = topic.split(",")
    consumer.subscribe(topics)
    while not ended.is_set():
        came = [each for each in consumer.consume(100, 0.2) if each.error() is None]
        if not came:
            continue
        came_ns = time.monotonic_ns()
        time.sleep(pause_ms / 1000)
        done_ns = time.monotonic_ns()
        for each in came:
            key, value = (each.key() or b"").decode(), (each.value() or b"").decode()
            partition = 1_000 * topics.index(each.topic() or "") + (each.partition() or 0)
            sys.stdout.write(f"{came_ns} {done_ns} {partition} {key} {value}\n")
        sys.stdout.flush()
        with suppress(KafkaException):  # the records come again, to whoever has the partition now
            consumer.commit(asynchronous=False)
    consumer.close()


if __name__ == "__main__":
    _, where, what, whose, pause, *rest = sys.argv
    main(where, what, whose, int(pause), rest)
