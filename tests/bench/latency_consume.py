"""One consumer that measures how old records are when the application has them in hand.

`python -m tests.bench.latency_consume share|plain BOOTSTRAP GROUP TOPIC RECORDS WARMUP_S
SECONDS_MAX FILE [PROPERTY=VALUE...]` prints "ready" with the first record, a probe without a stamp;
then, after RECORDS with one or when SECONDS_MAX are over, "records N". FILE then has the stamps and
behind them the ages, both in ns, of records produced later than WARMUP_S after the first stamp.
The consumer's settings are librdkafka's defaults.
"""

from __future__ import annotations

import sys
import time
from array import array
from pathlib import Path

from tests.bench.latency_produce import STAMP
from tests.bench.librdkafka_consume import source

PROBE = b"probe"


def main(arguments: list[str]) -> str:
    kind, bootstrap, group, topic, wanted, warmup_s, seconds_max, file, *properties = arguments
    config = {"bootstrap.servers": bootstrap, "group.id": group, "log_level": "3"}
    config |= dict(item.split("=", 1) for item in properties)
    consumer, read = source(kind, config, topic, plain_batch=1)
    deadline = time.monotonic() + float(seconds_max)
    counted_from = 0
    stamps, ages = array("q"), array("q")
    count = 0
    while count < int(wanted) and time.monotonic() < deadline:
        for message in read():
            now = time.monotonic_ns()
            value = message.value()
            if message.error() is not None or value is None:
                continue
            if value == PROBE:
                sys.stdout.write("ready\n")
                sys.stdout.flush()
            else:
                count += 1
                (stamp,) = STAMP.unpack_from(value)
                if not counted_from:
                    counted_from = stamp + int(float(warmup_s) * 1e9)
                if stamp >= counted_from:
                    stamps.append(stamp)
                    ages.append(now - stamp)
    consumer.close()
    Path(file).write_bytes(stamps.tobytes() + ages.tobytes())
    return f"records {count}"


if __name__ == "__main__":
    sys.stdout.write(main(sys.argv[1:]) + "\n")
