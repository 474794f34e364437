"""Two workers beside one: CPU time of all nodes per record, and the rate, with the same load.

`python -m tests.bench.workers [RECORDS] [ROUNDS]`: records of 10,000 keys for 100 members of a
librdkafka group, from one broker of two slots. One worker is a node alone. Rounds are interleaved.
Broker, nodes and members share the machine: the CPU time is the figure, Redis and all processes of
the service included.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
from functools import partial
from pathlib import Path
from statistics import median

import psutil
from rich.console import Console
from rich.table import Table

from gateway.embedded.kafka import TUNED_JVM, KafkaCluster
from tests.bench.links import tree_cpu_s
from tests.bench.load import drawn, load
from tests.rig.gateway_process import REPOSITORY, GatewayProcess
from tests.rig.kafka import create_topic
from tests.rig.patience import wait_until

KEYS = 10_000
MEMBERS = 100
PARTITIONS = 12
SECONDS_MAX = 120
GROUPS = [{"match": "*", "auto_offset_reset": "earliest"}]


def consumed(service: GatewayProcess, group: str, topic: str, records: int) -> tuple[float, float]:
    """Microseconds of CPU per record, and records per second."""
    process = psutil.Process(service.pid)
    before = tree_cpu_s(process)
    command = (*(sys.executable, "-m", "tests.bench.crowd"), service.bootstrap, group, topic)
    said = subprocess.run(
        [*command, str(records), str(SECONDS_MAX), str(MEMBERS)],
        cwd=REPOSITORY,
        stdout=subprocess.PIPE,
        text=True,
        timeout=SECONDS_MAX + 60,
        check=True,
    ).stdout
    spent = tree_cpu_s(process) - before
    found = re.search(r"records (\d+) seconds ([\d.]+)", said)
    assert found is not None, said
    assert int(found[1]) >= records, said
    return 1e6 * spent / records, records / float(found[2])


def ready(service: GatewayProcess) -> bool:
    return service.log_text().count("event='ready'") == service.workers


def measured(
    kafka: KafkaCluster, directory: Path, topic: str, records: int, rounds: int
) -> dict[int, list[tuple[float, float]]]:
    """By the number of workers."""
    found: dict[int, list[tuple[float, float]]] = {1: [], 2: []}
    create_topic(kafka.bootstrap_servers, topic, partitions=PARTITIONS)
    load(kafka.bootstrap_servers, topic, drawn(records, KEYS))
    for at in range(rounds):
        for workers in (1, 2) if at % 2 == 0 else (2, 1):
            service = GatewayProcess(
                directory / f"{at}-{workers}",
                kafka.bootstrap_servers,
                groups=GROUPS,
                listen={"slots_per_broker": 2, "port_step": 2},
                workers=workers,
                afresh=True,
            )
            with service:
                wait_until(partial(ready, service), what="all workers", deadline_s=30)
                group = f"{topic}-{at}-{workers}"
                found[workers].append(consumed(service, group, topic, records))
    return found


def main() -> None:
    records, rounds = (int(word) for word in (*sys.argv[1:], "200000", "3")[:2])
    with tempfile.TemporaryDirectory() as folder, KafkaCluster(1, jvm=TUNED_JVM) as kafka:
        figures = measured(kafka, Path(folder), "orders", records, rounds)
    table = Table("workers", "CPU µs per record (rounds)", "median", "records/s (median)")
    for workers, runs in figures.items():
        costs = [cost for cost, _ in runs]
        rate = median(rate for _, rate in runs)
        told = ", ".join(f"{cost:.1f}" for cost in costs)
        table.add_row(str(workers), told, f"{median(costs):.1f}", f"{rate:,.0f}")
    console = Console()
    console.print(table)
    one, two = (median(cost for cost, _ in figures[workers]) for workers in (1, 2))
    console.print(f"CPU per record, two workers against one: {two / one:.2f}")


if __name__ == "__main__":
    main()
