"""A member that asks one virtual broker after the other does not wait at one while another has its
records; one that asks all at once waits at each, as ever.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from gateway.core.cluster.topology import PartitionInfo
from gateway.core.share.sessions import IN_TURNS_MIN
from tests.rig.node_parts import TOPIC, Node, topology
from tests.rig.share_client import ACCEPT, Client, ScriptedConnection, joined, offsets
from tests.rig.virtual_time import now_ms, run, settle

WAIT_MS = 500
HOT = [b"hot"] * 6  # one at a time


class Member:
    """It has a partition with each of two virtual brokers."""

    def __init__(self, node: Node, first: Client) -> None:
        self.node = node
        self.at = [first, Client(node, first.services, ScriptedConnection(99, 2))]
        self.answers: list[list[int]] = []

    async def ask(self, broker: int, *, records_max: int = 100) -> int:
        """Fetches there. Returns how long it took, in ms."""
        before, client = now_ms(), self.at[broker]
        named = [broker] if client.epoch == 0 else []
        answer = await client.fetch(partitions=named, MaxWaitMs=WAIT_MS, MaxRecords=records_max)
        self.answers.append(offsets(answer, broker))
        return now_ms() - before

    async def acknowledge(self, broker: int, offset: int) -> None:
        await self.at[broker].acknowledge({broker: [(offset, offset, ACCEPT)]})

    async def goes_round(self) -> None:
        for _ in range(IN_TURNS_MIN):
            assert [await self.ask(0), await self.ask(1)] == [WAIT_MS, WAIT_MS]


def story(tell: Callable[[Member], Awaitable[None]]) -> None:
    async def work() -> None:
        two = topology(2)
        two.topics[TOPIC].partitions[1] = PartitionInfo(2, 0)
        async with Node(topology=two) as node:
            await tell(Member(node, await joined(node)))

    run(work())


def test_a_hot_key_does_not_wait_for_a_broker_that_has_nothing() -> None:
    """As librdkafka asks: the acknowledgement goes to one broker, the next fetch to the other."""

    async def tell(member: Member) -> None:
        await member.goes_round()
        member.node.log.produce(*HOT, partition=1)
        await settle()
        assert await member.ask(0) == 0
        took = await member.ask(1)
        for offset in range(5):
            assert member.answers[-1] == [offset]
            idle = member.node.tasks.create_task(member.ask(0))
            await settle()
            assert not idle.done()
            await member.acknowledge(1, offset)
            took += await idle
            took += await member.ask(1)
        assert member.answers[-1] == [5]
        assert took == 0

    story(tell)


def test_it_is_sent_on_when_its_acknowledgement_is_answered() -> None:
    """Before that, librdkafka fetches nothing there, and would go round for nothing."""

    async def tell(member: Member) -> None:
        await member.goes_round()
        member.node.log.produce(b"a", b"b", partition=1)
        await settle()
        await member.ask(1, records_max=1)
        gate = member.node.store.gate = asyncio.Event()
        acknowledged = member.node.tasks.create_task(member.acknowledge(1, 0))
        await settle()
        idle = member.node.tasks.create_task(member.ask(0))
        await asyncio.sleep(0.1)
        assert not idle.done()
        gate.set()
        await acknowledged
        assert await idle == 100
        assert (await member.ask(1), member.answers[-1]) == (0, [1])

    story(tell)


def test_it_waits_while_nobody_has_records_for_it() -> None:
    async def tell(member: Member) -> None:
        await member.goes_round()
        member.node.log.produce(*HOT, partition=1)
        await settle()
        await member.ask(1)
        assert await member.ask(0) == WAIT_MS, "its key waits for the acknowledgement"

    story(tell)


def test_who_asks_all_at_once_waits_at_each() -> None:
    """As Java and franz-go ask: the fetch that waits lasts while they work on other records."""

    async def tell(member: Member) -> None:
        for round_ in range(2 * IN_TURNS_MIN):
            idle = member.node.tasks.create_task(member.ask(0))
            await settle()
            member.node.log.produce(b"%d" % round_, partition=1)
            await settle()
            await member.ask(1)
            assert member.answers[-1], "there was something"
            member.node.log.produce(b"more %d" % round_, partition=1)
            assert await idle == WAIT_MS

    story(tell)


def test_who_does_not_go_where_the_records_are_waits_again() -> None:
    async def tell(member: Member) -> None:
        await member.goes_round()
        member.node.log.produce(b"a", partition=1)
        await settle()
        took = [await member.ask(0) for _ in range(4)]
        assert took == [0, 0, WAIT_MS, WAIT_MS], "as often as the member has partitions"
        await member.ask(1)
        member.node.log.produce(b"b", partition=1)
        await settle()
        assert await member.ask(0) == 0

    story(tell)


def test_nobody_is_sent_to_a_broker_that_the_window_has_left() -> None:
    async def tell(member: Member) -> None:
        await member.goes_round()
        member.node.log.produce(b"a", partition=1)
        await settle()
        member.node.window(1).leader = 3
        assert await member.ask(0) == WAIT_MS

    story(tell)
