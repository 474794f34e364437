"""Stock librdkafka clients over one security setting: `python -m
tests.rig.clients.librdkafka_round_trip SETTINGS.json`.

Produces `count` records, reads them as a consumer, and as a share consumer that accepts them. It
prints the number of each, as JSON.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, Message, Producer, ShareConsumer

WITHIN_S = 120.0


def main() -> None:
    settings: dict[str, Any] = json.loads(Path(sys.argv[1]).read_text("utf-8"))
    client, topic, count = settings["client"], settings["topic"], settings["count"]
    producer = Producer({**client, "enable.idempotence": True})
    failed: list[str] = []
    for number in range(count):
        producer.produce(
            topic,
            f"value-{number}",
            f"key-{number % 7}",
            on_delivery=lambda error, _: failed.append(str(error)) if error is not None else None,
        )
        producer.poll(0)
    left = producer.flush(WITHIN_S)
    consumer = Consumer({**client, "group.id": settings["group"], "auto.offset.reset": "earliest"})
    consumer.subscribe([topic])
    consumed = _values(consumer, count)
    consumer.close()
    share = ShareConsumer({**client, "group.id": settings["share_group"]})
    share.subscribe([topic])
    shared = _values(share, count)
    share.close()
    report = {"failed": failed, "left": left, "consumed": consumed, "shared": shared}
    print(json.dumps(report))  # noqa: T201


def _values(consumer: Any, count: int) -> int:
    """How many different ones came."""
    seen: set[bytes] = set()
    until = time.monotonic() + WITHIN_S
    while len(seen) < count and time.monotonic() < until:
        polled = consumer.poll(0.5)
        one = polled is None or isinstance(polled, Message)
        for message in [polled] if one else polled:
            if message is not None and message.error() is None:
                seen.add(message.value())
    return len(seen)


if __name__ == "__main__":
    main()
