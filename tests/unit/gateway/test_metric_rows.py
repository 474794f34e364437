"""Metrics with many rows: the library's text, a portion at a time."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Iterator
from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import Metric
from prometheus_client.registry import Collector

from gateway.metric_rows import ROWS_AT_ONCE, Labels, Rows, families, texts

FIGURES = st.one_of(
    st.integers(-(10**20), 10**20),
    st.floats(),
    st.sampled_from([0, -1, 999_999, 1_000_000, -1_000_000, 0.5, 1e21, math.inf, -math.inf]),
)


@dataclass(slots=True, eq=False)
class Scripted(Collector):
    rows: tuple[Rows, ...]
    turns: int = 1

    def collect(self) -> Iterator[Metric]:
        return families(self)

    def gather(self) -> Iterator[tuple[Rows, ...]]:
        for _ in range(self.turns):
            yield self.rows


def text_of(collector: Scripted) -> tuple[bytes, int]:
    """The text, and the pauses in it."""
    pauses = 0

    async def pause() -> None:
        nonlocal pauses
        pauses += 1

    async def work() -> bytes:
        return b"".join([portion async for portion in texts(collector, pause)])

    return asyncio.run(work()), pauses


def by_library(collector: Collector) -> bytes:
    registry = CollectorRegistry()
    registry.register(collector)
    return generate_latest(registry)


@given(
    st.lists(st.tuples(st.text(max_size=4), st.text(alphabet='a"\\\n', max_size=4), FIGURES)),
    st.sampled_from(["gauge", "counter"]),
)
def test_the_text_is_the_librarys(rows: list[tuple[str, str, float]], kind: str) -> None:
    several = Rows("a_name", "Some words", ("group", "topic"), kind)  # type: ignore[arg-type]
    again = Rows("another", "Some words", ("group", "topic"))
    for group, topic, figure in rows:
        labels = Labels(group, topic)
        several.add(labels, figure)
        again.add(labels, figure)
    alone = Rows("alone", "Without labels")
    alone.add(Labels(), len(rows))
    collector = Scripted((several, again, alone))
    assert text_of(collector)[0] == by_library(collector)


@pytest.mark.parametrize("turns", [1, 7])
def test_other_work_goes_on_between_portions(turns: int) -> None:
    rows = Rows("many", "Some words", ("at",))
    for at in range(3 * ROWS_AT_ONCE + 1):
        rows.add(Labels(str(at)), at)
    text, pauses = text_of(Scripted((rows,), turns))
    assert text.count(b"\n") == 3 * ROWS_AT_ONCE + 3
    assert pauses == turns + 1 + 4
