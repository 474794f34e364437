"""Background work of the windows' room."""

from __future__ import annotations

import asyncio

from gateway.windows.build import look_for_missing_topics
from gateway.windows.limits import MISSING_TOPIC_MS
from tests.rig.node_parts import TOPIC, Node, topology
from tests.rig.virtual_time import now_ms, run, settle


def test_upstream_is_asked_for_a_missing_topic_until_it_is_there() -> None:
    async def work() -> None:
        async with Node(topology=topology(error=3)) as node:
            asked_ms: list[int] = []
            node.beat()
            node.watched.clear()  # there was no room for it
            began_ms = now_ms()
            task = node.tasks.create_task(
                look_for_missing_topics(
                    node.windows.news, lambda: asked_ms.append(now_ms() - began_ms)
                )
            )
            await asyncio.sleep(3.5 * MISSING_TOPIC_MS / 1000)
            assert asked_ms == [MISSING_TOPIC_MS, 2 * MISSING_TOPIC_MS, 3 * MISSING_TOPIC_MS]
            assert node.watched == [TOPIC]
            node.change_topology(topology())
            await settle()
            await asyncio.sleep(3 * MISSING_TOPIC_MS / 1000)
            assert len(asked_ms) == 3, "the topic is there"
            task.cancel()

    run(work())
