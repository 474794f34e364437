"""Bounds of the topics that groups are told of: of one connection, and of empty groups."""

from __future__ import annotations

import asyncio

import pytest

from gateway.core.share.errors import GroupFull
from gateway.core.share.membership import EVERYBODY, Heartbeat
from gateway.members import evictions
from gateway.members import groups as groups_of_node
from gateway.members.limits import TICK_MS
from tests.rig.node_parts import Node
from tests.rig.virtual_time import now_ms, run
from tests.unit.gateway.members.test_groups import QUICK


def test_topics_of_the_members_of_one_connection_have_a_bound(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each may be of a group of its own."""
    monkeypatch.setattr(groups_of_node, "CONNECTION_TOPIC_NAMES_MAX", 5)

    def joins(node: Node, group: str, *topics: str, connection: int = 1, epoch: int = 0) -> None:
        beat = Heartbeat("m", epoch, None, topics, "client", "127.0.0.1", connection)
        node.groups.heartbeat(group, beat, node.topology.topics.get, now_ms())

    async def work() -> None:
        async with Node() as node:
            joins(node, "one", "a", "b")
            joins(node, "two", "c", "d", "e")
            with pytest.raises(GroupFull, match="this connection carries"):
                joins(node, "three", "f")
            with pytest.raises(GroupFull):
                joins(node, "one", "a", "b", "c", epoch=1)
            joins(node, "three", "c", "d", "e")
            second, third = node.groups.member("two", "m"), node.groups.member("three", "m")
            assert second is not None
            assert third is not None
            assert third.topics[0] is second.topics[0], "who has the topics of another may come"
            joins(node, "four", "f", connection=2)
            joins(node, "one", "g", epoch=1)
            joins(node, "five", "f")
            joins(node, "six", "^a pattern")

    run(work())


def test_topics_of_those_who_left_empty_groups_have_a_bound(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Anybody may join and leave under any name, with a thousand topics each time."""
    monkeypatch.setattr(evictions, "EMPTY_TOPIC_NAMES_MAX", 13)

    async def work() -> None:
        async with Node(QUICK) as node:

            def comes_and_goes(name: str, *topics: str) -> None:
                for epoch in (0, -1):
                    beat = Heartbeat("m", epoch, None, topics, "client", "127.0.0.1", 1)
                    node.groups.heartbeat(name, beat, node.topology.topics.get, now_ms())

            async def who_left() -> dict[str, set[str | None]]:
                await asyncio.sleep(TICK_MS / 1000)
                await node.evictions.tick(now_ms())
                groups = node.groups.all()
                return {group.name: {one[0] for one in group.departed} for group in groups}

            known, forgotten = {"client", None}, {None}
            comes_and_goes("b", "1", "2", "3")
            assert await who_left() == {"b": known}
            comes_and_goes("a", "4", "5", "6")
            assert await who_left() == {"b": known, "a": known}
            comes_and_goes("a", "4", "7")
            assert await who_left() == {"b": forgotten, "a": known}, "also without a look between"
            assert list(node.groups.all()[1].departed) == [EVERYBODY]
            comes_and_goes("b", "1")
            assert await who_left() == {"b": known, "a": known}

    run(work())
