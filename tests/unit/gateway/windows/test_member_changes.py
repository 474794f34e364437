"""Members that come and go while some windows have not heard of the last change."""

from __future__ import annotations

import asyncio

import pytest

from dispatcher.core.model import Acquire, Event, MemberId, MembersChanged, Reason, SessionId
from gateway.windows import member_changes
from gateway.windows.window import Window
from tests.rig.node_parts import GROUP, Node, topology
from tests.rig.virtual_time import now_ms, run, settle, until

PARTITIONS = 3
Heard = list[tuple[int, str, Reason]]  # partition, members, why some are gone


@pytest.fixture
def heard(monkeypatch: pytest.MonkeyPatch) -> Heard:
    """The news of windows, one window a turn of the loop."""
    told: Heard = []
    post = Window.post

    def tell(window: Window, event: Event) -> None:
        if isinstance(event, MembersChanged):
            members = " ".join(member.member_id for member in event.members)
            told.append((window.key.partition, members, event.reason))
        post(window, event)

    monkeypatch.setattr(member_changes, "MEMBER_CHANGES_AT_ONCE", 1)
    monkeypatch.setattr(Window, "post", tell)
    return told


async def joined(node: Node, heard: Heard) -> None:
    node.beat("m1")
    await settle()
    assert [know(node, partition) for partition in range(PARTITIONS)] == ["m1"] * PARTITIONS
    heard.clear()


def know(node: Node, partition: int) -> str:
    core = node.window(partition).dispatcher
    return "-" if core is None else " ".join(member.member_id for member in core.members)


def test_windows_hear_of_a_join_one_after_the_other(heard: Heard) -> None:
    """One that has not heard of it serves those it knows, and wakes the newcomer when it has."""

    async def work() -> None:
        async with Node(topology=topology(PARTITIONS)) as node:
            await joined(node, heard)
            node.log.produce(*(b"key-%d" % number for number in range(20)), partition=2)
            await settle()
            node.beat("m2")
            assert [know(node, partition) for partition in range(PARTITIONS)] == [
                "m1 m2",
                "m1",
                "m1",
            ]
            late = node.window(2)
            asked = Acquire(MemberId("m2"), SessionId("s2"), 100, now_ms())
            assert late.acquire(asked) is None
            with node.ready.watch(GROUP, "m2", 1) as signal:
                await settle(2)
                assert know(node, 1) == "m1 m2"
                assert (know(node, 2), signal.is_set()) == ("m1", False)
                await asyncio.sleep(0)
                assert signal.is_set()
            acquired = late.acquire(asked)
            assert acquired is not None
            rest = late.acquire(Acquire(MemberId("m1"), SessionId("s1"), 100, now_ms()))
            assert rest is not None
            assert sorted(acquired.offsets + rest.offsets) == list(range(20))
            assert [partition for partition, _, _ in heard] == [0, 1, 2]

    run(work())


def test_what_comes_together_is_told_at_once(heard: Heard) -> None:
    async def work() -> None:
        async with Node(topology=topology(PARTITIONS)) as node:
            await joined(node, heard)
            for name in ("m2", "m3", "m4"):
                node.beat(name)
            node.beat("m2", -1)
            node.beat("m3", -1)
            await settle()
            assert [know(node, partition) for partition in range(PARTITIONS)] == ["m1 m4"] * 3
            assert heard == [
                (0, "m1 m2", Reason.MEMBER_LEFT),
                (1, "m1 m4", Reason.MEMBER_LEFT),
                (2, "m1 m4", Reason.MEMBER_LEFT),
                (0, "m1 m4", Reason.MEMBER_LEFT),
            ]

    run(work())


def test_that_a_member_was_gone_is_not_hidden(heard: Heard) -> None:
    """Its records go back with its leave, and it comes back as a newcomer."""

    async def work() -> None:
        async with Node(topology=topology(PARTITIONS)) as node:
            node.beat("m0")
            node.beat("m1")
            await settle()
            heard.clear()
            node.beat("m1", -1)
            node.beat("m2")
            node.beat("m1")
            await settle()
            told = {p: [who for part, who, _ in heard if part == p] for p in range(PARTITIONS)}
            both = ["m0 m2", "m0 m2 m1"]
            assert told == {0: ["m0", "m0 m2 m1"], 1: both, 2: both}

    run(work())


def test_why_members_went_is_not_mixed_up(heard: Heard) -> None:
    async def work() -> None:
        async with Node(topology=topology(PARTITIONS)) as node:
            for connection, name in enumerate(("m1", "m2", "m3")):
                node.beat(name, connection=connection)
            await settle()
            heard.clear()
            node.groups.connection_lost(1, now_ms())
            await node.evictions.tick(now_ms() + 10_000)  # m2 is evicted
            node.beat("m4")
            node.beat("m3", -1)
            await settle()
            assert [(who, why) for partition, who, why in heard if partition == 2] == [
                ("m1 m3 m4", Reason.MEMBER_EVICTED),
                ("m1 m4", Reason.MEMBER_LEFT),
            ]

    run(work())


def test_a_window_that_loads_meanwhile_is_not_told_what_was_before(heard: Heard) -> None:
    async def work() -> None:
        async with Node(topology=topology(PARTITIONS)) as node:
            await joined(node, heard)
            node.window(2).fail(RuntimeError("a test"))
            node.beat("m2")
            node.beat("m1", -1)
            await until(lambda: node.window(2).dispatcher is not None)
            assert know(node, 2) == "m2"
            await settle()
            assert [know(node, partition) for partition in range(PARTITIONS)] == ["m2"] * 3

    run(work())


def test_a_window_that_is_closed_is_told_no_more(heard: Heard) -> None:
    async def work() -> None:
        async with Node(topology=topology(PARTITIONS)) as node:
            await joined(node, heard)
            node.beat("m2")
            node.windows.table.drop(node.window(1).key)
            await settle()
            assert [partition for partition, _, _ in heard] == [0, 2]

    run(work())
