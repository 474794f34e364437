"""Loads of windows, a few at a time."""

from __future__ import annotations

import asyncio

import pytest

from gateway.windows.turns import Turns
from tests.rig.virtual_time import run, settle


class Loads:
    """Each load takes its turn and ends when it is told to."""

    def __init__(self, at_once: int, slow_s: float = 60.0) -> None:
        self.turns = Turns(at_once, slow_s)
        self.begun: list[tuple[int, int]] = []  # asker, number
        self.ends: dict[tuple[int, int], asyncio.Event] = {}
        self.tasks: dict[tuple[int, int], asyncio.Task[None]] = {}

    def ask(self, asker: int, count: int) -> None:
        for number in range(count):
            load = asker, number
            self.ends[load] = asyncio.Event()
            self.tasks[load] = asyncio.get_running_loop().create_task(self._load(load))

    async def _load(self, load: tuple[int, int]) -> None:
        async with self.turns.turn(load[0]):
            self.begun.append(load)
            await self.ends[load].wait()

    async def end_all(self) -> None:
        for end in self.ends.values():
            end.set()
        await asyncio.gather(*self.tasks.values(), return_exceptions=True)
        assert (self.turns._running, self.turns._waiting) == (0, {})


def test_a_few_at_a_time_in_turns_of_the_askers() -> None:
    async def work() -> None:
        loads = Loads(2)
        loads.ask(1, 6)
        await settle()
        loads.ask(2, 1)
        loads.ask(3, 2)
        await settle()
        assert loads.begun == [(1, 0), (1, 1)]
        while len(loads.begun) < 9:
            loads.ends[loads.begun[-2]].set()
            loads.ends[loads.begun[-1]].set()
            await settle()
        assert loads.begun[2:] == [(1, 2), (2, 0), (3, 0), (1, 3), (3, 1), (1, 4), (1, 5)]
        await loads.end_all()

    run(work())


def test_a_slow_load_holds_up_nobody() -> None:
    async def work() -> None:
        loads = Loads(1, slow_s=1.0)
        loads.ask(1, 3)
        await asyncio.sleep(0.9)
        assert loads.begun == [(1, 0)]
        await asyncio.sleep(0.2)
        assert loads.begun == [(1, 0), (1, 1)]
        loads.ends[1, 0].set()
        await settle()
        assert loads.begun == [(1, 0), (1, 1)], "its turn was over before"
        await loads.end_all()

    run(work())


@pytest.mark.parametrize("granted", [True, False])
def test_a_load_that_is_given_up_passes_its_turn_on(*, granted: bool) -> None:
    async def work() -> None:
        loads = Loads(1)
        loads.ask(1, 3)
        await settle()
        if granted:
            loads.ends[1, 0].set()
            await asyncio.sleep(0)
        loads.tasks[1, 1].cancel()
        await settle()
        loads.ends[1, 0].set()
        await settle()
        assert loads.begun[-1] == (1, 2)
        await loads.end_all()

    run(work())
