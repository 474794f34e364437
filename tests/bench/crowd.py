"""Many librdkafka share consumers of one group in one process, each on a thread of its own.

`python -m tests.bench.crowd BOOTSTRAP GROUP TOPIC RECORDS SECONDS_MAX MEMBERS [PROPERTY=VALUE...]`
prints "records N seconds S members M", S from the first poll that returned records to the last, M
those that got some. With the property `work.ms=N` each record takes its consumer so long, and N and
S are those from a quarter of the records to nine tenths.
"""

from __future__ import annotations

import sys
import threading
import time
from dataclasses import dataclass, field

from tests.bench.librdkafka_consume import source

CLOSE_S_MAX = 20.0
MIDDLE = (0.25, 0.9)  # of the records of a run with work


@dataclass(slots=True)
class Tally:
    wanted: int
    deadline: float
    works: bool = False
    count: int = 0
    first: float = 0.0
    last: float = 0.0
    times: list[tuple[float, int]] = field(
        default_factory=list
    )  # with work: when so many were done
    lock: threading.Lock = field(default_factory=threading.Lock)

    def add(self, records: int) -> None:
        with self.lock:
            self.last = time.monotonic()
            self.first = self.first or self.last
            self.count += records
            if self.works:
                self.times.append((self.last, self.count))

    def middle(self) -> tuple[int, float]:
        """Records and seconds, from a quarter of all to nine tenths."""
        inner = [
            (at, count)
            for at, count in self.times
            if MIDDLE[0] * self.wanted <= count <= MIDDLE[1] * self.wanted
        ]
        if len(inner) < 2:
            return 0, 1.0
        (began, first), (ended, last) = inner[0], inner[-1]
        return last - first, max(ended - began, 1e-3)

    @property
    def over(self) -> bool:
        return self.count >= self.wanted or time.monotonic() > self.deadline


def consume(
    config: dict[str, str], topic: str, tally: Tally, served: list[int], work_s: float = 0.0
) -> None:
    consumer, read = source("share", config, topic)
    mine = 0
    while not tally.over:
        records = sum(message.error() is None for message in read())
        if work_s:
            for _ in range(records):
                time.sleep(work_s)  # the work on one record
                tally.add(1)
            mine += records
        elif records:
            mine += records
            tally.add(records)
    served.append(mine)
    consumer.close()


def main(arguments: list[str]) -> str:
    bootstrap, group, topic, wanted, seconds_max, members, *properties = arguments
    config = {"bootstrap.servers": bootstrap, "group.id": group, "log_level": "3"}
    config |= dict(item.split("=", 1) for item in properties)
    work_ms = config.pop("work.ms", None)
    works = work_ms is not None
    work_s = float(work_ms or 0) / 1_000
    tally = Tally(int(wanted), time.monotonic() + float(seconds_max), works)
    served: list[int] = []
    threads = [
        threading.Thread(
            target=consume, args=(dict(config), topic, tally, served, work_s), daemon=True
        )
        for _ in range(int(members))
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(float(seconds_max) + CLOSE_S_MAX)
    busy = sum(count > 0 for count in served)
    if works:
        records, seconds = tally.middle()
        return f"records {records} seconds {seconds} members {busy}"
    return f"records {tally.count} seconds {tally.last - tally.first} members {busy}"


if __name__ == "__main__":
    sys.stdout.write(main(sys.argv[1:]) + "\n")
