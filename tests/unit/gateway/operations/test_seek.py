"""Seeks of groups: plans, their errors by partition, and their execution."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace
from functools import partial
from typing import Any

import pytest

from gateway.core.cluster.topology import Topic
from gateway.core.wire.errors import ErrorCode
from gateway.operations.errors import GroupInUse, GroupUnknown, PartitionUnknown
from gateway.operations.seek import Move, Seeks, SeekTarget, SeekTo
from tests.rig.admin_parts import Admin, worked
from tests.rig.node_parts import GROUP, TOPIC
from tests.rig.virtual_time import run, settle


def story(tell: Callable[[Admin, Seeks], Awaitable[None]], **parts: Any) -> None:
    """A group at 4 of 6 records of partition 0, with 5 settled; at 0 of 0 of partition 1."""

    async def work() -> None:
        admin = Admin(**parts)
        async with admin.node:
            await worked(admin)
            await tell(admin, Seeks(admin.offsets))

    run(work())


def told(moves: list[Move]) -> list[tuple[int, int | None, int | None, str | None]]:
    assert all(move.topic == TOPIC for move in moves)
    return [(move.partition, move.old, move.new, move.error) for move in moves]


@pytest.mark.parametrize(
    ("to", "value", "new"),
    [
        ("earliest", 0, 2),
        ("latest", 0, 6),
        ("offset", 3, 3),
        ("offset", 2, 2),
        ("offset", 6, 6),
        ("timestamp", 5_000, 5),
        ("timestamp", 9_999_999, 6),
        ("shift", -1, 3),
        ("shift", 1, 5),
        ("shift", -100, 2),
        ("shift", 100, 6),
    ],
)
def test_places(to: SeekTo, value: int, new: int) -> None:
    async def tell(admin: Admin, seeks: Seeks) -> None:
        admin.node.log.starts[0] = 2
        admin.view.times = {5_000: 5}
        moves = await seeks.plan(GROUP, SeekTarget(to, value), TOPIC, [0])
        assert told(moves) == [(0, 4, new, None)]
        assert admin.node.window().dispatcher is not None, "nothing was done"

    story(tell)


def test_a_plan_may_speak_of_the_groups_own_topics_alone() -> None:
    """It tells where other logs begin and end."""

    async def tell(admin: Admin, seeks: Seeks) -> None:
        known = admin.node.topology
        other = Topic("secrets", b"s" * 16, known.topics[TOPIC].partitions)
        topics = {**known.topics, "secrets": other}
        admin.node.change_topology(replace(known, topics=topics))
        plan = partial(seeks.plan, GROUP, SeekTarget("latest"))
        assert {move.topic for move in await plan("secrets")} == {"secrets"}
        own = await plan(own_topics=True)
        assert await plan(TOPIC, own_topics=True) == own != []
        for name in ("secrets", "nothing"):
            with pytest.raises(PartitionUnknown, match=f"there is no topic '{name}'"):
                await plan(name, own_topics=True)

    story(tell)


def test_each_partition_has_its_own_error() -> None:
    async def tell(admin: Admin, seeks: Seeks) -> None:
        admin.node.log.starts[0] = 2
        wanted = [0, 1, 7]
        assert told(await seeks.plan(GROUP, SeekTarget("offset", 1), TOPIC, wanted)) == [
            (0, 4, None, "offset 1 is not between 2 and 6"),
            (1, 0, None, "offset 1 is not between 0 and 0"),
            (7, None, None, "no such partition"),
        ]
        admin.view.errors[0] = ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert told(await seeks.plan(GROUP, SeekTarget("latest"))) == [
            (0, 4, None, "NOT_LEADER_OR_FOLLOWER"),
            (1, 0, 0, None),
        ]
        admin.view.errors.clear()
        admin.view.silent.update(admin.node.topology.brokers)
        first, second = await seeks.plan(GROUP, SeekTarget("latest"))
        assert "is away" in (first.error or "")
        assert "is away" in (second.error or "")

    story(tell)


def test_what_is_not_there() -> None:
    async def tell(_: Admin, seeks: Seeks) -> None:
        with pytest.raises(PartitionUnknown, match="no topic 'none'"):
            await seeks.plan(GROUP, SeekTarget("latest"), "none")
        with pytest.raises(GroupUnknown):
            await seeks.plan("none", SeekTarget("latest"))

    story(tell)


def test_a_seek_is_where_the_next_member_starts() -> None:
    async def tell(admin: Admin, seeks: Seeks) -> None:
        moves = await seeks.plan(GROUP, SeekTarget("offset", 1), TOPIC, [0, 1])
        done = await seeks.execute(GROUP, moves)
        assert told(done)[0] == (0, 4, 1, None)
        assert done[1].error == moves[1].error, "it had an error before"
        admin.node.beat("m2")
        await settle()
        core = admin.node.window().dispatcher
        assert core is not None
        assert (core.cursor, core.settled_ranges()) == (1, []), "nothing of before comes back"

    story(tell)


def test_a_group_with_members_stays() -> None:
    async def tell(admin: Admin, seeks: Seeks) -> None:
        admin.node.beat("m2")
        await settle()
        moves = await seeks.plan(GROUP, SeekTarget("earliest"))
        with pytest.raises(GroupInUse, match="it has 1 members"):
            await seeks.execute(GROUP, moves)
        core = admin.node.window().dispatcher
        assert core is not None
        assert core.cursor == 4

    story(tell)


def test_kafka_refuses_one_partition() -> None:
    async def tell(admin: Admin, seeks: Seeks) -> None:
        moves = await seeks.plan(GROUP, SeekTarget("latest"))
        admin.commits.errors = [ErrorCode.TOPIC_AUTHORIZATION_FAILED]
        done = await seeks.execute(GROUP, moves)
        assert {move.error for move in done} == {"TOPIC_AUTHORIZATION_FAILED"}
        assert {move.new for move in done} == {None}

    story(tell)
