"""Cost per record over keys and members: the core alone as curves, stock clients as a few points.

The curves are the pure dispatcher with simulated members (core_cost.py): the cost of ordering by
key, and nothing else. The points are the CPU time of the whole gateway process per record, with
librdkafka share consumers in one group, from their start to the last record: sockets, wire,
reading, Redis and joins included. Both go into one PNG, on one axis.
"""

from __future__ import annotations

import itertools
import math
import os
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import psutil

from tests.bench.cases import PARTITIONS, Bench, finish, rate
from tests.bench.core_cost import KEYS, MEMBERS, RECORDS, Drive
from tests.bench.load import drawn, load
from tests.bench.rows import Row, rows_of
from tests.rig.kafka import create_topic

if TYPE_CHECKING:
    from matplotlib.axes import Axes

UNIT = "CPU µs per record"
CLIENT_RECORDS = 200_000
# Ten keys are ten records in flight: a round trip for each ten.
FEW_KEYS_RECORDS = 20_000
FEW_KEYS = 100
_numbers = itertools.count(1)


@dataclass(frozen=True, slots=True, order=True)
class Point:
    keys: int
    members: int

    def __str__(self) -> str:
        return f"{self.keys:,} keys, {self.members:,} member{'s' if self.members > 1 else ''}"


CORE_POINTS = tuple(Point(keys, members) for members in MEMBERS for keys in KEYS)
CLIENT_POINTS = (
    *(Point(keys, 1) for keys in (10, 10_000, 1_000_000)),
    Point(10_000, 10),
    *(Point(keys, 100) for keys in (10_000, 1_000_000)),
)
Costs = dict[Point, list[float]]


def core_cost(rounds: Iterable[int]) -> list[Row]:
    """A row per point of the core."""
    costs: Costs = {point: [] for point in CORE_POINTS}
    for at in rounds:
        for point in CORE_POINTS:
            drive = Drive(point.keys, point.members, RECORDS, seed=at)
            costs[point].append(drive.run() / 1_000)
        sys.stdout.write(f"round {at + 1}  cost of the core: {len(CORE_POINTS)} points\n")
    return _rows("cost of the core", costs)


def client_cost(bench: Bench, rounds: Iterable[int]) -> list[Row]:
    """A row per point of stock clients. Raises AssertionError if one did not get its records."""
    topics = {keys: f"bench-cost-{keys}" for keys in sorted({p.keys for p in CLIENT_POINTS})}
    bootstrap = bench.kafka.bootstrap_servers
    for keys, topic in topics.items():
        create_topic(bootstrap, topic, partitions=PARTITIONS)
        load(bootstrap, topic, drawn(records_for(keys), keys))
    costs: Costs = {point: [] for point in CLIENT_POINTS}
    gateway = psutil.Process(bench.gateway.pid)
    for at in rounds:
        for point in CLIENT_POINTS:
            before = cpu_s(gateway)
            speed = _consume(bench, topics[point.keys], point)
            spent = cpu_s(gateway) - before
            costs[point].append(spent * 1e6 / records_for(point.keys))
            figures = f"{costs[point][-1]:.1f} µs, {speed:,.0f} records/s"
            sys.stdout.write(f"round {at + 1}  cost with clients: {point}: {figures}\n")
    return _rows("cost with clients", costs)


def records_for(keys: int) -> int:
    return FEW_KEYS_RECORDS if keys <= FEW_KEYS else CLIENT_RECORDS


def cpu_s(process: psutil.Process) -> float:
    """User and system time so far, of all its threads: a busy machine does not change it."""
    times = process.cpu_times()
    return times.user + times.system


def children_cpu_s() -> float:
    """User and system time of all child processes that have ended."""
    times = os.times()
    return times.children_user + times.children_system


def _consume(bench: Bench, topic: str, point: Point) -> float:
    """Records per second."""
    command = [
        *(sys.executable, "-m", "tests.bench.crowd", bench.gateway.bootstrap),
        *(f"bench-cost-{next(_numbers)}", topic, str(records_for(point.keys))),
        *(str(int(bench.run_s_max)), str(point.members)),
    ]
    return rate(finish(bench, command), records_for(point.keys))


def _rows(name: str, costs: Costs) -> list[Row]:
    samples = {f"{name}: {point}": values for point, values in costs.items()}
    return rows_of(samples, {}, unit=UNIT, digits=2)


def medians(rows: Iterable[Row], name: str, points: Iterable[Point]) -> dict[Point, float]:
    """By point, the rows of the case `name`."""
    found = {row.name: row.median for row in rows}
    named = {point: f"{name}: {point}" for point in points}
    return {point: found[key] for point, key in named.items() if key in found}


def plot(rows: list[Row], path: Path) -> bool:
    """Both panels as a PNG; False if there is nothing to draw."""
    core = medians(rows, "cost of the core", CORE_POINTS)
    clients = medians(rows, "cost with clients", CLIENT_POINTS)
    if not core and not clients:
        return False
    from matplotlib.figure import Figure  # takes a second, and only a plot needs it

    figure = Figure(figsize=(14, 6.5), layout="constrained")
    figure.suptitle(
        "CPU per record. Lines: the dispatcher's core alone, with simulated members."
        " Stars: the whole gateway, with librdkafka share consumers."
    )
    over_keys, over_members = figure.subplots(1, 2, sharey=True)
    for costs, style, who in ((core, ".-", "core"), (clients, "*", "gateway")):
        by_members = {point: (point.members, point.keys) for point in costs}
        by_keys = {point: (point.keys, point.members) for point in costs}
        _draw(over_keys, costs, style, by_members, who + ", members: {:,}")
        _draw(over_members, costs, style, by_keys, who + ", keys: {:,}")
    over_keys.set(xlabel="keys", ylabel=UNIT)
    over_members.set(xlabel="members")
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=110)
    return True


def _draw(
    axes: Axes,
    costs: dict[Point, float],
    style: str,
    numbers: dict[Point, tuple[int, int]],
    label: str,
) -> None:
    """One series per first number of a point, over the second; a number keeps its colour."""
    series: dict[int, list[tuple[int, float]]] = {}
    for point, cost in costs.items():
        name, at = numbers[point]
        series.setdefault(name, []).append((at, cost))
    for name, found in sorted(series.items()):
        places = sorted(found)
        xs, ys = [at for at, _ in places], [cost for _, cost in places]
        colour = f"C{round(math.log10(name))}"
        size = 13 if style == "*" else 5
        axes.plot(xs, ys, style, color=colour, markersize=size, label=label.format(name))
    axes.set(xscale="log", yscale="log")
    axes.grid(visible=True, which="both", alpha=0.25)
    if costs:
        axes.legend(fontsize="small")
