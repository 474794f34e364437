"""This checkout's node beside that of another one, with the same clients in turns: what a change,
or many of them, cost or gained a node that stands alone.

`python -m tests.bench.beside CHECKOUT [--rounds N] [--records N]`: CHECKOUT is a work tree of
another commit, with its own `.venv`, compiled like this one (`make ready`). Both nodes run for all
the time in front of one broker; each round runs every case once on each of them, the first one
changes with the round. A ratio is of the medians, this one's over the other's.
"""

from __future__ import annotations

import argparse
import dataclasses
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import psutil
import yaml

from gateway.embedded.kafka import TUNED_JVM, KafkaCluster
from tests.bench.cases import (
    Bench,
    consumer_perf,
    keyed,
    load_keyed,
    load_plain,
    producer_perf,
)
from tests.bench.cost import cpu_s
from tests.bench.latency import Load, run_once
from tests.bench.rows import print_rows, rows_of
from tests.rig.clients.java_programs import compile_programs
from tests.rig.gateway_process import REPOSITORY, GatewayProcess

CASES = {
    "producer-perf": producer_perf(through=True),
    "consumer-perf": consumer_perf(through=True),
    "keyed librdkafka": keyed("librdkafka", "share", through=True),
    "keyed java": keyed("java", "share", through=True),
}
KINDS = {"plain": "plain consumer", "share": "share consumer"}
LOAD = Load(10_000)
RUN_S_MAX = 60
# What every version knows: a node refuses what it does not.
SECTIONS = ("upstream", "listen", "admin", "state")
GROUPS = [{"match": "*", "auto_offset_reset": "earliest"}]


def node_of(checkout: Path, directory: Path, upstream: str) -> GatewayProcess:
    python = checkout / ".venv" / "bin" / "python"
    command = (str(python), "-m", "gateway.cli")
    node = GatewayProcess(directory, upstream, command=command)
    settings = yaml.safe_load(node.config.read_text())
    kept = {name: settings[name] for name in SECTIONS} | {"groups": GROUPS}
    node.config.write_text(yaml.safe_dump(kept, sort_keys=False))
    return node


@contextmanager
def both(
    kafka: KafkaCluster, checkout: Path, records: int, directory: Path
) -> Iterator[dict[str, Bench]]:
    with ExitStack() as stack:
        programs = compile_programs()
        upstream = kafka.bootstrap_servers
        benches = {}
        for name, tree in (("this", REPOSITORY), ("other", checkout)):
            node = stack.enter_context(node_of(tree, directory / name, upstream))
            benches[name] = Bench(kafka, node, programs, records, 2_000, RUN_S_MAX, directory)
        load_keyed(benches["this"])
        load_plain(benches["this"])
        yield benches


def measured(benches: dict[str, Bench], rounds: int) -> dict[str, dict[str, list[float]]]:
    """By unit and "case: checkout"."""
    found: dict[str, dict[str, list[float]]] = {"records/s": {}, "CPU s": {}, "ms": {}}

    def note(unit: str, case: str, figure: float) -> None:
        found[unit].setdefault(case, []).append(figure)

    def rate(case: str, name: str, bench: Bench) -> None:
        node = psutil.Process(bench.gateway.pid)
        before = cpu_s(node)
        note("records/s", f"{case}: {name}", CASES[case](bench))
        note("CPU s", f"{case}, the node's CPU: {name}", cpu_s(node) - before)

    def latency(kind: str, name: str, bench: Bench) -> None:
        through = bench.gateway.bootstrap
        ages = run_once(bench, LOAD, kind, through, through)
        for statistic in ("p50", "p99"):
            note("ms", f"{KINDS[kind]} {statistic}: {name}", ages[statistic])

    work: list[tuple[Callable[[str, str, Bench], None], str]] = []
    work += [(rate, case) for case in CASES]
    work += [(latency, kind) for kind in KINDS]
    for bench in benches.values():  # the first run of a node is slower than all later
        for run_case in CASES.values():
            run_case(dataclasses.replace(bench, records=bench.records // 20))
    for at in range(rounds):
        for run, what in work:
            for name in ("this", "other") if at % 2 == 0 else ("other", "this"):
                run(what, name, benches[name])
        sys.stdout.write(f"round {at + 1} is done\n")
        sys.stdout.flush()
    return found


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.beside", description=__doc__)
    parser.add_argument("checkout", type=Path)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--records", type=int, default=1_000_000)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="keyway-bench-") as folder:
        directory = Path(folder)
        with (
            KafkaCluster(1, jvm=TUNED_JVM, directory=directory / "kafka") as kafka,
            both(kafka, options.checkout.resolve(), options.records, directory) as benches,
        ):
            found = measured(benches, options.rounds)
    told(found, options.checkout.name)


def told(found: dict[str, dict[str, list[float]]], other: str) -> None:
    for unit, samples in found.items():
        pairs: dict[str, tuple[str, ...]] = {
            case: (f"{case.removesuffix(': this')}: other",)
            for case in samples
            if case.endswith(": this")
        }
        rows = rows_of(samples, pairs, unit=unit, digits=0 if unit == "records/s" else 2)
        print_rows(rows, f"this checkout beside {other}, {unit}")


if __name__ == "__main__":
    main()
