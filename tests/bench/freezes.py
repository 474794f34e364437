"""Moments at which the machine itself stood still.

A virtual machine that has used up its share of the host's CPU gets none for a tenth of a second,
or one of its CPUs does: processes stop, and every record under way is late by as much, on each
side. Linux counts that time as steal, once it is over. A record that was produced around such a
moment says nothing of a gateway.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import NamedTuple

import psutil

SAMPLE_S = 0.01
FREEZE_S_MIN = 0.03  # of stolen time; the kernel counts in steps of 0.01
# Not judged: records that may still have been on their way, or came while everyone caught up.
BEFORE_NS = 50_000_000
AFTER_NS = 500_000_000


class Sample(NamedTuple):
    at_ns: int  # monotonic clock
    stolen_s: float  # since boot, of all CPUs


Span = tuple[int, int]  # both ends included, monotonic clock in ns


def freezes(samples: Iterable[Sample]) -> list[Span]:
    """As long as the stolen time, up to the sample that first tells of it."""
    found = []
    for one, other in pairwise(samples):
        stolen_s = other.stolen_s - one.stolen_s
        if stolen_s >= FREEZE_S_MIN - 1e-6:
            found.append((other.at_ns - int(stolen_s * 1e9), other.at_ns))
    return found


def undisturbed(stamps: Sequence[int], ages: Sequence[int], frozen: Sequence[Span]) -> list[int]:
    """The ages of records that were not produced around a freeze."""
    kept = list(ages)
    for start, end in frozen:
        kept = [
            age if not start - BEFORE_NS <= stamp <= end + AFTER_NS else -1
            for stamp, age in zip(stamps, kept, strict=True)
        ]
    return [age for age in kept if age >= 0]


class FreezeWatch:
    """`with FreezeWatch() as watch:` looks at the steal time; `watch.spans()` afterwards."""

    def __init__(self) -> None:
        self._samples: list[Sample] = []
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> FreezeWatch:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def spans(self) -> list[Span]:
        return freezes(self._samples)

    def _watch(self) -> None:
        while not self._over.wait(SAMPLE_S):
            stolen_s = getattr(psutil.cpu_times(), "steal", 0.0)  # Linux alone tells
            self._samples.append(Sample(time.monotonic_ns(), stolen_s))
