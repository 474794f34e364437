"""Long work gives the event loop to others for most of the time."""

from __future__ import annotations

import asyncio

from gateway.operations.limits import PORTION_PAUSE_FACTOR, PORTION_PAUSE_S_MAX
from gateway.operations.portions import Portions
from tests.rig.virtual_time import run


def test_others_have_the_loop_for_a_multiple_of_each_portion() -> None:
    async def work() -> None:
        loop = asyncio.get_running_loop()
        worked_s = 0.0
        portions = Portions(lambda: loop.time() + worked_s)
        for took_s, pause_s in (
            (0.0, 0.0),
            (0.0002, 0.0),  # too short for a timer: owed
            (0.0004, PORTION_PAUSE_FACTOR * 0.0006),
            (0.001, PORTION_PAUSE_FACTOR * 0.001),
            (10.0, PORTION_PAUSE_S_MAX),
        ):
            worked_s += took_s
            before = loop.time()
            await portions.give_way()
            assert round(loop.time() - before, 6) == pause_s
        worked_s += 5.0  # of somebody else, who was waited for
        portions.begin()
        await portions.give_way()
        assert round(portions.worked_s, 6) == 10.0016

    run(work())
