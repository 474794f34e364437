"""One librdkafka consumer reads a number of records: the counterpart of ConsumeBench.java.

`python -m tests.bench.librdkafka_consume share|plain BOOTSTRAP GROUP TOPIC RECORDS SECONDS_MAX
[PROPERTY=VALUE...]` prints "records N seconds S bytes B", S from the first poll that returned
records to the last. Share consumers acknowledge implicitly.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import Any

from confluent_kafka import Consumer, ShareConsumer

POLL_S = 0.2
PLAIN_BATCH = 10_000  # messages per consume(); a share consumer's poll() has its max.poll.records


def source(
    kind: str, config: dict[str, str], topic: str, *, plain_batch: int = PLAIN_BATCH
) -> tuple[Any, Callable[[], Any]]:
    """The consumer and its way to read a batch. A plain one waits until it has `plain_batch`."""
    if kind == "share":
        shared = ShareConsumer(dict(config))
        shared.subscribe([topic])
        return shared, lambda: shared.poll(POLL_S)
    config.pop("max.poll.records", None)  # no such property of librdkafka's plain consumer
    plain = Consumer({**config, "auto.offset.reset": "earliest"})
    plain.subscribe([topic])
    return plain, lambda: plain.consume(plain_batch, POLL_S)


def main(arguments: list[str]) -> str:
    kind, bootstrap, group, topic, wanted, seconds_max, *properties = arguments
    config = {"bootstrap.servers": bootstrap, "group.id": group, "log_level": "3"}
    config |= dict(item.split("=", 1) for item in properties)
    consumer, read = source(kind, config, topic)
    deadline = time.monotonic() + float(seconds_max)
    first = 0.0
    count = size = 0
    while count < int(wanted) and time.monotonic() < deadline:
        messages = read()
        if not messages:
            continue
        if first == 0.0:
            first = time.monotonic()
        for message in messages:
            if message.error() is None:
                count += 1
                size += len(message)
    seconds = time.monotonic() - first
    consumer.close()
    return f"records {count} seconds {seconds} bytes {size}"


if __name__ == "__main__":
    sys.stdout.write(main(sys.argv[1:]) + "\n")
