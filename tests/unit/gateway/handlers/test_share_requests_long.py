"""Share requests of many partitions: others have their turn in between, a close is whole."""

from __future__ import annotations

import asyncio

from gateway.core.share.sessions import CLOSE_EPOCH
from gateway.handlers.limits import TURN_PARTITIONS
from tests.rig.node_parts import Node
from tests.rig.share_client import ACCEPT, Client, offsets, story
from tests.rig.virtual_time import settle

PORTIONS = 5
MANY = list(range(PORTIONS * TURN_PARTITIONS))


async def turns(of: asyncio.Task[object]) -> int:
    """Turns of the event loop until it is done."""
    count = 0
    while not of.done():
        count += 1
        await asyncio.sleep(0)
    return count


def test_others_have_their_turn_while_many_partitions_are_looked_up() -> None:
    async def tell(_node: Node, client: Client) -> None:
        async with asyncio.TaskGroup() as tasks:
            few = await turns(tasks.create_task(client.fetch(partitions=[0, 1])))
            many = await turns(tasks.create_task(client.fetch(partitions=MANY)))
        assert many >= few + PORTIONS - 1

    story(tell)


def test_a_client_that_hangs_up_while_it_closes_a_long_session_gives_everything_back() -> None:
    async def tell(_node: Node, client: Client) -> None:
        assert offsets(await client.fetch()) == [0, 1, 2]
        acks = {at: [(0, 0, ACCEPT)] for at in MANY}
        closing = asyncio.get_running_loop().create_task(client.fetch(acks=acks, epoch=CLOSE_EPOCH))
        for _ in range(3):
            await asyncio.sleep(0)
        assert not closing.done()
        closing.cancel()
        await settle()
        client.epoch = 0
        assert offsets(await client.fetch()) != [], "nobody holds them any more"

    story(tell)
