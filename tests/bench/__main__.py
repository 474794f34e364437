"""`python -m tests.bench` (make bench): Keyway beside Kafka itself, in one run on one machine.

Rounds are interleaved: every round runs every case once, each round starting with another, so that
a machine that gets slower or faster is the same for all. Broker, gateway and client share the
machine. What each case does and with which settings: cases.py.
"""

from __future__ import annotations

import argparse
import os
import platform
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import psutil
from rich.console import Console

from gateway.compiled import version_line
from gateway.embedded.kafka import TUNED_JVM, KafkaCluster, kafka_libs
from tests.bench.cases import (
    KEYED,
    PAIRS,
    PASS_THROUGH,
    Bench,
    Case,
    goes_through,
    load_keyed,
    load_plain,
)
from tests.bench.rows import rows_of, show, write
from tests.clients.java_programs import compile_programs
from tests.integration.gateway_process import REPOSITORY, GatewayProcess

RESULT = REPOSITORY / "build" / "bench.json"
UNIT = "records/s"
# User and system time of the gateway's process: the figure that a busy machine does not change.
CPU_UNIT = "CPU s per million records"
Samples = tuple[dict[str, list[float]], dict[str, list[float]]]
console = Console(width=140)


def arguments(given: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.bench", description=__doc__)
    parser.add_argument("--rounds", type=int, default=3, help="interleaved rounds (default 3)")
    parser.add_argument("--records", type=int, default=1_000_000, help="records per run")
    parser.add_argument("--max-poll-records", type=int, default=2_000, help="of share consumers")
    parser.add_argument("--only", default="", help="cases whose name contains this, e.g. 'java'")
    parser.add_argument("--run-seconds-max", type=float, default=120, help="bound of one run")
    parser.add_argument("--seconds-max", type=float, default=1_800, help="no round starts after it")
    parser.add_argument("--output", type=Path, default=RESULT)
    return parser.parse_args(given)


def main() -> None:
    options = arguments()
    cases: dict[str, Case] = {
        name: case for name, case in (PASS_THROUGH | KEYED).items() if options.only in name
    }
    if not cases:
        raise SystemExit(f"no case has {options.only!r} in its name: {[*PASS_THROUGH, *KEYED]}")
    console.print(f"{version_line()}; {os.cpu_count()} CPUs, {platform.machine()}")
    with tempfile.TemporaryDirectory(prefix="keyway-bench-") as folder:
        directory = Path(folder)
        programs = compile_programs(kafka_libs(), directory / "classes")
        with KafkaCluster(1, jvm=TUNED_JVM, directory=directory / "kafka") as kafka:
            gateway = GatewayProcess(
                directory / "gateway",
                kafka.bootstrap_servers,
                groups=[{"match": "*", "auto_offset_reset": "earliest"}],
            )
            with gateway:
                bench = Bench(
                    kafka,
                    gateway,
                    programs,
                    options.records,
                    options.max_poll_records,
                    options.run_seconds_max,
                    "bench-keyed",
                    "bench-plain",
                )
                samples = run(bench, cases, options)
    rates, gateway_cpu = samples
    rows = rows_of(rates, PAIRS, unit=UNIT) + rows_of(gateway_cpu, {}, unit=CPU_UNIT, digits=2)
    show(rows, f"{options.records:,} records a run, median of {options.rounds} interleaved rounds")
    write(rows, options.output)
    console.print(f"written to {options.output}")


def run(bench: Bench, cases: dict[str, Case], options: argparse.Namespace) -> Samples:
    """Every case once per round: its rates, and what each run cost the gateway."""
    if any(name in KEYED for name in cases):
        load_keyed(bench.kafka, bench.keyed_topic, bench.records)
    if any(name.startswith("consumer-perf") for name in cases):
        load_plain(bench)
    rates: dict[str, list[float]] = {name: [] for name in cases}
    gateway_cpu: dict[str, list[float]] = {}
    gateway = psutil.Process(bench.gateway.pid)
    started = time.monotonic()
    names = list(cases)
    for at in range(options.rounds):
        if time.monotonic() - started > options.seconds_max:
            console.print(f"stopped after {at} rounds: {options.seconds_max:.0f} s are over")
            break
        turn = at % len(names)
        for name in names[turn:] + names[:turn]:
            before = gateway.cpu_times()
            rates[name].append(cases[name](bench))
            after = gateway.cpu_times()
            spent = after.user + after.system - before.user - before.system
            if goes_through(name):
                cost = spent * 1_000_000 / bench.records
                gateway_cpu.setdefault(f"{name}: gateway CPU", []).append(cost)
            console.print(f"round {at + 1}  {name:36} {rates[name][-1]:12,.0f} {UNIT}")
    return rates, gateway_cpu


if __name__ == "__main__":
    main()
