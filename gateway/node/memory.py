"""The process's memory: the heap is trimmed when reading rests, the garbage collector is quiet.

Records pass through buffers of megabytes, and batches that leave the cache lie between objects that
stay. The C library keeps the holes: 40 MB with 64 full windows. Giving them back to the system
takes up to 20 ms, so it is done when nothing was read for a tick, never under load.
"""

from __future__ import annotations

import asyncio
import ctypes
import gc
from collections.abc import Awaitable, Callable

from gateway.members.limits import TICK_MS
from gateway.node.limits import GC_ALLOCATIONS, TRIM_READ_BYTES_MIN
from gateway.part import Part
from gateway.reading.build import ReadingRoom


def build(reading: ReadingRoom) -> Part[None]:
    counts = reading.reader.records.counts
    return Part(
        name="memory",
        room=None,
        background=(lambda: trim_forever(lambda: counts.fetched_bytes, trim_heap),),
        ready=quiet_collector,
    )


async def quiet_collector() -> None:
    """Objects made while starting stay for good, and a batch of records is thousands of
    allocations. Looking at all of them every 700 costs percents of the node and finds nothing.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(GC_ALLOCATIONS, 100, 20)


async def trim_forever(read_bytes: Callable[[], int], trim: Callable[[], Awaitable[None]]) -> None:
    """`read_bytes`: how much was ever read."""
    before = trimmed = read_bytes()
    while True:
        await asyncio.sleep(TICK_MS / 1000)
        now = read_bytes()
        if now == before and now - trimmed >= TRIM_READ_BYTES_MIN:
            await trim()
            trimmed = now
        before = now


async def trim_heap() -> None:
    """Holes of the C heap back to the system; nothing where the C library is not glibc."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        await asyncio.to_thread(trim, 0)
