"""Windows that are closed while they load."""

from __future__ import annotations

import asyncio

from tests.rig.node_parts import GROUP, Node
from tests.rig.virtual_time import run, settle


class SlowNode(Node):
    """Kafka answers late for the settings of a group, the first question of a window."""

    def __init__(self) -> None:
        super().__init__()
        self.answers = asyncio.Event()

    async def group_config(self, group: str) -> dict[str, str]:
        await self.answers.wait()
        return await super().group_config(group)


def test_a_window_that_waits_for_kafka_does_not_hold_up_the_stop() -> None:
    async def work() -> None:
        async with SlowNode() as node:
            node.beat()
            await settle()
            assert node.window().dispatcher is None
            await node.windows.stop()

    run(work())


def test_a_window_that_is_dropped_while_it_loads_does_not_come_into_the_store() -> None:
    async def work() -> None:
        node = SlowNode()
        async with node:
            (topic,) = node.topology.topics.values()
            node.windows.table.open(GROUP, topic, 0)
            key = node.window().key
            await settle()
            node.windows.table.drop(key)
            await node.store.delete(key)
            node.answers.set()
            await settle()
            assert node.stored == {}

    run(work())
