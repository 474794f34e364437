"""`make campaign NAME=distribution-scale`: two clusters at their stated size, part by part.

    python -m tests.bench.scale [PART ...] [--topics n] [--partitions n] [--groups n]

A part is a module of this package with `measure(size, clusters) -> Iterator[Figure]`; it makes what
it needs on the two clusters, and bounds its own time. Add it to PARTS. Offsets and link need the
topics. The exit status is 1 if a figure is above its bound.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack

from rich.console import Console

from gateway.embedded.kafka import QUICK_JVM, KafkaCluster
from tests.bench.scale import link, offsets, schemas, topics
from tests.bench.scale.figures import Figure, Size

PARTS: dict[str, Callable[[Size, dict[str, str]], Iterator[Figure]]] = {
    "topics": topics.measure,
    "offsets": offsets.measure,
    "link": link.measure,
    "schemas": schemas.measure,
}

console = Console(highlight=False, width=200)

# Brokers that hold 10,000 partitions with few records cheaply.
CHEAP = {
    "log.index.size.max.bytes": "16384",
    "log.segment.bytes": str(16 * 1024 * 1024),
    "num.io.threads": "3",
    "num.network.threads": "2",
    "log.cleaner.enable": "false",
    # A broker that is late is fenced, which moves all its partitions; here it is the machine.
    "broker.session.timeout.ms": "120000",
}
# With the 512 MiB that other tests give a broker, 10,000 partitions leave it time for nothing but
# collecting garbage.
HEAP = (*QUICK_JVM, "-Xmx1536m")


def main() -> int:
    parser = argparse.ArgumentParser(prog="tests.bench.scale")
    parser.add_argument("parts", nargs="*", metavar="PART", help=", ".join(PARTS))
    parser.add_argument("--topics", type=int, default=1_000)
    parser.add_argument("--partitions", type=int, default=10)
    parser.add_argument("--groups", type=int, default=1_000)
    asked = parser.parse_args()
    for name in asked.parts:
        if name not in PARTS:
            parser.error(f"no part {name}: there are {', '.join(PARTS)}")
    parts = list(asked.parts or PARTS)
    if {"offsets", "link"} & set(parts) and "topics" not in parts:
        parts.insert(0, "topics")
    size = Size(asked.topics, asked.partitions, asked.groups)
    failed = False
    with ExitStack() as stack:
        kafkas = {
            cluster: stack.enter_context(KafkaCluster(1, properties=CHEAP, jvm=HEAP))
            for cluster in "AB"
        }
        clusters = {name: kafka.bootstrap_servers for name, kafka in kafkas.items()}
        for name in parts:
            began = time.monotonic()
            for figure in PARTS[name](size, clusters):
                console.print(f"{name}: {figure}")
                failed |= figure.is_above
            console.print(f"{name}: {time.monotonic() - began:.0f} s in all")
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
