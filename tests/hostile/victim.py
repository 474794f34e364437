"""A producer and a share consumer that do nothing wrong.

`python -m tests.hostile.victim BOOTSTRAP GROUP TOPIC SECONDS FILE [NAME PASSWORD]` produces 100
records a second through the gateway and consumes them as a share group, for so long or until
SIGTERM; it prints "ready" with the first. With a name both log in (PLAIN).
FILE gets, as pairs of 64-bit numbers, when each record was produced and how old it was when it
came, in ns.
"""

from __future__ import annotations

import random
import signal
import sys
import threading
import time
from array import array
from pathlib import Path

from confluent_kafka import Producer

from tests.bench.latency_produce import STAMP
from tests.bench.librdkafka_consume import source

EVERY_S = 0.01
KEYS = 50


def main(arguments: list[str]) -> None:
    bootstrap, group, topic, seconds, file, *login = arguments
    known = {"bootstrap.servers": bootstrap, "log_level": "3"}
    if login:
        known |= {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN"}
        known |= {"sasl.username": login[0], "sasl.password": login[1]}
    end = time.monotonic() + float(seconds)
    over = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: over.set())
    producing = threading.Thread(target=_produce, args=(known, topic, over), daemon=True)
    consumer, read = source("share", {**known, "group.id": group}, topic, plain_batch=1)
    producing.start()
    ready = False
    found = Path(file).open("wb", buffering=0)  # noqa: SIM115  the process ends with it
    while time.monotonic() < end and not over.is_set():
        came = array("q")
        for message in read():
            value = message.value()
            if message.error() is None and value:
                (stamp,) = STAMP.unpack_from(value)
                came.extend((stamp, time.monotonic_ns() - stamp))
        found.write(came.tobytes())
        if came and not ready:
            ready = True
            sys.stdout.write("ready\n")
            sys.stdout.flush()
    over.set()
    producing.join(10)
    consumer.close()


def _produce(known: dict[str, str], topic: str, over: threading.Event) -> None:
    producer = Producer({**known, "linger.ms": 0})
    chosen = random.Random(5)
    while not over.wait(EVERY_S):
        key = b"key-%03d" % chosen.randrange(KEYS)
        producer.produce(topic, STAMP.pack(time.monotonic_ns()), key)
        producer.poll(0)
    producer.flush(10)


if __name__ == "__main__":
    main(sys.argv[1:])
