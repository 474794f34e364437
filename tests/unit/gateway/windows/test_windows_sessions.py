"""Share sessions that end, or change their broker, and what their windows make of it."""

from __future__ import annotations

import asyncio

import pytest

from dispatcher.core.model import Acknowledge, Acquire, EvictPolicy, MemberId
from dispatcher.store.base import StoreError
from gateway.config.groups import GroupSection
from gateway.core.share.sessions import ShareSession
from gateway.windows.window import Acquired, Window
from tests.rig.node_parts import GROUP, Node, ScriptedStore, topology
from tests.rig.virtual_time import now_ms, run, settle, until

M1 = MemberId("m1")


def acquire(window: Window, session: ShareSession) -> Acquired | None:
    return window.acquire(Acquire(M1, session.session_id, 100, now_ms()))


async def filled(node: Node) -> None:
    """A member has joined; there are three records of as many keys."""
    node.log.produce(*(b"key-%d" % at for at in range(3)))
    node.beat()
    await settle()


def test_records_held_in_a_session_with_the_old_leader_come_back_after_the_grace() -> None:
    async def work() -> None:
        async with Node(topology=topology(leader=1)) as node:
            await filled(node)
            window = node.window()
            old = node.groups.sessions.open((1, GROUP, "m1"), 1, acknowledges=False)
            assert acquire(window, old) is not None
            node.change_topology(topology(leader=2))
            await asyncio.sleep(2)
            new = node.groups.sessions.open((2, GROUP, "m1"), 2, acknowledges=False)
            assert acquire(window, new) is None, "the old session may still have sent its answer"
            await asyncio.sleep(2)
            acquired = acquire(window, new)
            assert acquired is not None
            assert acquired.attempts == [2, 2, 2]

    run(work())


@pytest.mark.parametrize("what", ["lost", "reopened"])
def test_a_session_that_ends_while_the_window_is_away_is_over(what: str) -> None:
    async def work() -> None:
        async with Node() as node:
            await filled(node)
            window = node.window()
            session = node.groups.sessions.open((1, GROUP, "m1"), 1, acknowledges=False)
            acquired = acquire(window, session)
            assert acquired is not None
            await acquired.persisted
            window.fail(StoreError("away"))
            if what == "lost":
                node.groups.connection_lost(1, now_ms())
                node.beat("m1", 1, connection=2)
            else:
                node.groups.sessions.open((1, GROUP, "m1"), 2, acknowledges=False)
            await until(lambda: window.dispatcher is not None)
            await asyncio.sleep(4)
            new = node.groups.sessions.open((1, GROUP, "m1"), 3, acknowledges=False)
            again = acquire(window, new)
            assert again is not None, "given back after the grace, not when the lock runs out"
            assert again.offsets == [0, 1, 2]

    run(work())


def test_a_member_that_leaves_while_the_window_is_away_and_closes_nothing_was_not_evicted() -> None:
    async def work() -> None:
        section = GroupSection(auto_offset_reset="earliest", on_evict=EvictPolicy.ACK)
        async with Node(section) as node:
            await filled(node)
            window = node.window()
            session = node.groups.sessions.open((1, GROUP, "m1"), 1, acknowledges=False)
            acquired = acquire(window, session)
            assert acquired is not None
            await acquired.persisted
            window.fail(StoreError("away"))
            node.beat("m1", -1)
            node.beat("m2", connection=2)
            await until(lambda: window.dispatcher is not None)
            await asyncio.sleep(4)
            other = node.groups.sessions.open((1, GROUP, "m2"), 2, acknowledges=False)
            event = Acquire(MemberId("m2"), other.session_id, 100, now_ms())
            again = window.acquire(event)
            assert again is not None, "what it had was not done"
            assert (again.offsets, again.attempts) == ([0, 1, 2], [2, 2, 2])

    run(work())


def test_a_session_of_before_a_restart_keeps_its_records() -> None:
    async def work() -> None:
        store = ScriptedStore()
        async with Node(store=store, boot="first") as node:
            await filled(node)
            session = node.groups.sessions.open((1, GROUP, "m1"), 1, acknowledges=False)
            acquired = acquire(node.window(), session)
            assert acquired is not None
            await acquired.persisted
        async with Node(store=store, boot="second") as node:
            await filled(node)
            await asyncio.sleep(10)
            assert acquire(node.window(), session) is None, "held until it is acknowledged"
            event = Acknowledge(M1, session.session_id, [(0, 2, b"\1")], now_ms())
            await node.window().ask(event)
            assert node.stored[node.window().key] == 3

    run(work())
