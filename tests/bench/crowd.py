"""Many librdkafka share consumers of one group in one process, each on a thread of its own.

`python -m tests.bench.crowd BOOTSTRAP GROUP TOPIC RECORDS SECONDS_MAX MEMBERS [PROPERTY=VALUE...]`
prints "records N seconds S members M", S from the first poll that returned records to the last, M
those that got some.
"""

from __future__ import annotations

import sys
import threading
import time
from dataclasses import dataclass, field

from tests.bench.librdkafka_consume import source

CLOSE_S_MAX = 20.0


@dataclass(slots=True)
class Tally:
    wanted: int
    deadline: float
    count: int = 0
    first: float = 0.0
    last: float = 0.0
    lock: threading.Lock = field(default_factory=threading.Lock)

    def add(self, records: int) -> None:
        with self.lock:
            self.last = time.monotonic()
            self.first = self.first or self.last
            self.count += records

    @property
    def over(self) -> bool:
        return self.count >= self.wanted or time.monotonic() > self.deadline


def consume(config: dict[str, str], topic: str, tally: Tally, served: list[int]) -> None:
    consumer, read = source("share", config, topic)
    mine = 0
    while not tally.over:
        records = sum(message.error() is None for message in read())
        if records:
            mine += records
            tally.add(records)
    served.append(mine)
    consumer.close()


def main(arguments: list[str]) -> str:
    bootstrap, group, topic, wanted, seconds_max, members, *properties = arguments
    config = {"bootstrap.servers": bootstrap, "group.id": group, "log_level": "3"}
    config |= dict(item.split("=", 1) for item in properties)
    tally = Tally(int(wanted), time.monotonic() + float(seconds_max))
    served: list[int] = []
    threads = [
        threading.Thread(target=consume, args=(dict(config), topic, tally, served), daemon=True)
        for _ in range(int(members))
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(float(seconds_max) + CLOSE_S_MAX)
    busy = sum(count > 0 for count in served)
    return f"records {tally.count} seconds {tally.last - tally.first} members {busy}"


if __name__ == "__main__":
    sys.stdout.write(main(sys.argv[1:]) + "\n")
