"""Long scans come one after the other, short ones at once."""

from __future__ import annotations

import asyncio

from gateway.reading.long_scans import LongScans
from tests.rig.loopback import run, until

OTHERS = 5


class Steps:
    """So many steps, of which the last three are in other threads."""

    def __init__(self, count: int) -> None:
        self.left = count

    def step(self) -> bool:
        self.left -= 1
        return self.left > 0

    def long_next(self) -> bool:
        return 0 < self.left <= 3


def test_one_long_scan_is_in_memory_at_a_time_and_short_ones_pass_it() -> None:
    scans = LongScans()
    kept = asyncio.Event()
    inside: list[Steps] = []
    done: list[Steps] = []

    async def reads(steps: Steps) -> None:
        async with scans.scanned(steps.step, steps.long_next):
            assert not steps.left
            inside.append(steps)
            await kept.wait()
            inside.remove(steps)
        done.append(steps)

    async def main() -> None:
        first, short = Steps(5), Steps(1)
        others = [Steps(4) for _ in range(OTHERS)]
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(reads(first))
            await until(lambda: first in inside)
            for steps in [*others, short]:
                tasks.create_task(reads(steps))
            await until(lambda: short in inside)
            assert inside == [first, short]
            assert [steps.left for steps in others] == [3] * OTHERS, "their first step alone"
            kept.set()
        assert len(done) == OTHERS + 2

    run(main())


def test_steps_that_take_no_time_are_one_turn_of_the_event_loop() -> None:
    """16 of them are the answer of one partition with compressed batches."""
    steps = 10_000
    turns = 0

    async def reads() -> None:
        left = iter(range(steps))
        async with LongScans().scanned(lambda: next(left) < steps - 1, lambda: False):
            assert next(left, None) is None

    async def main() -> None:
        nonlocal turns
        reading = asyncio.ensure_future(reads())
        while not reading.done():
            turns += 1
            await asyncio.sleep(0)
        await reading

    run(main())
    assert turns < steps / 10
