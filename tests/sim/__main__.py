"""`python -m tests.sim SEED` replays one run with its trace; `python -m tests.sim` hunts.

SEED=, the options and the trace tell all there is: a run depends on nothing else. A hunt starts at
the seed given by `--from`, on all processors, and ends at the first failure, or after `--runs`. It
says its speed in events: all calls of the cores, records read, fetches, acknowledgements and ticks
alike. `--nodes`: histories of several nodes (tests/sim/nodes), whose speed is in turns of their
event loops.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import sys
import time
import traceback
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import get_args

from dispatcher.core import dispatcher
from dispatcher.core.model import Event
from tests.sim.nodes.world import World as NodesWorld
from tests.sim.world import World

SEEDS_A_CHUNK = 50
REPORT_SECONDS = 10.0
EVENTS = [kind.__name__ for kind in get_args(Event)]


@dataclass(slots=True)
class Found:
    """The results of some seeds."""

    seeds: int = 0
    events: int = 0
    cpu_seconds: float = 0.0
    kinds: Counter[str] = field(default_factory=Counter)
    failures: list[str] = field(default_factory=list)

    def add(self, other: Found) -> None:
        self.seeds += other.seeds
        self.events += other.events
        self.cpu_seconds += other.cpu_seconds
        self.kinds += other.kinds
        self.failures += other.failures

    def rate(self, seconds: float) -> str:
        a_minute = self.events / max(seconds, 1e-9) * 60
        a_core = self.events / max(self.cpu_seconds, 1e-9) * 60
        return (
            f"{self.seeds} seeds, {self.events:,} events, {a_minute:,.0f} events/min"
            f" ({a_core:,.0f} a minute of processor time)"
        )


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.sim")
    parser.add_argument("seed", nargs="?", type=int)
    parser.add_argument("--from", dest="first", type=int, default=0)
    parser.add_argument("--runs", type=int, default=1_000_000)
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--keep-going", action="store_true")
    parser.add_argument("--nodes", action="store_true", help="histories of several nodes")
    arguments = parser.parse_args()
    world = NodesWorld if arguments.nodes else World
    if arguments.seed is not None:
        return _replay(world(arguments.seed, verbose=True))
    seeds = range(arguments.first, arguments.first + arguments.runs)
    return _hunt(world, seeds, arguments.jobs, keep_going=arguments.keep_going)


def _replay(world: World | NodesWorld) -> int:
    print(f"SEED={world.seed} {world.options}")  # noqa: T201
    if failure := _failure(world):
        print(failure)  # noqa: T201
        return 1
    print(f"ok: {world.events} events, {world.delivered} deliveries")  # noqa: T201
    return 0


def _hunt(world: type[World | NodesWorld], seeds: range, jobs: int, *, keep_going: bool) -> int:
    compiled = "compiled" if dispatcher.__file__.endswith(".so") else "interpreted"
    print(f"seeds from {seeds.start}, {jobs} processes, core {compiled}", flush=True)  # noqa: T201
    total = Found()
    began = reported = time.monotonic()
    chunks = [
        range(at, min(at + SEEDS_A_CHUNK, seeds.stop))
        for at in range(seeds.start, seeds.stop, SEEDS_A_CHUNK)
    ]
    for found in _results(world, chunks, jobs):
        total.add(found)
        for failure in found.failures:
            print(failure, flush=True)  # noqa: T201
        if total.failures and not keep_going:
            break
        if time.monotonic() - reported > REPORT_SECONDS:
            reported = time.monotonic()
            print(total.rate(reported - began), flush=True)  # noqa: T201
    print(total.rate(time.monotonic() - began))  # noqa: T201
    print(", ".join(f"{kind} {count:,}" for kind, count in total.kinds.most_common()))  # noqa: T201
    print(f"{len(total.failures)} failures")  # noqa: T201
    return int(bool(total.failures))


def _results(kind: type[World | NodesWorld], chunks: list[range], jobs: int) -> Iterator[Found]:
    if jobs == 1:
        yield from map(partial(_run, kind), chunks)
        return
    with multiprocessing.get_context("fork").Pool(jobs) as pool:
        yield from pool.imap(partial(_run, kind), chunks)


def _run(kind: type[World | NodesWorld], seeds: range) -> Found:
    found = Found()
    began = time.process_time()
    for seed in seeds:
        world = kind(seed)
        if failure := _failure(world):
            found.failures.append(failure)
        found.seeds += 1
        found.events += world.events
        found.kinds.update(
            {name: world.seen.get(name, 0) for name in EVENTS}
            if isinstance(world, World)
            else world.seen
        )
    found.cpu_seconds = time.process_time() - began
    return found


def _failure(world: World | NodesWorld) -> str:
    try:
        world.run()
    except Exception as failure:  # noqa: BLE001 - also what the code under it raises
        trace = "".join(traceback.format_exception(failure, limit=-3))
        return f"SEED={world.seed} {world.options}\n{trace}"
    return ""


if __name__ == "__main__":
    sys.exit(main())
