"""`python -m tests.sim SEED` replays one run with its trace; `python -m tests.sim` hunts.

SEED=, the options and the trace tell all there is: a run depends on nothing else. A hunt starts at
the seed given by `--from`, on all processors, and ends at the first failure, or after `--runs`. It
says its speed in events: all calls of the cores, records read, fetches, acknowledgements and ticks
alike.
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
from typing import get_args

from dispatcher.core import dispatcher
from dispatcher.core.model import Event
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
    arguments = parser.parse_args()
    if arguments.seed is not None:
        return _replay(arguments.seed)
    return _hunt(arguments.first, arguments.runs, arguments.jobs, keep_going=arguments.keep_going)


def _replay(seed: int) -> int:
    world = World(seed, verbose=True)
    print(f"SEED={seed} {world.options}")  # noqa: T201
    if failure := _failure(world):
        print(failure)  # noqa: T201
        return 1
    delivered = sum(window.checkers.delivered_count for window in world.gateway.windows)
    print(f"ok: {world.steps} steps, {world.events} events, {delivered} deliveries")  # noqa: T201
    return 0


def _hunt(first: int, runs: int, jobs: int, *, keep_going: bool) -> int:
    compiled = "compiled" if dispatcher.__file__.endswith(".so") else "interpreted"
    print(f"seeds from {first}, {jobs} processes, core {compiled}", flush=True)  # noqa: T201
    total = Found()
    began = reported = time.monotonic()
    chunks = [
        range(at, min(at + SEEDS_A_CHUNK, first + runs))
        for at in range(first, first + runs, SEEDS_A_CHUNK)
    ]
    for found in _results(chunks, jobs):
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


def _results(chunks: list[range], jobs: int) -> Iterator[Found]:
    if jobs == 1:
        yield from map(_run, chunks)
        return
    with multiprocessing.get_context("fork").Pool(jobs) as pool:
        yield from pool.imap(_run, chunks)


def _run(seeds: range) -> Found:
    found = Found()
    began = time.process_time()
    for seed in seeds:
        world = World(seed)
        if failure := _failure(world):
            found.failures.append(failure)
        found.seeds += 1
        found.events += world.events
        found.kinds.update({kind: world.seen.get(kind, 0) for kind in EVENTS})
    found.cpu_seconds = time.process_time() - began
    return found


def _failure(world: World) -> str:
    try:
        world.run()
    except AssertionError as failure:
        trace = "".join(traceback.format_exception(failure, limit=-3))
        return f"SEED={world.seed} {world.options}\n{trace}"
    return ""


if __name__ == "__main__":
    sys.exit(main())
