"""`python -m tests.fuzz [TARGET ...] [--inputs N] [--seconds S] [--seed N]`: mutated traffic.

Every input is known by its target and its number: after a finding, `--seed NUMBER --inputs 1`
repeats it. The inputs of all targets are counted together; each gets the same share. Exits with 1
at the first finding.
"""

from __future__ import annotations

import argparse
import sys
import time
import traceback

from tests.fuzz.corpus import read
from tests.fuzz.run import NAMES, Finding, Span, fuzz

INPUTS = 200_000


def main() -> int:
    parser = argparse.ArgumentParser(prog="tests.fuzz", description=__doc__)
    parser.add_argument("targets", nargs="*", choices=[[], *NAMES], metavar="TARGET")
    parser.add_argument("--inputs", type=int, help=f"of all targets; {INPUTS:,} without --seconds")
    parser.add_argument("--seconds", type=float, help="of CPU, of all targets")
    parser.add_argument("--seed", type=int, default=0, help="number of the first input")
    options = parser.parse_args()
    targets = options.targets or NAMES
    inputs = options.inputs
    if inputs is None and options.seconds is None:
        inputs = INPUTS
    corpus = read()
    span = Span(
        first=options.seed,
        inputs=None if inputs is None else max(1, inputs // len(targets)),
        cpu_s=None if options.seconds is None else options.seconds / len(targets),
    )
    began = time.monotonic()
    total = 0
    for target in targets:
        try:
            found = fuzz(target, corpus, span)
        except Finding as finding:
            traceback.print_exception(finding)
            return 1
        total += found.inputs
        rate = found.inputs / found.cpu_s if found.cpu_s else 0.0
        sys.stdout.write(
            f"{target}: {found.inputs:,} inputs, {rate:,.0f} per second of CPU,"
            f" slowest {found.slowest_s * 1e3:.0f} ms, heaviest {found.heaviest_bytes:,} bytes\n"
        )
        sys.stdout.flush()
    sys.stdout.write(f"{total:,} inputs, no finding, {time.monotonic() - began:.0f} s\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
