"""Retention that deletes records which wait, while their window reads nothing."""

from __future__ import annotations

import asyncio

from dispatcher.core.model import Acknowledge, AckType, Acquire, MemberId, PoisonPolicy, SessionId
from gateway.config.groups import GroupSection
from gateway.upstream.errors import UpstreamError
from gateway.windows.limits import LOG_STARTS_MS
from tests.rig.node_parts import Node, topology
from tests.rig.virtual_time import now_ms, run, settle

M1, S1 = MemberId("m1"), SessionId("s1")


def section(**options: int) -> GroupSection:
    return GroupSection(
        auto_offset_reset="earliest",
        rejected=PoisonPolicy.BLOCK,
        session_timeout_ms=600_000,
        **options,  # type: ignore[arg-type]
    )


def acquired(node: Node) -> list[int]:
    found = node.window().acquire(Acquire(M1, S1, 1_000, now_ms()))
    return [] if found is None else found.offsets


async def parked(node: Node) -> None:
    """The first record of the partition is parked, and more of its key wait."""
    node.beat("m1")
    await settle()
    assert acquired(node) == [0]
    reject = bytes([AckType.REJECT.value])
    await node.window().ask(Acknowledge(M1, S1, [(0, 0, reject)], now_ms()))
    await settle()


async def looks(count: int) -> None:
    for _ in range(count):
        await asyncio.sleep(LOG_STARTS_MS / 1000)
        await settle()


def test_a_window_without_room_goes_on_when_retention_has_taken_what_filled_it() -> None:
    async def work() -> None:
        async with Node(section(span_max=16, held_max=10)) as node:
            node.log.produce(*[b"poison"] * 200)
            await parked(node)
            core = node.window().dispatcher
            assert core is not None
            assert (core.read_position, node.log.wishes) == (26, {}), "it reads no further"
            node.log.starts[0] = 200
            node.log.produce(*[b"other-%d" % at for at in range(9)])
            await looks(2)
            assert acquired(node) == list(range(200, 209))
            assert (core.cursor, core.held().parked, core.holder) == (200, 0, -1)

    run(work())


def test_a_parked_record_that_retention_has_taken_is_parked_no_more() -> None:
    """Also if it was the last one of its partition."""

    async def work() -> None:
        async with Node(section()) as node:
            node.log.produce(b"poison")
            await parked(node)
            core = node.window().dispatcher
            assert core is not None
            node.log.starts[0] = 1
            await looks(2)
            assert (core.cursor, core.held().parked) == (1, 0)

    run(work())


def test_nobody_asks_for_windows_that_go_on_or_have_nothing() -> None:
    async def work() -> None:
        async with Node(section()) as node:
            node.beat("m1")
            await looks(3)
            node.log.produce(*[b"a"] * 100)
            await settle()
            for offset in range(4):
                assert acquired(node) == [offset]
                accept = bytes([AckType.ACCEPT.value])
                await node.window().ask(Acknowledge(M1, S1, [(offset, offset, accept)], now_ms()))
                await looks(1)
            assert node.asked_starts == []
            await looks(1)
            assert node.asked_starts == [1], "its leader"

    run(work())


def test_a_leader_that_does_not_answer_is_asked_again() -> None:
    async def work() -> None:
        async with Node(section()) as node:
            node.log.produce(b"poison")
            await parked(node)
            node.log.starts[0] = 1
            node.refresh_failure = UpstreamError("away")
            await looks(2)
            core = node.window().dispatcher
            assert core is not None
            assert core.cursor == 0
            node.refresh_failure = None
            node.change_topology(topology(brokers=(2,)))
            await looks(1)
            assert core.cursor == 0, "nobody leads it"
            node.change_topology(topology())
            await looks(1)
            assert core.cursor == 1

    run(work())
