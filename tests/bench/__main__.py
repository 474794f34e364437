"""`python -m tests.bench` (make bench): Keyway beside Kafka itself, in one run on one machine.

Its parts: the throughput cases (cases.py), latency, memory, and the cost per record over keys and
members. Rounds are interleaved: every round runs everything once, each starting with another, so
that a machine that gets slower or faster is the same for all. Broker, gateway and client share the
machine. At the end the bars (bars.py) are called met, missed or not measured.
"""

from __future__ import annotations

import argparse
import os
import platform
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import psutil
from rich.console import Console
from rich.markup import escape

from gateway.compiled import version_line
from gateway.embedded.kafka import TUNED_JVM, KafkaCluster
from gateway.embedded.process import SetupError
from tests.bench import bars, latency
from tests.bench.cases import CASES, KEYED, PAIRS, Bench, Case, goes_through, load_keyed, load_plain
from tests.bench.cost import children_cpu_s, client_cost, core_cost, cpu_s, plot
from tests.bench.dashboard import dashboard
from tests.bench.floor import share_fetch
from tests.bench.latency import Load
from tests.bench.limits_cost import limits_cost
from tests.bench.memory import memory
from tests.bench.metrics_cost import metrics_cost
from tests.bench.profiling import profile
from tests.bench.rounds import rounds_within
from tests.bench.rows import Row, print_rows, rows_of, write
from tests.bench.schemas import schemas
from tests.bench.tls import tls
from tests.bench.work import plot as plot_work
from tests.bench.work import slow_work
from tests.rig.clients.java_programs import compile_programs
from tests.rig.gateway_process import REPOSITORY, GatewayProcess

BUILD = REPOSITORY / "build"
# User and system time of the gateway's process: the figure that a busy machine does not change.
CPU_UNIT = "CPU s per million records"
PARTS = (
    "latency",
    "dashboard",
    "memory",
    "metrics",
    "limits",
    "cost core",
    "cost clients",
    "floor",
    "schemas",
    "tls",
)
# Seconds for each part's rounds: with loading and starting, a quarter of an hour.
SECONDS_MAX = {
    "throughput": 300,
    "latency": 240,
    "dashboard": 300,
    "memory": 75,
    "metrics": 120,
    "limits": 60,
    "cost core": 60,
    "cost clients": 90,
    "floor": 120,
    "schemas": 100,
    "tls": 240,
    "work": 600,
}
# A quarter of an hour for one round: only if it is asked for by name.
LONG = ("work",)
# Of a client, of its set-up, of a bound that was passed.
FAILURES = (AssertionError, TimeoutError, SetupError, subprocess.SubprocessError)
console = Console(width=160)


def arguments(given: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.bench", description=__doc__)
    add = parser.add_argument
    add("--rounds", type=int, default=3, help="interleaved rounds (default 3)")
    add("--records", type=int, default=1_000_000, help="records per run")
    add("--max-poll-records", type=int, default=2_000, help="of share consumers")
    add("--only", default="", help="cases and parts whose name contains this, e.g. 'java'")
    add("--run-seconds-max", type=float, default=60, help="bound of one run")
    add("--patience", type=float, default=1, help="factor on the time that each part has")
    add("--per-second", type=int, default=latency.PER_SECOND, help="records, of the latency part")
    add("--profile", action="store_true", help="only a profile of the gateway, into build/")
    add("--keys", type=int, default=1_000_000, help="of the profiled load")
    add("--members", type=int, default=100, help="of the profiled load")
    add("--output", type=Path, default=BUILD / "bench.json")
    return parser.parse_args(given)


def main() -> int:
    options = arguments()
    cases = {name: case for name, case in CASES.items() if options.only in name}
    parts = [name for name in PARTS if options.only in name]
    parts += [name for name in LONG if options.only and options.only in name]
    if not cases and not parts:
        raise SystemExit(f"nothing has {options.only!r} in its name: {[*CASES, *PARTS, *LONG]}")
    console.print(f"{version_line()}; {os.cpu_count()} CPUs, {platform.machine()}")
    started = time.monotonic()
    with running(options) as bench:
        if options.profile:
            written = profile(bench, options.keys, options.members, options.output.parent)
            console.print(written.read_text(), markup=False, highlight=False)
            console.print(f"written to {written}, the stacks beside it")
            return 0
        rows, failures = measure(bench, cases, parts, options)
    write(rows, options.output)
    console.print(f"written to {options.output}; {time.monotonic() - started:.0f} s")
    bars.print_verdicts(bars.judge(rows), console)
    for failure in failures:
        console.print(f"[red]failed      [/] {escape(failure)}", highlight=False)
    return 1 if failures else 0


@contextmanager
def running(options: argparse.Namespace) -> Iterator[Bench]:
    """A broker, and a gateway in front of it, for as long as the block."""
    with tempfile.TemporaryDirectory(prefix="keyway-bench-") as folder:
        directory = Path(folder)
        programs = compile_programs()
        with KafkaCluster(1, jvm=TUNED_JVM, directory=directory / "kafka") as kafka:
            groups = [{"match": "*", "auto_offset_reset": "earliest"}]
            upstream = kafka.bootstrap_servers
            with GatewayProcess(directory / "gateway", upstream, groups=groups) as gateway:
                yield Bench(
                    kafka,
                    gateway,
                    programs,
                    options.records,
                    options.max_poll_records,
                    options.run_seconds_max,
                    directory,
                )


def measure(
    bench: Bench, cases: dict[str, Case], parts: list[str], options: argparse.Namespace
) -> tuple[list[Row], list[str]]:
    """All rows, and the failures: a part or case that fails costs the others nothing."""
    rows: list[Row] = []
    failures: list[str] = []
    work: dict[str, Callable[[Iterator[int]], list[Row]]] = {
        "throughput": lambda rounds: throughput(bench, cases, rounds, failures),
        "latency": lambda rounds: latency.latency(bench, rounds, Load(options.per_second)),
        "dashboard": lambda rounds: dashboard(bench, rounds),
        "memory": lambda rounds: memory(bench, rounds),
        "metrics": lambda rounds: metrics_cost(bench, rounds),
        "limits": lambda rounds: limits_cost(bench, rounds),
        "cost core": core_cost,
        "cost clients": lambda rounds: client_cost(bench, rounds),
        "floor": lambda rounds: share_fetch(bench, rounds),
        "tls": lambda rounds: tls(bench, rounds),
        "work": lambda rounds: slow_work(bench, rounds),
        "schemas": lambda rounds: schemas(bench.kafka.bootstrap_servers, rounds),
    }
    for name in [*(["throughput"] if cases else []), *parts]:
        started = time.monotonic()
        try:
            seconds_max = SECONDS_MAX[name] * options.patience
            found = work[name](rounds_within(options.rounds, seconds_max))
        except FAILURES as error:
            note(failures, name, error)
            continue
        rows += found
        print_rows(found, f"{name}: medians of {options.rounds} interleaved rounds")
        console.print(f"{name}: {time.monotonic() - started:.0f} s")
    picture = options.output.parent / "bench-cost.png"
    if plot(rows, picture):
        console.print(f"drawn: {picture}")
    picture = options.output.parent / "bench-work.png"
    if plot_work(rows, picture):
        console.print(f"drawn: {picture}")
    return rows, failures


def throughput(
    bench: Bench, cases: dict[str, Case], rounds: Iterator[int], failures: list[str]
) -> list[Row]:
    """Every case once per round: its rates, the gateway's CPU time for each run, and the client's
    for a keyed one. A case that failed is not run again.
    """
    if any(name in KEYED for name in cases):
        load_keyed(bench)
    if any(name.startswith("consumer-perf") for name in cases):
        load_plain(bench)
    rates: dict[str, list[float]] = {name: [] for name in cases}
    costs: dict[str, list[float]] = {}
    gateway = psutil.Process(bench.gateway.pid)
    names = list(cases)
    for at in rounds:
        turn = at % len(cases)
        for name in [*names[turn:], *names[:turn]]:
            if name not in rates:
                continue
            before = cpu_s(gateway), children_cpu_s()
            try:
                rates[name].append(cases[name](bench))
            except FAILURES as error:
                note(failures, name, error)
                del rates[name]
                continue
            millions = bench.records / 1_000_000
            if goes_through(name):
                spent = (cpu_s(gateway) - before[0]) / millions
                costs.setdefault(f"{name}: gateway CPU", []).append(spent)
            if name in KEYED:
                spent = (children_cpu_s() - before[1]) / millions
                costs.setdefault(f"{name}: client CPU", []).append(spent)
            console.print(f"round {at + 1}  {name:36} {rates[name][-1]:12,.0f} {bars.RATE}")
    return rows_of(rates, PAIRS, unit=bars.RATE) + rows_of(costs, {}, unit=CPU_UNIT, digits=2)


def note(failures: list[str], name: str, error: Exception) -> None:
    failures.append(f"{name}: {error}")
    console.print(f"{name} failed: {error}", markup=False)


if __name__ == "__main__":
    sys.exit(main())
