"""Gives memory that reading took back to the system once reading rests.

What is read passes through buffers of megabytes, and batches that leave the cache lie between
things that stay: the C library keeps the holes, 40 MB with 64 full windows. Giving them back takes
up to 20 ms, so it is done when nothing was read for a tick, never under load.
"""

from __future__ import annotations

import asyncio
import ctypes
from collections.abc import Awaitable, Callable

from gateway.members.limits import TICK_MS
from gateway.node.limits import TRIM_READ_BYTES_MIN


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
