"""Figures of a benchmark run: medians, ratios, percentiles, the table and build/bench.json."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median

from rich.console import Console
from rich.table import Table


@dataclass(frozen=True, slots=True)
class Row:
    """One measured case, and its median against that of another case of the same run."""

    name: str
    unit: str
    median: float
    min: float
    max: float
    ratio: float | None
    against: str | None


def rows_of(
    samples: dict[str, list[float]],
    pairs: dict[str, tuple[str, ...]],
    *,
    unit: str,
    digits: int = 0,
) -> list[Row]:
    """A row per case; a case that is compared with several others has a row for each."""
    found = []
    for name, values in samples.items():
        if not values:
            continue
        middle = median(values)
        others: list[str | None] = [other for other in pairs.get(name, ()) if samples.get(other)]
        for other in others or [None]:
            ratio = None if other is None else round(middle / median(samples[other]), 3)
            low, high = round(min(values), digits), round(max(values), digits)
            found.append(Row(name, unit, round(middle, digits), low, high, ratio, other))
    return found


def percentile(in_order: Sequence[float], share: float) -> float:
    """The smallest of the ascending values that at least `share` percent of them do not exceed
    (nearest rank); share > 0.
    """
    assert 0 < share <= 100
    assert in_order, "of nothing"
    # Rounded first: 99.9 / 100 * 1000 is a little above 999.
    return in_order[math.ceil(round(len(in_order) * share / 100, 6)) - 1]


def added(through: Sequence[float], direct: Sequence[float]) -> list[float]:
    """Each round's figure minus that of the same round without the gateway."""
    return [ours - theirs for ours, theirs in zip(through, direct, strict=True)]


def print_rows(rows: list[Row], title: str) -> None:
    table = Table(title=title)
    for heading in ("case", "median", "min", "max", "unit", "ratio", "against"):
        right = heading in ("median", "min", "max", "ratio")
        table.add_column(heading, justify="right" if right else "left")
    for row in rows:
        ratio = "" if row.ratio is None else f"{row.ratio:.2f}"
        figures = [f"{value:,.7g}" for value in (row.median, row.min, row.max)]
        table.add_row(row.name, *figures, row.unit, ratio, row.against or "")
    Console(width=160).print(table)


def write(rows: list[Row], path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps([asdict(row) for row in rows], indent=2) + "\n")
