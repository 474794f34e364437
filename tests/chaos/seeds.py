"""Campaigns of rounds, each drawn from a seed of its own."""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable


def asked_seeds(prog: str, description: str | None, rounds: int) -> range:
    """By the words of the command; `rounds` unless it says another number."""
    parser = argparse.ArgumentParser(prog=prog, description=description)
    parser.add_argument("--rounds", type=int, default=rounds)
    parser.add_argument("--seed", type=int, default=1, help="of the first round")
    options = parser.parse_args()
    return range(options.seed, options.seed + options.rounds)


def played(seeds: range, play: Callable[[int], str], keep: Callable[[int], object]) -> int:
    """The exit status. `play` returns a verdict, and raises AssertionError or TimeoutError for a
    round that failed; then `keep` keeps its evidence.
    """
    failed: list[int] = []
    for seed in seeds:
        began = time.monotonic()
        try:
            verdict = play(seed)
        except (AssertionError, TimeoutError) as failure:
            verdict = f"FAILED: {failure}"
            failed.append(seed)
            keep(seed)
        print(f"seed {seed}: {time.monotonic() - began:.1f} s: {verdict}", flush=True)  # noqa: T201
    print(f"{len(seeds)} rounds, {len(failed)} failed {failed or ''}".rstrip())  # noqa: T201
    return 1 if failed else 0
