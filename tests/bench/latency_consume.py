"""One consumer that measures how old records are when the application has them in hand.

`python -m tests.bench.latency_consume share|plain BOOTSTRAP GROUP TOPIC RECORDS WARMUP_S
SECONDS_MAX [PROPERTY=VALUE...]` prints "ready" with the first record, a probe without a stamp;
then, after RECORDS with one or when SECONDS_MAX are over, "records N p50 MS p99 MS p999 MS max MS".
What was produced within WARMUP_S of the first stamp is consumed, but not judged. The consumer's
settings are librdkafka's defaults.
"""

from __future__ import annotations

import sys
import time
from array import array

from tests.bench.latency_produce import STAMP
from tests.bench.librdkafka_consume import source
from tests.bench.rows import percentile

PROBE = b"probe"
SHARES = {"p50": 50.0, "p99": 99.0, "p999": 99.9, "max": 100.0}


def main(arguments: list[str]) -> str:
    kind, bootstrap, group, topic, wanted, warmup_s, seconds_max, *properties = arguments
    config = {"bootstrap.servers": bootstrap, "group.id": group, "log_level": "3"}
    config |= dict(item.split("=", 1) for item in properties)
    consumer, read = source(kind, config, topic, plain_batch=1)
    deadline = time.monotonic() + float(seconds_max)
    counted_from = 0
    ages = array("q")  # ns
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
                    ages.append(now - stamp)
    consumer.close()
    in_order = sorted(ages)
    words = [f"{name} {percentile(in_order, share) / 1e6}" for name, share in SHARES.items()]
    return " ".join([f"records {count}", *words])


if __name__ == "__main__":
    sys.stdout.write(main(sys.argv[1:]) + "\n")
