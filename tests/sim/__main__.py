"""`python -m tests.sim SEED` replays one run with its trace; `python -m tests.sim` hunts.

SEED=, the options and the trace tell all there is: a run depends on nothing else. A hunt starts at
the seed given by `--from` and ends at the first failure, or after `--runs`.
"""

from __future__ import annotations

import argparse
import sys
import traceback

from tests.sim.world import World


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.sim")
    parser.add_argument("seed", nargs="?", type=int)
    parser.add_argument("--from", dest="first", type=int, default=0)
    parser.add_argument("--runs", type=int, default=1_000_000)
    parser.add_argument("--keep-going", action="store_true")
    arguments = parser.parse_args()
    if arguments.seed is not None:
        return _one(arguments.seed, verbose=True)
    failures = 0
    for seed in range(arguments.first, arguments.first + arguments.runs):
        failures += _one(seed, verbose=False)
        if failures and not arguments.keep_going:
            return 1
    print(f"{arguments.runs} seeds from {arguments.first}, {failures} failures")  # noqa: T201
    return int(failures > 0)


def _one(seed: int, *, verbose: bool) -> int:
    world = World(seed, verbose=verbose)
    if verbose:
        print(f"SEED={seed} {world.options}")  # noqa: T201
    try:
        world.run()
    except AssertionError as failure:
        print(f"SEED={seed} {world.options}")  # noqa: T201
        traceback.print_exception(failure, limit=-3)
        return 1
    if verbose:
        print(f"ok: {world.steps} steps, {world.checkers.delivered_count} deliveries")  # noqa: T201
    return 0


if __name__ == "__main__":
    sys.exit(main())
