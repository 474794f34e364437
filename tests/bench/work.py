"""The regime of slow work: consumers that take 0 to 100 ms for a record, many of them on few
partitions, through Keyway, in Kafka's own share group (no order), and in Parallel Consumer by key.

A cell is a time of work, a number of consumers and `max.poll.records`. Its figure is a rate as a
part of the ideal, consumers by work; without work there is no ideal, and the rate itself is told.
Rates are those of the middle of a run, from a quarter of its records to nine tenths: neither the
joins of the first seconds nor the last records of long keys count. Of Keyway's runs the CPU of
the gateway is told, too, as a part of a core.
"""

from __future__ import annotations

import itertools
import sys
import time
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import NamedTuple

import psutil

from tests.bench.cases import BENCH_JVM, PARTITIONS, Bench, finish, rate
from tests.bench.cost import cpu_s
from tests.bench.load import drawn, load
from tests.bench.rows import Row, rows_of
from tests.rig.kafka import create_topic, set_group_config

PART = "work"
RATE = "records/s"
IDEAL = "of the ideal"
CORE = "of a core"
KEYS = 5_000
TOPIC = "bench-work"
RECORDS_MAX = 60_000  # of a run
RUN_S = 8.0  # at the ideal rate
KEYWAY, KAFKA, PARALLEL = "Keyway", "Kafka share group", "Parallel Consumer"
_numbers = itertools.count(1)


class Cell(NamedTuple):
    work_ms: int
    consumers: int
    poll: int

    def __str__(self) -> str:
        return f"work {self.work_ms} ms, {self.consumers} consumers, poll {self.poll}"

    @property
    def ideal(self) -> float:
        """Records a second; 0: none, as there is no work."""
        return self.consumers * 1_000 / self.work_ms if self.work_ms else 0.0

    @property
    def records(self) -> int:
        return min(RECORDS_MAX, int(self.ideal * RUN_S)) or RECORDS_MAX


CELLS = tuple(
    Cell(work_ms, consumers, poll)
    for work_ms in (0, 1, 10, 100)
    for consumers in (10, 50, 200)
    for poll in (1, 10)
)


def slow_work(bench: Bench, rounds: Iterable[int], cells: Iterable[Cell] = CELLS) -> list[Row]:
    """Three rows per cell, each against Kafka's share group; and the CPU of the gateway."""
    bootstrap = bench.kafka.bootstrap_servers
    create_topic(bootstrap, TOPIC, partitions=PARTITIONS)
    load(bootstrap, TOPIC, drawn(RECORDS_MAX, KEYS))
    systems: dict[str, Callable[[Bench, Cell], float]] = {
        KEYWAY: partial(_share, through=True),
        KAFKA: partial(_share, through=False),
        PARALLEL: _parallel,
    }
    rates: dict[str, list[float]] = {}
    parts: dict[str, list[float]] = {}
    cores: dict[str, list[float]] = {}
    gateway = psutil.Process(bench.gateway.pid)
    for at in rounds:
        for cell in cells:
            for name, run in systems.items():
                before, began = cpu_s(gateway), time.monotonic()
                found = run(bench, cell)
                if name == KEYWAY:
                    spent = (cpu_s(gateway) - before) / (time.monotonic() - began)
                    cores.setdefault(f"{cell}: gateway", []).append(spent)
                rows = parts if cell.ideal else rates
                figure = found / cell.ideal if cell.ideal else found
                rows.setdefault(f"{cell}: {name}", []).append(figure)
                sys.stdout.write(f"round {at + 1}  {cell}: {name}: {found:,.0f} records/s\n")
    pairs: dict[str, tuple[str, ...]] = {
        f"{cell}: {name}": (f"{cell}: {KAFKA}",) for cell in CELLS for name in (KEYWAY, PARALLEL)
    }
    return [
        *rows_of(rates, pairs, unit=RATE),
        *rows_of(parts, pairs, unit=IDEAL, digits=3),
        *rows_of(cores, {}, unit=CORE, digits=2),
    ]


def _share(bench: Bench, cell: Cell, *, through: bool) -> float:
    group = f"bench-work-{next(_numbers)}"
    if not through:
        earliest = {"share.auto.offset.reset": "earliest"}
        set_group_config(bench.kafka.bootstrap_servers, group, earliest)
    command = [
        *(
            sys.executable,
            "-m",
            "tests.bench.crowd",
            bench.bootstrap(through=through),
            group,
            TOPIC,
        ),
        *(str(cell.records), str(int(bench.run_s_max)), str(cell.consumers)),
        *(f"work.ms={cell.work_ms}", f"max.poll.records={cell.poll}"),
    ]
    return rate(finish(bench, command), 1)


def _parallel(bench: Bench, cell: Cell) -> float:
    command = bench.parallel.command(
        "ParallelBench",
        *(str(cell.poll), bench.kafka.bootstrap_servers, f"bench-work-{next(_numbers)}"),
        *(TOPIC, str(cell.records), str(int(bench.run_s_max))),
        *(f"work.ms={cell.work_ms}", f"concurrency={cell.consumers}"),
        options=BENCH_JVM,
    )
    return rate(finish(bench, command), 1)


def plot(rows: list[Row], path: Path) -> bool:
    """The parts of the ideal, a panel per time of work, as a PNG; False: there are none."""
    found = {row.name: row.median for row in rows if row.unit == IDEAL}
    if not found:
        return False
    from matplotlib.figure import Figure  # takes a second, and only a plot needs it

    times = sorted({cell.work_ms for cell in CELLS if cell.ideal})
    figure = Figure(figsize=(5 * len(times), 5), layout="constrained")
    figure.suptitle(f"Rate as a part of consumers / work; {KEYS:,} keys, {PARTITIONS} partitions")
    for panel, work_ms in zip(figure.subplots(1, len(times), sharey=True), times, strict=True):
        for colour, name in enumerate((KEYWAY, KAFKA, PARALLEL)):
            for poll, style in ((1, "o-"), (10, "x--")):
                cells = [cell for cell in CELLS if (cell.work_ms, cell.poll) == (work_ms, poll)]
                points = [(cell.consumers, found.get(f"{cell}: {name}")) for cell in cells]
                drawn_points = [point for point in points if point[1] is not None]
                xs, ys = [x for x, _ in drawn_points], [y for _, y in drawn_points]
                panel.plot(xs, ys, style, color=f"C{colour}", label=f"{name}, poll {poll}")
        panel.set(title=f"{work_ms} ms a record", xlabel="consumers", xscale="log", ylim=(0, 1.1))
        panel.grid(visible=True, alpha=0.25)
    panel.legend(fontsize="small")
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=110)
    return True
