"""`python -m tests.chaos` (make campaign NAME=chaos): crash rounds under load with stock clients.

Each round draws its plan from its own seed (the first is --seed, then one more each), so a round
that failed is replayed by `--rounds 1 --seed THAT`. plan.py has the contents of a plan, judge.py
the rules. Evidence of failed rounds stays in build/chaos/seed-N.
"""

from __future__ import annotations

import argparse
import random
import sys
from collections.abc import Sequence

from gateway.embedded.jars import build_dir
from tests.chaos.campaign import run

FOLDER = build_dir() / "chaos"


def arguments(given: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.chaos", description=__doc__)
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--seed", type=int, default=None, help="of the first round (default: any)")
    parser.add_argument("--seconds-max", type=float, default=1_800, help="no round starts after it")
    return parser.parse_args(given)


def main() -> int:
    options = arguments()
    first = random.randrange(1_000_000) if options.seed is None else options.seed
    seeds = range(first, first + options.rounds)
    return 0 if run(seeds, FOLDER, seconds_max=options.seconds_max) else 1


if __name__ == "__main__":
    sys.exit(main())
