"""The cost of a window's shell, beside that of another checkout.

`make campaign NAME=bench-window ARGS="--against DIR"`.

A member acquires one record, the step is persisted, it accepts the record, the step is persisted.
This is the path of a share fetch and its acknowledgement through gateway/windows and the life of
the window (dispatcher/core/life/life.py), with the store in memory and without sockets. CPU time
of the thread. Both checkouts run in one process each, and take turns of some 50 ms: their ratio
turn by turn holds on a machine whose speed changes. Compile both, or neither.
"""

from __future__ import annotations

import argparse
import logging
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

PAIRS = 500  # of an acquire and an acknowledgement, in one turn
KEYS = 200
TURNS = 200
WARM_UP_TURNS = 10


class Checkout:
    """A process that runs the checkout at `root`, one turn at a time."""

    def __init__(self, root: Path) -> None:
        command = [sys.executable, "-P", str(Path(__file__).resolve()), "--turns-asked-for"]
        self._process = subprocess.Popen(
            command,
            cwd=root,
            env=os.environ | {"PYTHONPATH": str(root)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.modules = self._line()

    def turn(self) -> float:
        """CPU microseconds for one pair."""
        assert self._process.stdin is not None
        self._process.stdin.write("go\n")
        self._process.stdin.flush()
        return int(self._line()) / PAIRS / 1_000

    def close(self) -> None:
        self._process.communicate(timeout=30)

    def _line(self) -> str:
        assert self._process.stdout is not None
        line = self._process.stdout.readline().strip()
        assert line, "the process of a checkout ended"
        return line


@contextmanager
def started(root: Path) -> Iterator[Checkout]:
    checkout = Checkout(root)
    try:
        yield checkout
    finally:
        checkout.close()


def compare(here: Path, other: Path, turns: int) -> None:
    with started(here) as ours, started(other) as theirs:
        print(f"here: {ours.modules}; there: {theirs.modules}")  # noqa: T201
        for _ in range(WARM_UP_TURNS):
            ours.turn()
            theirs.turn()
        costs = []
        for at in range(turns):  # each begins as often as the other
            first, second = (ours, theirs) if at % 2 == 0 else (theirs, ours)
            one, two = first.turn(), second.turn()
            costs.append((one, two) if at % 2 == 0 else (two, one))
    mine = statistics.median(cost for cost, _ in costs)
    other_cost = statistics.median(cost for _, cost in costs)
    ratios = sorted(cost / other for cost, other in costs)
    low, high = ratios[len(ratios) // 10], ratios[-(len(ratios) // 10) - 1]
    print(f"CPU of one acquire and its acknowledgement, in us: {mine:.1f}, {other_cost:.1f}")  # noqa: T201
    print(  # noqa: T201
        f"ratio, by turn: median {statistics.median(ratios):.3f}"
        f" (80 % between {low:.3f} and {high:.3f}, {turns} turns of {PAIRS} pairs)"
    )


async def take_turns() -> None:
    """Runs a turn for each line on stdin, and prints its CPU nanoseconds."""
    import structlog

    from dispatcher.core.model import Acknowledge, AckType, Acquire, MemberId, SessionId
    from gateway.compiled import describe
    from tests.rig.node_parts import Node
    from tests.rig.virtual_time import now_ms, settle

    quiet = structlog.make_filtering_bound_logger(logging.CRITICAL)
    structlog.configure(wrapper_class=quiet)
    print(describe(), flush=True)  # noqa: T201
    member, session = MemberId("m1"), SessionId("session of m1")
    accept = bytes([AckType.ACCEPT])
    async with Node() as node:
        node.beat()
        window = node.window()
        await window.loaded()
        while sys.stdin.readline():
            node.log.produce(*(b"key-%d" % (at % KEYS) for at in range(PAIRS)))
            node.store.applied.clear()
            await settle()  # the records are read
            started_ns = time.thread_time_ns()
            for _ in range(PAIRS):
                acquired = window.acquire(Acquire(member, session, 1, now_ms()))
                assert acquired is not None
                await acquired.persisted
                (offset,) = acquired.offsets
                batches = [(offset, offset, accept)]
                await window.ask(Acknowledge(member, session, batches, now_ms()))
            print(time.thread_time_ns() - started_ns, flush=True)  # noqa: T201


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, prog="make campaign NAME=bench-window")
    help_ = "another checkout of Keyway; without it, this one: the noise"
    parser.add_argument("--against", type=Path, help=help_)
    parser.add_argument("--turns", type=int, default=TURNS)
    parser.add_argument("--turns-asked-for", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.turns_asked_for:
        from tests.rig.virtual_time import run

        run(take_turns())
    else:
        here = Path(__file__).resolve().parent.parent.parent
        compare(here, (options.against or here).resolve(), options.turns)


if __name__ == "__main__":
    main()
