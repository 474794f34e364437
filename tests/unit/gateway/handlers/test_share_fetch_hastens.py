"""The next read of a log may rest for a moment, but not while a fetch waits for its records."""

from __future__ import annotations

import asyncio

from dispatcher.core.model import MemberId
from tests.rig.node_parts import Node
from tests.rig.share_client import Client, offsets, story
from tests.rig.virtual_time import now_ms, settle


async def produced(node: Node, client: Client) -> int:
    """How many records are ready when one more was produced and the reader had its time."""
    node.log.produce(b"x")
    await settle()
    return node.window().ready_for(MemberId(client.member), now_ms())


def test_a_fetch_that_waits_hastens_the_read_that_rests() -> None:
    async def tell(node: Node, client: Client) -> None:
        node.log.rests = True
        assert offsets(await client.fetch()) == [0, 1, 2]
        assert await produced(node, client) == 0, "it is not read yet"
        assert offsets(await client.fetch(MaxWaitMs=60_000)) == [3]

    story(tell)


def test_a_read_that_is_asked_for_while_a_fetch_waits_does_not_rest() -> None:
    async def tell(node: Node, client: Client) -> None:
        node.log.rests = True
        await client.fetch()
        async with asyncio.TaskGroup() as tasks:
            fetching = tasks.create_task(client.fetch(MaxWaitMs=60_000))
            await settle()
            node.log.produce(b"another key")
        assert offsets(fetching.result()) == [3]
        assert await produced(node, client) == 1

    story(tell)
