"""One target, many inputs: each known by target and number, and bounded in time and memory."""

from __future__ import annotations

import resource
import sys
import time
import tracemalloc
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count
from random import Random

import structlog

from tests.fuzz.corpus import Exchange
from tests.fuzz.rest import application, ask
from tests.fuzz.targets import TARGETS
from tests.rig.admin_parts import Admin, worked
from tests.rig.virtual_time import run

REST = "rest"
NAMES = (*TARGETS, REST)

INPUT_CPU_S_MAX = 2.0  # an input takes about a millisecond; a garbage collection may fall into it
INPUT_BYTES_MAX = 24 << 20  # at its peak; Python's objects of a frame of some 10 KB, and scans
WEIGHED_EVERY = 200  # inputs: weighing makes one many times slower
GROWTH_MIB_MAX = 200.0  # of the process, from its first inputs to its last


class Finding(AssertionError):
    """Names the input: `python -m tests.fuzz TARGET --seed NUMBER --inputs 1` repeats it."""


@dataclass(frozen=True, slots=True)
class Outcome:
    target: str
    inputs: int
    cpu_s: float
    slowest_s: float
    heaviest_bytes: int


@dataclass(frozen=True, slots=True)
class Span:
    """Inputs `first`, `first` + 1, ... until there are `inputs` of them, or `cpu_s` are used up."""

    first: int
    inputs: int | None
    cpu_s: float | None

    def numbers(self) -> Iterator[int]:
        began = time.process_time()
        for number in (
            count(self.first)
            if self.inputs is None
            else range(self.first, self.first + self.inputs)
        ):
            yield number
            if self.cpu_s is not None and time.process_time() - began >= self.cpu_s:
                return


class _Bounds:
    """Watches each input of a target."""

    def __init__(self, target: str) -> None:
        self.target = target
        self.inputs = 0
        self.slowest_s = 0.0
        self.heaviest_bytes = 0
        self._began = time.process_time()
        self._first_mib = 0.0

    @contextmanager
    def one(self, number: int) -> Iterator[Random]:
        weighed = number % WEIGHED_EVERY == 0
        if weighed:
            tracemalloc.start()
        began = time.process_time()
        try:
            yield Random(f"{self.target} {number}")
        except Exception as error:
            raise Finding(f"{self.target} --seed {number}: {error!r}") from error
        finally:
            took = time.process_time() - began
            if weighed:
                peak = tracemalloc.get_traced_memory()[1]
                tracemalloc.stop()
                self.heaviest_bytes = max(self.heaviest_bytes, peak)
            else:
                self.slowest_s = max(self.slowest_s, took)
        self.inputs += 1
        if self.heaviest_bytes > INPUT_BYTES_MAX:
            raise Finding(f"{self.target} --seed {number}: {self.heaviest_bytes:,} bytes")
        if self.slowest_s > INPUT_CPU_S_MAX:
            raise Finding(f"{self.target} --seed {number}: {self.slowest_s:.2f} s")
        if self.inputs == WEIGHED_EVERY:
            self._first_mib = peak_mib()

    def outcome(self) -> Outcome:
        grown = peak_mib() - self._first_mib
        if self.inputs > WEIGHED_EVERY and grown > GROWTH_MIB_MAX:
            raise Finding(f"{self.target}: {self.inputs:,} inputs took {grown:.0f} MiB")
        cpu_s = time.process_time() - self._began
        return Outcome(self.target, self.inputs, cpu_s, self.slowest_s, self.heaviest_bytes)


def fuzz(target: str, corpus: Sequence[Exchange], span: Span) -> Outcome:
    """Raises Finding."""
    bounds = _Bounds(target)
    if target == REST:
        _rest(span, bounds)
    else:
        for number in span.numbers():
            with bounds.one(number) as random:
                TARGETS[target](corpus, random)
    return bounds.outcome()


def _rest(span: Span, bounds: _Bounds) -> None:
    async def work() -> None:
        admin = Admin()
        async with admin.node:
            await worked(admin)
            with application(admin) as app, structlog.testing.capture_logs() as lines:
                for number in span.numbers():
                    with bounds.one(number) as random:
                        await ask(app, random)
                    lines.clear()

    run(work())


def peak_mib() -> float:
    """The most memory that this process has had; Linux counts in KiB, macOS in bytes."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / (1 << 20 if sys.platform == "darwin" else 1 << 10)
