"""A step that takes long is seen as a delay of the event loop, and rest is not."""

from __future__ import annotations

import asyncio

from gateway.node.event_loop import build, look_forever, loop_delays
from tests.rig.virtual_time import VirtualLoop, run


def test_a_long_step_is_a_delay() -> None:
    async def work() -> None:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualLoop)
        delays = loop_delays()
        task = asyncio.ensure_future(look_forever(delays, loop.time))
        await asyncio.sleep(1.05)
        loop.busy(0.35)  # the next look is due in 50 ms
        await asyncio.sleep(0.5)
        task.cancel()
        (family,) = delays.collect()
        count = {
            sample.labels["le"]: sample.value for sample in family.samples if "le" in sample.labels
        }
        on_time = count["0.001"]
        assert on_time >= 10
        assert (count["0.25"], count["0.5"]) == (on_time, on_time + 1)

    run(work())


def test_it_is_a_part_with_a_metric_and_a_task() -> None:
    part = build()
    assert len(part.collectors) == len(part.background) == 1
