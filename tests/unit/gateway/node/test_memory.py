from __future__ import annotations

import asyncio
import ctypes
from collections.abc import Iterator

import psutil
import pytest

from gateway.members.limits import TICK_MS
from gateway.node.limits import TRIM_READ_BYTES_MIN
from gateway.node.memory import trim_forever, trim_heap
from tests.rig.virtual_time import run

BIG = TRIM_READ_BYTES_MIN


@pytest.mark.parametrize(
    ("read", "trims"),
    [
        ([0, 0, 0, 0], 0),  # nothing was read
        ([0, BIG, BIG, BIG], 1),  # once, when it rests, and not again
        ([0, BIG - 1, BIG - 1], 0),  # too little to be worth it
        ([0, BIG - 1, BIG - 1, BIG, BIG], 1),  # little by little
        ([0, BIG, 2 * BIG, 3 * BIG], 0),  # under load
        ([0, BIG, BIG, 2 * BIG, 2 * BIG, 2 * BIG], 2),  # each time it rests
    ],
)
def test_the_heap_is_trimmed_when_reading_rests(read: list[int], trims: int) -> None:
    figures: Iterator[int] = iter([*read, read[-1]])
    done: list[None] = []

    async def trim() -> None:
        done.append(None)

    async def scene() -> None:
        task = asyncio.ensure_future(trim_forever(lambda: next(figures), trim))
        await asyncio.sleep((len(read) - 0.5) * TICK_MS / 1000)
        task.cancel()

    run(scene())
    assert len(done) == trims


def test_holes_of_the_heap_go_back() -> None:
    if getattr(ctypes.CDLL(None), "malloc_trim", None) is None:
        pytest.skip("not glibc")
    process = psutil.Process()
    size = 100_000  # below the size that the C library maps on its own
    blocks = [bytes(size) for _ in range(600)]
    held = [bytes(b"%d" % at) * 100 for at in range(600)]  # a later block keeps the heap's end
    full = process.memory_info().rss
    del blocks
    asyncio.run(trim_heap())
    assert process.memory_info().rss < full - 300 * size
    assert len(held) == 600
