"""Joins that are answered later."""

from __future__ import annotations

import asyncio
from dataclasses import replace

from gateway.config.groups import GroupSection
from gateway.core.wire.errors import ErrorCode
from gateway.members.coordination import EveryGroup
from gateway.operations.errors import StateUnavailable
from tests.rig.node_parts import GROUP, Node
from tests.rig.share_client import Client, ScriptedConnection, services
from tests.rig.virtual_time import now_ms, run


def test_members_that_start_together_get_their_partitions_together() -> None:
    async def work() -> None:
        async with Node(GroupSection(assignment_interval_ms=1_000)) as node:
            node.groups.start_ms = 500
            clients = [
                Client(node, services(node), ScriptedConnection(at), f"m{at}") for at in (1, 2)
            ]
            began_ms = now_ms()
            first = asyncio.ensure_future(clients[0].heartbeat())
            await asyncio.sleep(0.2)
            answers = await asyncio.gather(first, clients[1].heartbeat())
            assert now_ms() - began_ms == 500
            for answer in answers:
                assert answer["ErrorCode"] == 0, answer["ErrorMessage"]
                assert answer["Assignment"]["TopicPartitions"]
            third = await Client(node, services(node), ScriptedConnection(3), "m3").heartbeat()
            assert third["Assignment"]["TopicPartitions"] == [], "with its next heartbeat"
            beat = await clients[0].heartbeat(answers[0]["MemberEpoch"])
            assert beat["ErrorCode"] == 0

    run(work())


def test_a_join_that_waits_while_its_group_goes_to_another_node_is_sent_there() -> None:
    """The member would be known to this node alone."""

    class GivenUp(EveryGroup):
        given_up = False

        def leads(self, group: str) -> bool:  # noqa: ARG002
            return not self.given_up

    async def work() -> None:
        async with Node(GroupSection(assignment_interval_ms=1_000)) as node:
            coordination = GivenUp()
            known = replace(services(node), coordination=coordination)

            async def other_type_active(_: str) -> bool:
                coordination.given_up = True
                return False

            known = replace(known, other_type_active=other_type_active)
            answer = await Client(node, known, ScriptedConnection(1), "m1").heartbeat()
            assert answer["ErrorCode"] == ErrorCode.NOT_COORDINATOR
            assert node.groups.get(GROUP) is None

    run(work())


def test_a_group_whose_state_nobody_can_see_begins_with_no_member() -> None:
    """Consumers may have had its name meanwhile (operations/giving_back.py)."""

    async def work() -> None:
        async with Node() as node:
            asked: list[str] = []

            async def clear(group: str) -> None:
                asked.append(group)
                if len(asked) == 1:
                    raise StateUnavailable("Redis is away")

            client = Client(
                node, replace(services(node), clear_overtaken=clear), ScriptedConnection(1), "m1"
            )
            answer = await client.heartbeat()
            assert answer["ErrorCode"] == ErrorCode.COORDINATOR_NOT_AVAILABLE
            assert node.groups.get(GROUP) is None
            for epoch in (0, 1):
                assert (await client.heartbeat(epoch))["ErrorCode"] == 0
            assert asked == [GROUP, GROUP], "before its first member alone"

    run(work())
