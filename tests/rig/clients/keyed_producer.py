"""A stock librdkafka producer in a process of its own: numbered records of some keys, at a pace,
until its standard input ends.

    python -m tests.rig.clients.keyed_producer BOOTSTRAP TOPIC FIRST_KEY KEYS RATE PROPERTY=VALUE...

`sent.before=n` is no property of the client: it goes on behind n records of another such producer.
Its last line: how many records were acknowledged, how many were not, and of each key its number of
records (KeyedProducer.java prints the same).
"""

from __future__ import annotations

import json
import sys
import threading
import time
from typing import Any

from confluent_kafka import Producer


def main(bootstrap: str, topic: str, first: int, keys: int, rate: int, config: list[str]) -> None:
    ended = threading.Event()

    def wait_for_end() -> None:
        sys.stdin.read()
        ended.set()

    threading.Thread(target=wait_for_end, daemon=True).start()
    properties: dict[str, Any] = dict(item.split("=", 1) for item in config)
    sent = int(properties.pop("sent.before", 0))
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": "5", **properties})
    failed = []
    counts = [(sent - at + keys - 1) // keys for at in range(keys)]

    def told(error: object, message: Any) -> None:
        if error is not None:
            failed.append(f"{message.value()!r}: {error}")

    while not ended.is_set():
        at = sent % keys
        key = b"key-%d" % (first + at)
        producer.produce(topic, key=key, value=b"%d" % counts[at], on_delivery=told)
        counts[at] += 1
        sent += 1
        producer.poll(0)
        time.sleep(1 / rate)
    left = producer.flush(150)
    named = {f"key-{first + at}": count for at, count in enumerate(counts)}
    told_last = {"sent": sent, "failed": failed, "left": left, "keys": named}
    sys.stdout.write(json.dumps(told_last) + "\n")


if __name__ == "__main__":
    _, where, what, first_key, key_count, pace, *rest = sys.argv
    main(where, what, int(first_key), int(key_count), int(pace), rest)
