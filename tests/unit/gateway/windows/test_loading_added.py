"""A partition that is added after a group has begun with its topic is read from its first record,
whoever was there when it was added.
"""

from __future__ import annotations

import pytest

from gateway.config.groups import GroupSection
from gateway.windows.window_keys import topic_id_text
from tests.rig.admin_parts import Admin
from tests.rig.node_parts import (
    GROUP,
    TOPIC_ID,
    Node,
    ScriptedCommits,
    ScriptedStore,
    topology,
)
from tests.rig.scripted_hashes import ScriptedHashes
from tests.rig.virtual_time import run, settle
from tests.unit.gateway.windows.test_window import accept, acquire

LATEST = GroupSection(auto_offset_reset="latest")
UNRELIABLE = GroupSection(auto_offset_reset="latest", reliable=False)
KEY = f"keyway:begun:{GROUP}"
TOPIC = topic_id_text(TOPIC_ID)


class Lasting:
    """What outlives a node."""

    def __init__(self) -> None:
        self.store = ScriptedStore()
        self.commits = ScriptedCommits()
        self.hashes = ScriptedHashes()

    def node(self, partitions: int, section: GroupSection = LATEST, boot: str = "boot") -> Node:
        return Node(
            section,
            topology=topology(partitions),
            store=self.store,
            commits=self.commits,
            hashes=self.hashes,
            boot=boot,
        )


async def worked(node: Node, *, partition: int = 0) -> None:
    """The group has read a record of that partition; Kafka knows."""
    node.beat()
    await settle()
    node.log.produce(b"a", partition=partition)
    await settle()
    acquired = node.window(partition)
    await acquire(acquired).persisted
    await acquired.ask(accept(0))
    await node.windows.committer.commit()


async def start_of(node: Node, partition: int = 1) -> int:
    """Where the group goes on there; five records wait."""
    node.log.produce(*(b"k%d" % at for at in range(5)), partition=partition)
    node.beat()
    await settle()
    core = node.window(partition).dispatcher
    assert core is not None
    return core.cursor


def test_a_partition_added_while_the_gateway_is_down() -> None:
    async def work() -> None:
        lasting = Lasting()
        async with lasting.node(1) as node:
            await worked(node)
        async with lasting.node(2, boot="again") as node:
            assert await start_of(node) == 0

    run(work())


@pytest.mark.parametrize("section", [LATEST, UNRELIABLE])
def test_a_partition_added_while_the_group_has_no_members(section: GroupSection) -> None:
    async def work() -> None:
        async with Lasting().node(1, section) as node:
            node.beat()
            await settle()
            node.beat("m1", -1)
            await settle()
            node.change_topology(topology(2))
            assert await start_of(node) == 0

    run(work())


def test_a_partition_that_another_node_opens() -> None:
    async def work() -> None:
        lasting = Lasting()
        async with lasting.node(1) as one:
            await worked(one)
            async with lasting.node(2, boot="other") as other:
                assert await start_of(other) == 0

    run(work())


def test_a_new_group_starts_by_its_policy_in_all_partitions_that_are_there() -> None:
    async def work() -> None:
        async with Lasting().node(2) as node:
            assert await start_of(node) == 5
            assert node.hashes.rows == {KEY: {TOPIC: b"2"}}

    run(work())


def test_a_group_of_an_older_version_reads_nothing_whole_by_surprise() -> None:
    """It has positions, and nobody noted with how many partitions it had begun."""

    async def work() -> None:
        lasting = Lasting()
        async with lasting.node(1) as node:
            await worked(node)
        lasting.hashes.rows.clear()
        async with lasting.node(2, boot="new version") as node:
            assert await start_of(node) == 5, "it may have been there before"
            node.change_topology(topology(3))
            assert await start_of(node, 2) == 0, "this one was not"

    run(work())


def test_a_redis_that_was_flushed() -> None:
    """A node that runs on remembers; after a new start nobody knows, and the policy counts."""

    async def work() -> None:
        lasting = Lasting()
        async with lasting.node(1) as node:
            await worked(node)
            lasting.store.windows.clear()
            lasting.hashes.rows.clear()
            node.windows.table.drop(node.window().key)
            node.beat()
            await settle()
            assert lasting.hashes.rows == {KEY: {TOPIC: b"1"}}
            node.change_topology(topology(2))
            assert await start_of(node) == 0
        lasting.store.windows.clear()
        lasting.hashes.rows.clear()
        async with lasting.node(3, boot="again") as node:
            assert await start_of(node, 2) == 5

    run(work())


def test_a_topic_that_is_made_anew_starts_by_the_policy() -> None:
    async def work() -> None:
        async with Lasting().node(1) as node:
            await worked(node)
            node.commits.committed.clear()
            node.change_topology(topology(2, topic_id=b"another " * 2))
            assert await start_of(node) == 5

    run(work())


def test_the_window_waits_for_redis() -> None:
    async def work() -> None:
        lasting = Lasting()
        async with lasting.node(2) as node:
            lasting.hashes.down = True
            node.log.produce(b"a")
            node.beat()
            await settle()
            assert node.window().dispatcher is None
            assert node.window().trouble

    run(work())


def test_a_group_that_is_deleted_begins_anew() -> None:
    async def work() -> None:
        admin = Admin(section=LATEST)
        async with admin.node as node:
            await worked(node)
            node.beat("m1", -1)
            await settle()
            async with admin.offsets.at_rest(GROUP, lambda _: True):
                await admin.offsets.forget_group(GROUP)
                node.commits.committed.clear()
            assert node.hashes.rows == {KEY: {}}
            node.change_topology(topology(2))
            assert await start_of(node) == 5

    run(work())


def test_a_group_whose_positions_in_a_topic_are_deleted_begins_anew_with_it() -> None:
    async def work() -> None:
        admin = Admin(section=LATEST)
        async with admin.node as node:
            await worked(node)
            node.beat("m1", -1)
            await settle()
            node.change_topology(topology(2))
            async with admin.offsets.at_rest(GROUP, lambda _: True):
                await admin.offsets.begin_anew(GROUP, node.topology.topics.values())
                await admin.offsets.forget_windows(GROUP, lambda _: True)
                node.commits.committed.clear()
            assert await start_of(node) == 5
            node.change_topology(topology(3))
            assert await start_of(node, 2) == 0

    run(work())
