"""Windows without members: they leave memory, and come back with members."""

from __future__ import annotations

import asyncio

import pytest

from dispatcher.core.model import Acknowledge, Acquire, MemberId, SessionId
from dispatcher.store.base import WindowKey
from gateway.windows.limits import WINDOW_IDLE_MS_MAX
from gateway.windows.window import Window
from tests.rig.node_parts import GROUP, TOPIC, Node, ScriptedStore, topology
from tests.rig.virtual_time import now_ms, run, settle

M1, S1 = MemberId("m1"), SessionId("s1")


def test_a_window_without_members_leaves_memory_once_everything_is_committed() -> None:
    async def work() -> None:
        async with Node() as node:
            node.log.produce(b"a", b"b")
            node.beat()
            await settle()
            node.window().acquire(Acquire(M1, S1, 100, now_ms()))
            await node.window().ask(Acknowledge(M1, S1, [(0, 0, b"\1")], now_ms()))
            node.beat("m1", -1)
            await asyncio.sleep(WINDOW_IDLE_MS_MAX / 1000 + 1)
            assert len(node.windows.table.all()) == 1, "Kafka does not know yet"
            await node.windows.committer.commit()
            await asyncio.sleep(1)
            assert node.windows.table.all() == []
            node.beat("m2")
            await settle()
            assert node.stored[node.window().key] == 1
            assert node.groups.members(GROUP, TOPIC)[0].member_id == "m2"

    run(work())


def test_the_store_forgets_a_window_that_leaves_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """Groups with a name for each run come and go for as long as the node lives."""
    forgotten: list[WindowKey] = []
    monkeypatch.setattr(ScriptedStore, "forget", lambda _, key: forgotten.append(key))

    async def work() -> None:
        async with Node() as node:
            node.log.produce(b"a")
            node.beat()
            await settle()
            key = node.window().key
            node.beat("m1", -1)
            await asyncio.sleep(WINDOW_IDLE_MS_MAX / 1000 + 1)
            await node.windows.committer.commit()
            await asyncio.sleep(1)
            assert node.windows.table.all() == []
            assert forgotten == [key]

    run(work())


def test_members_that_come_while_idle_windows_are_closed_keep_theirs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("gateway.windows.watchdog.TICKED_AT_ONCE", 1)  # other work after each

    async def work() -> None:
        async with Node(topology=topology(3)) as node:
            node.beat()
            await settle()
            node.beat("m1", -1)
            closed = asyncio.Event()
            close = Window.close

            def close_and_tell(window: Window) -> None:
                close(window)
                closed.set()

            monkeypatch.setattr(Window, "close", close_and_tell)
            await node.windows.committer.commit()
            async with asyncio.timeout(2 * WINDOW_IDLE_MS_MAX / 1000):
                await closed.wait()
            assert len(node.windows.table.all()) == 2
            node.beat("m2")
            await settle()
            await asyncio.sleep(1)
            assert [window.key.partition for window in node.windows.table.all()] == [0, 1, 2]

    run(work())


def test_windows_of_a_group_that_another_node_deletes_leave_nothing_behind() -> None:
    """They stay in memory for a while without members. Written anew, they would bring the group
    back, with a position.
    """

    async def work() -> None:
        async with Node(topology=topology(3)) as node:
            node.beat()
            await settle()
            node.beat("m1", -1)
            assert len(node.windows.table.all()) == 3
            for window in node.windows.table.all():
                await node.store.delete(window.key)
            await node.windows.committer.commit()  # before the node has heard of it
            await asyncio.sleep(1)
            assert node.stored == {}
            node.commits.committed.clear()
            node.beat("m2")
            await settle()
            assert len(node.stored) == 3, "a new group of that name"
            node.beat("m2", -1)
            node.groups.drop_copy(GROUP, now_ms())
            assert node.windows.table.all() == []

    run(work())
