"""A node that stood still while others took over what it owned: it wakes, and does not know yet."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from gateway.config.groups import GroupSection
from gateway.routing.owners import Alone
from tests.rig.node_parts import Node
from tests.rig.share_client import ACCEPT, Client, ack_error, joined, offsets
from tests.rig.virtual_time import run, settle

BEFORE, AFTER = 7, 8  # generations of owners


class Sleeper(Alone):
    """Takes itself for the owner."""

    generation = BEFORE
    asleep = False

    def certain(self) -> bool:
        return not self.asleep


def story(section: GroupSection, tell: Callable[[Node, Client, Sleeper], Awaitable[None]]) -> None:
    async def work() -> None:
        owners = Sleeper()
        async with Node(section, owners=owners) as node:
            node.log.produce(b"a", b"b")
            await tell(node, await joined(node), owners)

    run(work())


def test_the_store_lets_it_serve_and_settle_nothing() -> None:
    """Nor does it claim the window back, however often it is asked."""

    async def tell(node: Node, client: Client, _owners: Sleeper) -> None:
        assert offsets(await client.fetch()) == [0, 1]
        key = node.window().key
        theirs = node.store.claim_now(key, "another", AFTER)
        answer = await client.fetch(acks={0: [(0, 1, ACCEPT)]})
        assert ack_error(answer) != 0
        node.log.produce(b"c", b"d")
        for _ in range(20):
            assert offsets(await client.fetch()) == []
            await asyncio.sleep(1)
        assert node.store.fences[key] == theirs.fence, "it is still the other node's"
        held = node.store.claim_now(key, "another", AFTER).snapshot
        assert held is not None
        assert held.cursor == 0, "nothing was settled"

    story(GroupSection(auto_offset_reset="earliest"), tell)


def test_what_no_store_keeps_waits_until_the_node_is_heard() -> None:
    """An unreliable group is nowhere but in Kafka: the other node may have sent the records."""

    async def tell(node: Node, client: Client, owners: Sleeper) -> None:
        await client.fetch()
        node.log.produce(b"c")
        await settle()
        owners.asleep = True
        commits = len(node.commits.requests)
        assert offsets(await client.fetch()) == []
        await node.windows.committer.commit()
        assert len(node.commits.requests) == commits, "a position that may be an old one"
        owners.asleep = False
        assert offsets(await client.fetch()) == [2]

    story(GroupSection(reliable=False, auto_offset_reset="earliest"), tell)
