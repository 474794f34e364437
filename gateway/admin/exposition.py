"""The text of `GET /metrics`, made a portion at a time: other work goes on between two of them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import dataclass

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import Metric
from prometheus_client.registry import Collector
from prometheus_client.samples import Sample

from gateway.admin.limits import SAMPLES_AT_ONCE
from gateway.metric_rows import RowCollector, texts

# Samples that the library writes behind all others of their family, under a name of their own.
_APART = ("_created", "_gsum", "_gcount")


@dataclass(slots=True, eq=False)
class _Only(Collector):
    family: Metric

    def collect(self) -> Iterator[Metric]:
        yield self.family


async def exposition(
    registry: CollectorRegistry, rows: Sequence[RowCollector]
) -> AsyncIterator[bytes]:
    """The text of all metrics, in portions."""
    for family in registry.collect():
        for portion in _portions(family):
            yield portion
            await _pause()
    for collector in rows:
        async for portion in texts(collector, _pause):
            yield portion


async def _pause() -> None:
    await asyncio.sleep(0)


def _portions(family: Metric) -> Iterator[bytes]:
    """The text of one family as the library writes it: each portion begins with the same lines
    about its family.
    """
    said: set[bytes] = set()
    for samples in _slices(family):
        part = Metric(family.name, family.documentation, family.type)
        part.samples = samples
        lines = generate_latest(_Only(part)).splitlines(keepends=True)
        opening = [line for line in lines[:4] if line.startswith(b"# ")]
        yield b"".join([line for line in opening if line not in said] + lines[len(opening) :])
        said.update(opening)


def _slices(family: Metric) -> Iterator[list[Sample]]:
    apart = tuple(family.name + ending for ending in _APART)
    several = [
        [sample for sample in family.samples if sample.name not in apart],
        *([sample for sample in family.samples if sample.name == name] for name in sorted(apart)),
    ]
    yield several[0][:SAMPLES_AT_ONCE]
    for samples in (several[0][SAMPLES_AT_ONCE:], *several[1:]):
        for at in range(0, len(samples), SAMPLES_AT_ONCE):
            yield samples[at : at + SAMPLES_AT_ONCE]
