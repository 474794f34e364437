"""A steady producer whose records say when they were produced.

`python -m tests.bench.latency_produce BOOTSTRAP TOPIC PER_SECOND SECONDS KEYS` prints
"records N seconds S". A value begins with the monotonic clock at `produce()`, in ns, which is one
clock for all processes of a machine. The producer's settings are librdkafka's defaults.
"""

from __future__ import annotations

import random
import struct
import sys
import time

from confluent_kafka import Producer

from tests.bench.load import KEYED_BYTES

TICK_S = 0.001  # records of one tick are produced in a row
STAMP = struct.Struct(">q")


def main(arguments: list[str]) -> str:
    bootstrap, topic, per_second, seconds, keys = arguments
    wanted = int(float(per_second) * float(seconds))
    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "partitioner": "murmur2_random",
            "queue.buffering.max.messages": 500_000,
        }
    )
    rest = bytes(KEYED_BYTES - STAMP.size)
    chosen = random.Random(11)
    started = time.monotonic()
    sent = 0
    while sent < wanted:
        due = min(wanted, int((time.monotonic() - started) * float(per_second)))
        for _ in range(due - sent):
            key = b"key-%05d" % int(chosen.random() * int(keys))
            producer.produce(topic, STAMP.pack(time.monotonic_ns()) + rest, key)
        sent = max(sent, due)
        producer.poll(0)
        time.sleep(TICK_S)
    seconds_taken = time.monotonic() - started
    assert producer.flush(30) == 0, "records still unsent after 30 s"
    return f"records {sent} seconds {seconds_taken}"


if __name__ == "__main__":
    sys.stdout.write(main(sys.argv[1:]) + "\n")
