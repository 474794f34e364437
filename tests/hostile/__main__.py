"""`python -m tests.hostile [NAME ...] [--seconds S]`: attacks on a running node, beside clients
that do nothing wrong.

For each attack: the longest stall that another client sees, the node's memory, the victim's p50
and p99 beside those before the attack, evictions, and the answers of `/health`. Bars are in
measured.py. build/hostile.json has the figures. Exits with 1 if a bar does not hold.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from dataclasses import asdict
from pathlib import Path

from rich.console import Console
from rich.table import Table

from tests.hostile.attacks import AT_A_LIMIT, ATTACKS, WRITE_LITTLE
from tests.hostile.measured import Measured
from tests.hostile.site import Site

SECONDS = 8.0
REPORT = Path("build/hostile.json")


def main() -> int:
    parser = argparse.ArgumentParser(prog="tests.hostile", description=__doc__)
    parser.add_argument("names", nargs="*", choices=[[], *ATTACKS], metavar="NAME")
    parser.add_argument("--seconds", type=float, default=SECONDS, help="of each attack")
    options = parser.parse_args()
    measured: list[Measured] = []
    with (
        tempfile.TemporaryDirectory(prefix="keyway-hostile-") as folder,
        Site(Path(folder)) as site,
    ):
        for name in options.names or ATTACKS:
            found = site.attacked(name, options.seconds)
            measured.append(found)
            sys.stdout.write(f"{name}: {found.did}\n")
            sys.stdout.flush()
    broken = {
        it.attack: it.broken(
            at_a_limit=it.attack in AT_A_LIMIT, writes_little=it.attack in WRITE_LITTLE
        )
        for it in measured
    }
    REPORT.parent.mkdir(exist_ok=True)
    rows = [{**asdict(it), "broken": broken[it.attack]} for it in measured]
    REPORT.write_text(json.dumps(rows, indent=1))
    _show(measured, broken)
    return 1 if any(broken.values()) else 0


def _show(measured: list[Measured], broken: dict[str, list[str]]) -> None:
    heads = ("attack", "stall ms (rest)", "RSS MiB", "p50", "p99 (rest) ms", "back s", "warnings")
    table = Table(*heads, "health", "bars")
    for it in measured:
        table.add_row(
            it.attack,
            f"{it.stall_ms:.0f} ({it.rest_stall_ms:.0f})",
            f"{it.rss_mib:.0f}",
            f"{it.p50_ms:.1f}",
            f"{it.p99_ms:.1f} ({it.rest_p99_ms:.1f})",
            f"{it.at_rest_again_s:.1f}",
            f"{it.warnings:,}",
            it.health,
            "; ".join(broken[it.attack]) or "hold",
        )
    Console(width=200).print(table)


if __name__ == "__main__":
    sys.exit(main())
