"""Long work on the event loop, in portions. With only a turn for others between two of them, every
client waits for twice as long while the work lasts; so others get most of the time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from time import perf_counter

from gateway.operations.limits import (
    PORTION_PAUSE_FACTOR,
    PORTION_PAUSE_S_MAX,
    PORTION_PAUSE_S_MIN,
)


@dataclass(slots=True)
class Portions:
    """`factor`: pause by work; 0 for work that somebody waits for, then others have a turn behind
    each portion. `worked_s`: of all portions so far.
    """

    clock: Callable[[], float] = perf_counter  # seconds
    factor: float = PORTION_PAUSE_FACTOR
    worked_s: float = 0.0
    _owed_s: float = 0.0  # to others, for portions that were too short for a pause
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
        self._owed_s += self.factor * took_s
        pause_s = 0.0
        if self._owed_s >= PORTION_PAUSE_S_MIN:
            pause_s, self._owed_s = min(PORTION_PAUSE_S_MAX, self._owed_s), 0.0
        await asyncio.sleep(pause_s)
        self.begin()
