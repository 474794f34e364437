"""A figure of one part, with its bound, and the size at which it is measured."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Size:
    """`partitions`: of each topic."""

    topics: int
    partitions: int
    groups: int


@dataclass(frozen=True, slots=True)
class Figure:
    """`bound` None: it is stated only."""

    name: str
    value: float
    unit: str
    bound: float | None = None

    @property
    def is_above(self) -> bool:
        return self.bound is not None and self.value > self.bound

    def __str__(self) -> str:
        text = f"{self.name}: {self.value:,.2f} {self.unit}"
        if self.bound is None:
            return text
        return f"{text} ({'ABOVE' if self.is_above else 'within'} {self.bound:,.0f})"


def resident_mib() -> float:
    """Of this process, now."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20
