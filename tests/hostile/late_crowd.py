"""`python -m tests.hostile.late_crowd BOOTSTRAP GROUP TOPIC MEMBERS`: librdkafka share members of
one group that join one after the other and close within three seconds, beside one that reads the
topic's records before, and reads on. Prints the number of those that did not close.
"""

from __future__ import annotations

import os
import random
import sys
import threading
import time

from confluent_kafka import ShareConsumer

from tests.rig.patience import patient_s

FIRST_RECORD_S_MAX = patient_s(30.0)
JOINS_S = 2.0  # all of them
STAY_S_MAX = 3.0
CLOSE_S_MAX = patient_s(15.0)
POLL_S = 0.02


class Crowd:
    def __init__(self, config: dict[str, str], topic: str) -> None:
        self.config = config
        self.topic = topic
        self.read = threading.Event()  # the first record
        self.gone = threading.Event()  # all but the one that reads on
        self.closed = 0
        self.lock = threading.Lock()

    def member(self, joins_s: float, stay_s: float) -> None:
        time.sleep(joins_s)
        end = time.monotonic() + stay_s
        consumer = ShareConsumer(dict(self.config))
        consumer.subscribe([self.topic])
        while time.monotonic() < end:
            consumer.poll(POLL_S)
        consumer.close()
        with self.lock:
            self.closed += 1

    def reader(self) -> None:
        consumer = ShareConsumer(dict(self.config))
        consumer.subscribe([self.topic])
        while not self.gone.is_set():
            if any(message.error() is None for message in consumer.poll(POLL_S)):
                self.read.set()
        consumer.close()


def main(bootstrap: str, group: str, topic: str, members: int) -> int:
    crowd = Crowd({"bootstrap.servers": bootstrap, "group.id": group, "log_level": "3"}, topic)
    drawn = random.Random(group)
    lives = [(drawn.uniform(0, JOINS_S), drawn.uniform(0, STAY_S_MAX)) for _ in range(members)]
    threads = [threading.Thread(target=crowd.member, args=life, daemon=True) for life in lives]
    reader = threading.Thread(target=crowd.reader, daemon=True)
    reader.start()
    assert crowd.read.wait(FIRST_RECORD_S_MAX), "no record"
    for thread in threads:
        thread.start()
    end = time.monotonic() + JOINS_S + STAY_S_MAX + CLOSE_S_MAX
    for thread in threads:
        thread.join(max(0.0, end - time.monotonic()))
    crowd.gone.set()
    reader.join(CLOSE_S_MAX)
    return members - crowd.closed


if __name__ == "__main__":
    where, name, read, count = sys.argv[1:]
    sys.stdout.write(f"{main(where, name, read, int(count))}\n")
    sys.stdout.flush()
    os._exit(0)  # a member that does not close would hold the process
