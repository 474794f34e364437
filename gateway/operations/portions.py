"""Long work on the event loop, in portions. With only a turn for others between two of them, every
client waits for twice as long while the work lasts; so others get most of the time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from time import perf_counter

from gateway.operations.limits import PORTION_PAUSE_FACTOR, PORTION_PAUSE_S_MAX


@dataclass(slots=True)
class Portions:
    """`worked_s`: of all portions so far."""

    clock: Callable[[], float] = perf_counter  # seconds
    worked_s: float = 0.0
    _began_s: float = field(init=False)

    def __post_init__(self) -> None:
        self.begin()

    def begin(self) -> None:
        """Time until now, spent on a wait for somebody's answer, is no work."""
        self._began_s = self.clock()

    async def give_way(self) -> None:
        """A portion is done."""
        took_s = self.clock() - self._began_s
        self.worked_s += took_s
        await asyncio.sleep(min(PORTION_PAUSE_S_MAX, PORTION_PAUSE_FACTOR * took_s))
        self.begin()
