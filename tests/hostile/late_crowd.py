"""`python -m tests.hostile.late_crowd BOOTSTRAP GROUP TOPIC MEMBERS`: librdkafka share members of
one group that join while the records run out, and close at once. Prints the number of those that
did not close.
"""

from __future__ import annotations

import os
import sys
import threading
import time

from confluent_kafka import ShareConsumer

READ_S_MAX = 20.0
IDLE_S = 0.5  # without a record for so long, all is read
CLOSE_S_MAX = 15.0


class Crowd:
    def __init__(self, config: dict[str, str], topic: str) -> None:
        self.config = config
        self.topic = topic
        self.began = time.monotonic()
        self.last = 0.0
        self.closed = 0
        self.lock = threading.Lock()

    @property
    def over(self) -> bool:
        now = time.monotonic()
        return now - self.began > READ_S_MAX or (self.last > 0 and now - self.last > IDLE_S)

    def member(self) -> None:
        consumer = ShareConsumer(dict(self.config))
        consumer.subscribe([self.topic])
        while not self.over:
            if any(message.error() is None for message in consumer.poll(0.1)):
                self.last = time.monotonic()
        consumer.close()
        with self.lock:
            self.closed += 1


def main(bootstrap: str, group: str, topic: str, members: int) -> int:
    crowd = Crowd({"bootstrap.servers": bootstrap, "group.id": group, "log_level": "3"}, topic)
    threads = [threading.Thread(target=crowd.member, daemon=True) for _ in range(members)]
    for thread in threads:
        thread.start()
    end = time.monotonic() + READ_S_MAX + CLOSE_S_MAX
    for thread in threads:
        thread.join(max(0.0, end - time.monotonic()))
    return members - crowd.closed


if __name__ == "__main__":
    where, name, read, count = sys.argv[1:]
    sys.stdout.write(f"{main(where, name, read, int(count))}\n")
    sys.stdout.flush()
    os._exit(0)  # a member that does not close would hold the process
