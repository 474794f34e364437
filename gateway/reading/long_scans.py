"""The scan of an answer's batches. One that takes more than a step has the node to itself: a batch
of 1 MB may be 128 MiB, and its records' columns as much again. Whoever writes the topic decides.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from time import perf_counter

from gateway.reading.limits import SCAN_TURN_S_MAX


class LongScans:
    def __init__(self) -> None:
        self._one = asyncio.Lock()

    @asynccontextmanager
    async def scanned(
        self, step: Callable[[], bool], long_next: Callable[[], bool]
    ) -> AsyncIterator[None]:
        """Inside the block all is scanned, and no other long one is in memory but those in the
        cache. `step`: False, it was the last. `long_next`: the next one takes some 100 ms, in which
        other threads run. Raises what `step` raises.
        """
        if not _turn(step, long_next):
            yield
            return
        async with self._one:
            more = True
            while more:
                await asyncio.sleep(0)
                more = await asyncio.to_thread(step) if long_next() else _turn(step, long_next)
            yield


def _turn(step: Callable[[], bool], long_next: Callable[[], bool]) -> bool:
    """As many steps as fit into one turn of the event loop. A step each would scan a topic with
    compressed batches ten times more slowly while other clients keep the node busy.
    """
    ends = perf_counter() + SCAN_TURN_S_MAX
    while step():
        if long_next() or perf_counter() >= ends:
            return True
    return False
