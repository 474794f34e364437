"""The log of all windows: one line per group and kind."""

from __future__ import annotations

import asyncio

import structlog

from gateway.core.limits import GROUP_LINE_MS
from tests.rig.node_parts import GROUP, TOPIC, Node, topology
from tests.rig.virtual_time import run, settle

OTHER_ID = bytes(range(1, 17))


async def filled(node: Node, partitions: int) -> None:
    """A member has joined; every partition has a record."""
    for partition in range(partitions):
        node.log.produce(b"k", partition=partition)
    node.beat()
    await settle()


def test_a_topic_that_is_gone_is_a_line_and_not_one_per_partition() -> None:
    async def work() -> None:
        async with Node(topology=topology(8)) as node:
            await filled(node, 8)
            with structlog.testing.capture_logs() as logs:
                node.change_topology(topology(8, topic_id=OTHER_ID))
                await settle()
                await asyncio.sleep(GROUP_LINE_MS / 1000 + 1)
            gone = [line for line in logs if line["event"] == "topic_gone"]
            assert [(line["group"], line["topic"]) for line in gone] == [(GROUP, TOPIC)] * 2
            assert [line["count"] for line in gone] == [1, 7], "the first at once, then the rest"

    run(work())


def test_what_was_not_said_yet_is_said_when_the_node_stops() -> None:
    async def work() -> None:
        async with Node(topology=topology(8)) as node:
            await filled(node, 8)
            with structlog.testing.capture_logs() as logs:
                node.change_topology(topology(8, topic_id=OTHER_ID))
                await node.windows.stop()
            assert [line["count"] for line in logs if line["event"] == "topic_gone"] == [1, 7]

    run(work())
