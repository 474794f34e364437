"""A share session that two connections use, of which one may not read what the other adds."""

from __future__ import annotations

import asyncio
from dataclasses import replace

from gateway.core.cluster.topology import PartitionInfo, Topic
from gateway.core.wire.apis import ApiKey
from gateway.core.wire.errors import ErrorCode
from gateway.core.wire.schema import Message
from tests.rig.node_parts import TOPIC, TOPIC_ID, Node, topology
from tests.rig.share_client import Client, ScriptedConnection, joined, offsets, row_error, services
from tests.rig.virtual_time import run, settle

MINE, OTHER = b"M" * 16, b"O" * 16
MEMBER = "m1"


def three_topics() -> Node:
    """TOPIC with two partitions, which the intruder may not read, and two topics that it may."""
    base = topology(2)
    more = {
        name: Topic(name, topic_id, {0: PartitionInfo(1, 0)})
        for name, topic_id in (("mine", MINE), ("other", OTHER))
    }
    names = {topic.topic_id: name for name, topic in more.items()}
    return Node(topology=replace(base, topics=base.topics | more, names=base.names | names))


async def intruders(node: Node) -> tuple[Client, Client]:
    """Two connections of a client that knows another's member id."""
    await joined(node, member=MEMBER)
    shared = services(node)
    made = []
    for number in (91, 92):
        connection = ScriptedConnection(number, 1)
        connection.denied = {TOPIC}
        made.append(Client(node, shared, connection, MEMBER))
    opened = await made[0].fetch(topic_id=MINE)
    assert opened["ErrorCode"] == 0
    return made[0], made[1]


def of_topic(answer: Message, topic_id: bytes) -> list[Message]:
    return [
        row
        for topic in answer["Responses"]
        if topic["TopicId"] == topic_id
        for row in topic["Partitions"]
    ]


def test_a_waiting_fetch_serves_nothing_that_another_connection_added_and_may_not_read() -> None:
    async def work() -> None:
        async with three_topics() as node:
            first, second = await intruders(node)
            async with asyncio.TaskGroup() as tasks:
                waiting = tasks.create_task(first.fetch(MaxWaitMs=5_000))
                await settle()
                added = await second.fetch(topic_id=TOPIC_ID, partitions=[0], epoch=2)
                assert row_error(added) == ErrorCode.TOPIC_AUTHORIZATION_FAILED
                node.windows.table.drop(node.window(1).key)  # so that windows are looked up again
                node.log.produce(b"secret", b"secret")
            assert of_topic(waiting.result(), TOPIC_ID) == []

    run(work())


def test_a_verdict_does_not_cover_what_another_connection_adds_while_it_is_asked_for() -> None:
    async def work() -> None:
        async with three_topics() as node:
            node.log.produce(b"secret", b"secret")
            first, second = await intruders(node)
            gate = first.connection.gates[ApiKey.METADATA] = asyncio.Event()
            async with asyncio.TaskGroup() as tasks:
                asking = tasks.create_task(first.fetch(topic_id=OTHER, partitions=[0], epoch=2))
                await settle()
                added = await second.fetch(topic_id=TOPIC_ID, partitions=[0], epoch=1)
                assert row_error(added) == ErrorCode.TOPIC_AUTHORIZATION_FAILED
                gate.set()
            assert of_topic(asking.result(), TOPIC_ID) == []

    run(work())


def test_a_topic_that_upstreams_broker_does_not_know_yet_is_served_later() -> None:
    """A broker whose metadata lag behind says nothing about the client's rights."""

    async def work() -> None:
        async with Node() as node:
            node.log.produce(b"a", b"b")
            client = await joined(node)
            client.services.authoriser.connection_lost(client.connection.id)  # as after a while
            client.connection.unknown = {TOPIC}
            assert offsets(await client.fetch()) == []
            client.connection.unknown = set()
            assert offsets(await client.fetch()) == [0, 1]

    run(work())
