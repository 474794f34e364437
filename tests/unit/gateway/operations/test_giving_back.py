"""A Key-Shared group gives its name back to consumers."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest

from dispatcher.core.model import Acknowledge, Acquire
from dispatcher.core.steps import CursorMoved
from dispatcher.store.base import Write
from gateway.core.wire.errors import ErrorCode
from gateway.operations.errors import GroupInUse, StateUnavailable
from gateway.operations.giving_back import clear_overtaken, give_back
from gateway.upstream.commits import Committed
from tests.rig.admin_parts import M1, S1, Admin, worked
from tests.rig.node_parts import GROUP
from tests.rig.virtual_time import now_ms, run, settle, until


def story(tell: Callable[[Admin], Awaitable[None]]) -> None:
    """Runs `tell` where a group has settled offsets 0-3 and 5, and has no members any more."""

    async def work() -> None:
        admin = Admin()
        async with admin.node:
            await worked(admin)
            await tell(admin)

    run(work())


def test_the_commits_of_consumers_are_the_positions_from_then_on() -> None:
    async def tell(admin: Admin) -> None:
        await give_back(admin.offsets, GROUP)
        assert admin.store.windows == {}
        assert admin.node.windows.table.all() == []
        assert admin.node.groups.get(GROUP) is None
        assert admin.forgotten.names == [GROUP], "key filters stay"
        admin.commits.committed[GROUP, 0] = Committed(6, -1, "")
        await admin.node.windows.committer.commit()
        assert admin.commits.committed[GROUP, 0].offset == 6, "nobody writes over it"
        admin.node.log.produce(b"later")
        admin.node.beat()
        await settle()
        acquired = admin.node.window().acquire(Acquire(M1, S1, 100, now_ms()))
        assert acquired is not None
        assert acquired.offsets == [6], "share members go on there, too"
        await give_back_is_refused(admin)

    async def give_back_is_refused(admin: Admin) -> None:
        with pytest.raises(GroupInUse):
            await give_back(admin.offsets, GROUP)
        assert admin.node.groups.get(GROUP) is not None

    story(tell)


def test_kafka_has_what_was_settled_before() -> None:
    """Also the last, which no commit had told yet."""

    async def tell(admin: Admin) -> None:
        node = admin.node
        node.beat()
        await settle()
        acquired = node.window().acquire(Acquire(M1, S1, 100, now_ms()))
        assert acquired is not None
        assert acquired.offsets == [4]
        await node.window().ask(Acknowledge(M1, S1, [(4, 4, b"\1")], now_ms()))
        node.beat("m1", -1)
        assert admin.commits.committed[GROUP, 0].offset == 4
        await give_back(admin.offsets, GROUP)
        assert admin.commits.committed[GROUP, 0].offset == 6

    story(tell)


def test_a_window_of_another_node_is_committed_by_its_cursor() -> None:
    async def tell(admin: Admin) -> None:
        for partition in (0, 1):
            admin.node.windows.table.drop(admin.key(partition))
        fence = (await admin.store.claim(admin.key(0), "another")).fence
        await admin.store.apply([Write(admin.key(0), fence, [CursorMoved(6, 6)])])
        before = admin.commits.committed[GROUP, 1]
        await give_back(admin.offsets, GROUP)
        assert admin.commits.committed[GROUP, 0].offset == 6
        assert admin.commits.committed[GROUP, 1] == before, "Kafka has it"
        assert admin.store.windows == {}

    story(tell)


@pytest.mark.parametrize("by_consumers", [True, False])
def test_what_kafka_does_not_take(*, by_consumers: bool) -> None:
    """Nothing is forgotten before Kafka has it, unless consumers have set another position."""

    async def tell(admin: Admin) -> None:
        fence = (await admin.store.claim(admin.key(0), "another")).fence
        await admin.store.apply([Write(admin.key(0), fence, [CursorMoved(6, 6)])])
        for partition in (0, 1):
            admin.node.windows.table.drop(admin.key(partition))
        await until(lambda: admin.node.windows.table.all() == [])
        if by_consumers:
            admin.commits.errors = [ErrorCode.UNKNOWN_MEMBER_ID]
            await give_back(admin.offsets, GROUP)
        else:
            admin.commits.errors = [ErrorCode.NOT_COORDINATOR]
            with pytest.raises(StateUnavailable, match="NOT_COORDINATOR"):
                await give_back(admin.offsets, GROUP)
        assert (admin.store.windows == {}) is by_consumers
        assert (admin.node.groups.get(GROUP) is None) is by_consumers

    story(tell)


def test_without_redis_nothing_is_given_back() -> None:
    async def tell(admin: Admin) -> None:
        admin.store.down = True
        with pytest.raises(StateUnavailable):
            await give_back(admin.offsets, GROUP)

    story(tell)


def forgotten(admin: Admin) -> None:
    """As a group that was empty for long: its windows stay in the store."""
    for window in admin.node.windows.table.all():
        admin.node.windows.table.drop(window.key)
    admin.node.groups.forget(GROUP)
    assert admin.store.windows.keys() == {admin.key(0), admin.key(1)}


@pytest.mark.parametrize("consumers", [True, False])
def test_a_forgotten_group_does_not_come_back_behind_consumers(*, consumers: bool) -> None:
    async def have(name: str) -> bool:
        return consumers and name == GROUP

    async def tell(admin: Admin) -> None:
        forgotten(admin)
        await clear_overtaken(admin.offsets, have, GROUP)
        assert len(admin.store.windows) == 2, "Kafka has what the gateway committed"
        admin.commits.committed[GROUP, 0] = Committed(6, -1, "")
        await clear_overtaken(admin.offsets, have, GROUP)
        if not consumers:
            assert len(admin.store.windows) == 2, "a stray commit, past the gateway"
            return
        assert admin.store.windows.keys() == {admin.key(1)}, "nobody has committed there since"
        admin.node.log.produce(b"later")
        admin.node.beat()
        await settle()
        acquired = admin.node.window().acquire(Acquire(M1, S1, 100, now_ms()))
        assert acquired is not None
        assert acquired.offsets == [6]

    story(tell)


def test_nothing_is_cleared_behind_members_that_have_come_meanwhile() -> None:
    async def tell(admin: Admin) -> None:
        async def joins(_name: str) -> bool:
            admin.node.beat()
            return True

        forgotten(admin)
        admin.commits.committed[GROUP, 0] = Committed(6, -1, "")
        await clear_overtaken(admin.offsets, joins, GROUP)
        assert admin.key(0) in admin.store.windows

    story(tell)
