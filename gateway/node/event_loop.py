"""The delay of the event loop, measured by a task that wants to wake up on time.

All clients of a node share one loop: a long step delays every one of them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from time import perf_counter

from prometheus_client import Histogram

from gateway.node.limits import LOOP_DELAY_BUCKETS_S, LOOP_LOOK_S
from gateway.part import Part


def build() -> Part[None]:
    delays = loop_delays()
    return Part(
        name="event loop",
        room=None,
        collectors=(delays,),
        background=(lambda: look_forever(delays),),
    )


def loop_delays() -> Histogram:
    return Histogram(
        "keyway_event_loop_delay_seconds",
        f"Delay of a task that wakes up every {LOOP_LOOK_S:g} s",
        buckets=LOOP_DELAY_BUCKETS_S,
        registry=None,
    )


async def look_forever(delays: Histogram, clock: Callable[[], float] = perf_counter) -> None:
    """`clock`: in seconds, finer than the loop's own, which counts milliseconds."""
    while True:
        due = clock() + LOOP_LOOK_S
        await asyncio.sleep(LOOP_LOOK_S)
        delays.observe(max(0.0, clock() - due))
