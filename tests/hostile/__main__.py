"""`python -m tests.hostile [NAME ...] [--seconds S]`: attacks on a running node, beside clients
that do nothing wrong.

For each attack: the longest stall that another client sees, the node's memory, the victim's p50
and p99 beside those before the attack, evictions, and the answers of `/health`. A second probe asks
the broker itself: the time in which that answers nobody is not the node's. Bars are in measured.py.
build/hostile.json has the figures. Exits with 1 if a bar does not hold.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from dataclasses import asdict
from pathlib import Path

from rich.console import Console
from rich.table import Table

from tests.hostile.attacks import ROWS
from tests.hostile.measured import Measured
from tests.hostile.site import Site

SECONDS = 4.0
REPORT = Path("build/hostile.json")
WIDTH = 200


def main() -> int:
    parser = argparse.ArgumentParser(prog="tests.hostile", description=__doc__)
    parser.add_argument("names", nargs="*", choices=[[], *ROWS], metavar="NAME")
    parser.add_argument("--seconds", type=float, default=SECONDS, help="of each attack")
    options = parser.parse_args()
    began = time.monotonic()
    measured: list[Measured] = []
    broken: dict[str, list[str]] = {}
    with (
        tempfile.TemporaryDirectory(prefix="keyway-hostile-") as folder,
        Site(Path(folder)) as site,
    ):
        for name in options.names or ROWS:
            row_began = time.monotonic()
            try:
                found = site.attacked(ROWS[name], options.seconds)
            except (AssertionError, OSError) as error:  # TimeoutError is an OSError
                broken[name] = [f"not measured: {error}"]
                _say(f"{name}: not measured: {error}")
                continue
            measured.append(found)
            broken[name] = found.broken(ROWS[name].bars)
            took_s = time.monotonic() - row_began
            _say(f"{name}, {took_s:.0f} s in all: {found.did}")
    REPORT.parent.mkdir(exist_ok=True)
    rows = [{**asdict(attack), "broken": broken[attack.attack]} for attack in measured]
    REPORT.write_text(json.dumps(rows, indent=1))
    _show(measured, broken)
    count = sum(map(bool, broken.values()))
    _say(f"{len(broken)} attacks in {time.monotonic() - began:.0f} s, {count} with a broken bar")
    return 1 if count else 0


def _say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def _show(measured: list[Measured], broken: dict[str, list[str]]) -> None:
    heads = (
        "attack",
        "s",
        "stall (rest, broker) ms",
        "RSS (rest) MiB",
        "p50",
        "p99 (rest, direct) ms",
    )
    table = Table(*heads, "back s", "warnings", "health", "bars")
    for attack in measured:
        table.add_row(
            attack.attack,
            f"{attack.seconds:.0f}",
            f"{attack.stall.longest:.0f}"
            f" ({attack.rest_stall.longest:.0f}, {attack.broker.longest:.0f})",
            f"{attack.rss_mib:.0f} ({attack.rest_rss_mib:.0f})",
            f"{attack.victim.p50:.1f}",
            f"{attack.victim.p99:.1f} ({attack.rest_victim.p99:.1f}, {attack.direct.p99:.1f})",
            f"{attack.at_rest_again_s:.1f}",
            f"{attack.warnings:,}",
            ", ".join(f"{count} x {said}" for said, count in attack.health.items()),
            "; ".join(broken[attack.attack]) or "hold",
        )
    Console(width=WIDTH).print(table)


if __name__ == "__main__":
    sys.exit(main())
