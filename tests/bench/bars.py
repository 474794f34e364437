"""The bars that the figures must reach. A figure that was not measured is not called met."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rich.console import Console

from tests.bench import dashboard, floor, latency, limits_cost, memory, metrics_cost, schemas
from tests.bench.rows import Row


@dataclass(frozen=True, slots=True)
class Bar:
    """On the median of a row or, with `against`, on its ratio to that case."""

    row: str
    unit: str
    at_least: float | None = None
    below: float | None = None
    against: str | None = None

    def __str__(self) -> str:
        wanted = f"≥ {self.at_least:,g}" if self.at_least is not None else f"< {self.below:,g}"
        what = f"times {self.against}" if self.against else self.unit
        return f"{self.row} {wanted} {what}"


RATE = "records/s"
BARS = (
    Bar("producer-perf: Keyway", RATE, at_least=0.95, against="producer-perf: direct"),
    Bar("consumer-perf: Keyway", RATE, at_least=0.95, against="consumer-perf: direct"),
    Bar("keyed librdkafka: Keyway", RATE, at_least=250_000),
    Bar("keyed java: Keyway", RATE, at_least=250_000),
    Bar("keyed librdkafka: Keyway", RATE, at_least=500_000),
    Bar(
        "keyed librdkafka: Keyway", RATE, at_least=5, against="keyed librdkafka: Kafka share group"
    ),
    Bar(f"{latency.added_at(latency.PER_SECOND)}: p99", "ms", below=5),
    Bar(f"{dashboard.OPEN}: p99", "ms", below=1.1, against=f"{dashboard.CLOSED}: p99"),
    Bar(memory.FULL, "MiB", below=300),
    *(
        bar
        for (case, partitions), times in zip(floor.CASES.items(), (3, 5), strict=True)
        for bar in (
            Bar(case, floor.UNIT, below=times, against=floor.FLOOR),
            Bar(case + floor.REDIS, floor.UNIT, below=60),
        )
    ),
    Bar(metrics_cost.CONSUMED_ALONE, metrics_cost.PART, below=0.01),
    Bar(metrics_cost.ALONE, metrics_cost.PART, below=0.01),
    Bar(metrics_cost.COUNTED, metrics_cost.PART, below=0.01),
    Bar(limits_cost.ALONE, metrics_cost.PART, below=0.01),
    Bar(schemas.FIRST, "s", below=120),
    Bar(schemas.LATER, "s", below=0.1, against=schemas.FIRST),  # the news alone, not all again
    Bar(schemas.LATER_RSS, "MiB", below=1.1, against=schemas.FIRST_RSS),
)


@dataclass(frozen=True, slots=True)
class Verdict:
    bar: Bar
    figure: float | None  # None: not measured in this run

    @property
    def word(self) -> str:
        if self.figure is None:
            return "not measured"
        bar = self.bar
        enough = bar.at_least is None or self.figure >= bar.at_least
        return "met" if enough and (bar.below is None or self.figure < bar.below) else "missed"


def judge(rows: Sequence[Row], bars: Sequence[Bar] = BARS) -> list[Verdict]:
    return [Verdict(bar, _figure(bar, rows)) for bar in bars]


def _figure(bar: Bar, rows: Sequence[Row]) -> float | None:
    for row in rows:
        if row.name == bar.row and row.unit == bar.unit and bar.against in (None, row.against):
            return row.median if bar.against is None else row.ratio
    return None


def print_verdicts(verdicts: Sequence[Verdict], console: Console) -> None:
    colours = {"met": "green", "missed": "red", "not measured": "yellow"}
    for verdict in verdicts:
        figure = "" if verdict.figure is None else f": {verdict.figure:,.6g}"
        word = verdict.word
        console.print(f"[{colours[word]}]{word:12}[/] {verdict.bar}{figure}", highlight=False)
