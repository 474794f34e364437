"""Positions set and deleted by hand, against members that join, stores that fail and commits that
are under way at the wrong moment.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from dispatcher.core.model import Acknowledge, Acquire, MemberId
from dispatcher.core.steps import CursorMoved, Snapshot
from dispatcher.store.base import FencedError, StoreError, WindowKey, Write
from gateway.config.groups import GroupSection
from gateway.core.cluster.topology import TopicPartition
from gateway.core.wire.errors import ErrorCode
from gateway.members.redis_table import TableUnavailable
from gateway.operations.errors import GroupInUse, GroupUnknown, StateUnavailable
from gateway.operations.group_offsets import Position
from gateway.operations.limits import RECOGNISED_AT_ONCE
from gateway.upstream.commits import Committed
from gateway.upstream.errors import Unreachable
from gateway.windows.window_keys import topic_id_text
from keyway.commit_metadata.core.metadata import encode as encode_commit
from tests.rig.admin_parts import M1, S1, Admin, worked
from tests.rig.node_parts import (
    GROUP,
    TOPIC,
    TOPIC_ID,
)
from tests.rig.virtual_time import now_ms, run, settle, until

P0, P1 = (TopicPartition(TOPIC, TOPIC_ID, partition) for partition in (0, 1))


def story(tell: Callable[[Admin], Awaitable[None]]) -> None:
    """Runs `tell` where a group has worked."""

    async def work() -> None:
        admin = Admin()
        async with admin.node:
            await worked(admin)
            await tell(admin)

    run(work())


def test_positions_are_found_wherever_they_are() -> None:
    async def work() -> None:
        admin = Admin()
        async with admin.node:
            assert await admin.offsets.find(GROUP) is None
            await worked(admin)
            here = {(TOPIC, 0): Position(4, settled=1), (TOPIC, 1): Position(0)}
            assert await admin.offsets.positions(GROUP) == here, "in memory"
            for partition in (0, 1):
                admin.node.windows.table.drop(admin.key(partition))
            assert await admin.offsets.positions(GROUP) == here, "in the store"
            fence = (await admin.store.claim(admin.key(0), "node")).fence
            await admin.store.apply([Write(admin.key(0), fence, [CursorMoved(6, 6)])])
            later = await admin.offsets.positions(GROUP)
            assert later[TOPIC, 0] == Position(6), "the commit at 4 says nothing of 6"
            admin.store.flush()
            assert await admin.offsets.positions(GROUP) == here, "in Kafka"
            admin.node.groups.forget(GROUP)
            assert await admin.offsets.find(GROUP) is not None, "known by its commits"

    run(work())


def test_a_position_of_an_unreliable_group_is_in_kafka_alone() -> None:
    async def work() -> None:
        admin = Admin(section=GroupSection(reliable=False, auto_offset_reset="earliest"))
        node = admin.node
        async with node:
            node.log.produce(*[b"key-%d" % at for at in range(6)])
            assert await admin.offsets.set_positions(GROUP, {P0: 4}) == {P0: ErrorCode.NONE}
            assert admin.store.windows == {}
            assert (await admin.offsets.positions(GROUP))[TOPIC, 0] == Position(4)
            node.beat()
            await settle()
            acquired = node.window().acquire(Acquire(M1, S1, 100, now_ms()))
            assert acquired is not None
            assert acquired.offsets == [4, 5]

    run(work())


def test_whose_commits_are_not_ours_is_no_group_of_ours() -> None:
    async def work() -> None:
        admin = Admin()
        async with admin.node:
            admin.commits.committed[GROUP, 0] = Committed(7, -1, "a plain consumer's")
            assert await admin.offsets.find(GROUP) is None
            await admin.offsets.recognise([GROUP])
            assert admin.node.groups.all() == []
            with pytest.raises(GroupUnknown):
                await admin.offsets.set_positions(GROUP, {P0: 0})
            assert admin.commits.requests == []
            admin.commits.committed["other", 0] = Committed(7, -1, encode_commit(7, []))
            await admin.offsets.recognise([GROUP, "other"])
            assert [group.name for group in admin.node.groups.all()] == ["other"]

    run(work())


def test_many_unknown_groups_are_asked_about_at_once() -> None:
    """A cluster may have thousands; a list of them waits for all."""

    async def work() -> None:
        admin = Admin()
        async with admin.node:
            admin.commits.answer_ms = 100
            admin.commits.committed["g-77", 0] = Committed(7, -1, encode_commit(7, []))
            began = now_ms()
            await admin.offsets.recognise(f"g-{at}" for at in range(320))
            assert now_ms() - began == 320 / RECOGNISED_AT_ONCE * 100
            assert [group.name for group in admin.node.groups.all()] == ["g-77"]

    run(work())


def test_a_position_is_set_in_store_and_kafka() -> None:
    async def tell(admin: Admin) -> None:
        assert await admin.offsets.set_positions(GROUP, {P0: 2, P1: 0}) == {
            P0: ErrorCode.NONE,
            P1: ErrorCode.NONE,
        }
        assert admin.node.stored == {admin.key(0): 2, admin.key(1): 0}
        assert admin.commits.committed[GROUP, 0].offset == 2
        assert (await admin.offsets.positions(GROUP))[TOPIC, 0] == Position(2)
        admin.node.beat("m2")
        await until(lambda: admin.node.window().dispatcher is not None)
        await settle()
        acquired = admin.node.window().acquire(Acquire(MemberId("m2"), S1, 100, now_ms()))
        assert acquired is not None
        assert acquired.offsets == [2, 3, 4, 5], "also the records settled behind it"

    story(tell)


@pytest.mark.parametrize("position", [1, 5])
def test_a_store_from_before_a_position_was_set_does_not_undo_it(position: int) -> None:
    async def tell(admin: Admin) -> None:
        node = admin.node
        before = node.store.dump()
        await admin.offsets.set_positions(GROUP, {P0: position})
        node.store.set_back(before)
        assert node.stored[admin.key(0)] == 4
        node.beat("m2")
        await until(lambda: node.window().dispatcher is not None)
        assert node.stored[admin.key(0)] == position

    story(tell)


def test_an_old_commit_does_not_undo_a_position_that_was_set() -> None:
    async def tell(admin: Admin) -> None:
        old = admin.commits.committed[GROUP, 0]
        await admin.offsets.set_positions(GROUP, {P0: 1})
        admin.commits.committed[GROUP, 0] = old  # as __consumer_offsets after an unclean election
        admin.node.beat("m2")
        await until(lambda: admin.node.window().dispatcher is not None)
        assert admin.node.stored[admin.key(0)] == 1

    story(tell)


def test_a_position_that_was_committed_stands_whatever_becomes_of_the_store() -> None:
    async def tell(admin: Admin) -> None:
        admin.store.create_failures = [FencedError("f")] * 3
        results = await admin.offsets.set_positions(GROUP, {P0: 1})
        assert results == {P0: ErrorCode.COORDINATOR_NOT_AVAILABLE}
        assert admin.node.stored[admin.key(0)] == 4
        admin.node.beat("m2")
        await until(lambda: admin.node.window().dispatcher is not None)
        assert admin.node.stored[admin.key(0)] == 1

    story(tell)


def test_nothing_is_committed_for_a_store_that_is_away() -> None:
    async def tell(admin: Admin) -> None:
        old = admin.commits.committed[GROUP, 0]
        admin.store.create_failures = [StoreError("down")]
        results = await admin.offsets.set_positions(GROUP, {P0: 1, P1: 0})
        assert results == {P0: ErrorCode.COORDINATOR_NOT_AVAILABLE, P1: ErrorCode.NONE}
        assert admin.commits.committed[GROUP, 0] == old
        assert admin.node.stored[admin.key(0)] == 4

    story(tell)


def test_members_are_left_in_peace() -> None:
    async def tell(admin: Admin) -> None:
        admin.node.beat("m2")
        await settle()
        core = admin.node.window().dispatcher
        requests = len(admin.commits.requests)
        with pytest.raises(GroupInUse):
            await admin.offsets.set_positions(GROUP, {P0: 0})
        with pytest.raises(GroupInUse):
            async with admin.offsets.at_rest(GROUP, lambda _: True):
                pytest.fail("at rest with a member")
        assert admin.node.window().dispatcher is core
        assert len(admin.commits.requests) == requests
        assert admin.node.stored[admin.key(0)] == 4

    story(tell)


def test_who_joins_meanwhile_starts_at_the_new_position() -> None:
    async def tell(admin: Admin) -> None:
        admin.commits.gate = asyncio.Event()
        setting = asyncio.ensure_future(admin.offsets.set_positions(GROUP, {P0: 1}))
        await settle()
        admin.node.beat("m2")
        await settle()
        windows = admin.node.windows.table
        assert windows.get(GROUP, TOPIC_ID, 0) is None, "no window before the position is set"
        # A second operator who gives up must not let go of the first one's hold.
        with pytest.raises(GroupInUse):
            await admin.offsets.set_positions(GROUP, {P0: 0})
        assert windows.get(GROUP, TOPIC_ID, 0) is None
        admin.commits.gate.set()
        assert await setting == {P0: ErrorCode.NONE}
        await until(lambda: admin.node.window().dispatcher is not None)
        core = admin.node.window().dispatcher
        assert core is not None
        assert core.cursor == 1

    story(tell)


def test_a_commit_under_way_does_not_overtake() -> None:
    async def tell(admin: Admin) -> None:
        admin.node.beat("m2")
        await settle()
        member = MemberId("m2")
        acquired = admin.node.window().acquire(Acquire(member, S1, 100, now_ms()))
        assert acquired is not None
        await admin.node.window().ask(Acknowledge(member, S1, [(4, 4, b"\1")], now_ms()))
        admin.node.beat("m2", -1)
        gate = admin.commits.gate = asyncio.Event()
        committing = asyncio.ensure_future(admin.node.windows.committer.commit())
        await settle()
        admin.commits.gate = None  # only the commit under way is slow
        setting = asyncio.ensure_future(admin.offsets.set_positions(GROUP, {P0: 1}))
        await settle()
        assert not setting.done()
        gate.set()
        await committing
        await setting
        await admin.node.windows.committer.commit()
        assert admin.commits.committed[GROUP, 0].offset == 1
        offsets = [c.offset for request in admin.commits.requests for c in request if c.tp == P0]
        assert offsets[-2:] == [6, 1]

    story(tell)


@pytest.mark.parametrize(
    ("failures", "error", "stored"),
    [
        ([FencedError("f")], ErrorCode.NONE, 1),
        ([FencedError("f")] * 3, ErrorCode.COORDINATOR_NOT_AVAILABLE, 4),
        ([StoreError("down")], ErrorCode.COORDINATOR_NOT_AVAILABLE, 4),
    ],
)
def test_a_store_that_fails_is_reported(
    failures: list[StoreError], error: ErrorCode, stored: int
) -> None:
    async def tell(admin: Admin) -> None:
        admin.store.create_failures = list(failures)
        assert await admin.offsets.set_positions(GROUP, {P0: 1}) == {P0: error}
        assert admin.node.stored[admin.key(0)] == stored

    story(tell)


def test_a_commit_that_is_refused_changes_nothing() -> None:
    """A classic group of that name became active."""

    async def tell(admin: Admin) -> None:
        admin.commits.errors = [int(ErrorCode.UNKNOWN_MEMBER_ID)]
        results = await admin.offsets.set_positions(GROUP, {P0: 1})
        assert results == {P0: ErrorCode.UNKNOWN_MEMBER_ID}
        assert admin.node.stored[admin.key(0)] == 4

    story(tell)


def test_a_group_that_was_refused_leaves_nothing() -> None:
    """Upstream has a group of that name that is in use, and nothing of it is ours."""

    async def tell(admin: Admin) -> None:
        admin.commits.errors = [int(ErrorCode.UNKNOWN_MEMBER_ID)]
        results = await admin.offsets.set_positions("made-up", {P0: 1})
        assert results == {P0: ErrorCode.UNKNOWN_MEMBER_ID}
        assert {key.group for key in admin.store.fences} == {GROUP}
        assert admin.node.groups.get("made-up") is None
        assert await admin.offsets.set_positions("made-up", {P0: 1}) == {P0: ErrorCode.NONE}
        assert admin.node.groups.get("made-up") is not None

    story(tell)


def test_one_topic_is_forgotten() -> None:
    async def tell(admin: Admin) -> None:
        other = WindowKey(GROUP, topic_id_text(bytes(16)), 0)
        await admin.store.claim(other, "node")
        await admin.store.create(other, admin.store.fences[other], Snapshot(cursor=9))
        async with admin.offsets.at_rest(GROUP, lambda key: key != other):
            await admin.offsets.forget_windows(GROUP, lambda key: key != other)
        assert list(admin.store.windows) == [other]
        assert admin.node.windows.table.of_group(GROUP) == []
        assert admin.node.groups.get(GROUP) is not None

    story(tell)


@pytest.mark.parametrize("joins", [False, True])
def test_a_group_is_forgotten_unless_somebody_joins_meanwhile(*, joins: bool) -> None:
    async def tell(admin: Admin) -> None:
        async with admin.offsets.at_rest(GROUP, lambda _: True):
            if joins:
                admin.node.beat("m2")
                await settle()
            await admin.offsets.forget_group(GROUP)
            assert admin.store.windows == {}
        assert f"filters of {GROUP}" in admin.forgotten.names
        group = admin.node.groups.get(GROUP)
        assert (group is not None) is joins
        assert (GROUP in admin.forgotten.names) is not joins
        await settle()
        assert bool(admin.node.windows.table.of_group(GROUP)) is joins

    story(tell)


def test_two_deletions_of_a_group_at_once_are_one() -> None:
    async def tell(admin: Admin) -> None:
        async with asyncio.TaskGroup() as tasks:
            for _ in range(2):
                tasks.create_task(admin.offsets.forget_group(GROUP))
        assert admin.node.groups.get(GROUP) is None

    story(tell)


def test_what_is_away_is_said() -> None:
    async def tell(admin: Admin) -> None:
        admin.forgotten.failure = TableUnavailable("down")
        with pytest.raises(StateUnavailable):
            await admin.offsets.forget_group(GROUP)
        assert admin.node.groups.get(GROUP) is not None
        admin.commits.failure = Unreachable("gone")
        with pytest.raises(StateUnavailable):
            await admin.offsets.positions(GROUP)
        admin.commits.failure = None
        admin.store.down = True
        with pytest.raises(StateUnavailable):
            await admin.offsets.positions(GROUP)
        with pytest.raises(StateUnavailable):
            await admin.offsets.find("another")

    story(tell)
