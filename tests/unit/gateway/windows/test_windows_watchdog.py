"""The watchdog of a node: six ticks of 500 ms to an eviction; and commits that gather for 5 s."""

from __future__ import annotations

import asyncio

from dispatcher.core.model import Acknowledge, Acquire, MemberId, SessionId
from gateway.config import GroupSection, StateSection
from gateway.members.limits import TICK_MS
from gateway.windows.window import Acquired
from tests.rig.node_parts import GROUP, TOPIC, Node
from tests.rig.virtual_time import now_ms, run, settle


def acquire(node: Node, member: str) -> Acquired | None:
    event = Acquire(MemberId(member), SessionId(member), 2_000, now_ms())
    return node.window().acquire(event)


async def ticks(count: int) -> None:
    """Lets the next `count` ticks happen, from just after one to just after another."""
    await asyncio.sleep(count * TICK_MS / 1000)
    await settle()


def test_a_member_without_a_connection_is_evicted_at_the_sixth_tick() -> None:
    """By default, and its records go out again in that very step."""

    async def work() -> None:
        async with Node() as node:
            node.log.produce(b"a", b"b", b"c")
            node.beat("m1", connection=1)
            await settle()
            assert acquire(node, "m1") is not None
            node.beat("m2", connection=2)
            await ticks(1)
            node.groups.connection_lost(1, now_ms())
            await ticks(5)
            assert [m.member_id for m in node.groups.members(GROUP, TOPIC)] == ["m1", "m2"]
            assert acquire(node, "m2") is None
            await ticks(1)
            assert [m.member_id for m in node.groups.members(GROUP, TOPIC)] == ["m2"]
            again = acquire(node, "m2")
            assert again is not None
            assert (again.offsets, again.attempts) == ([0, 1, 2], [2, 2, 2])

    assert (TICK_MS, GroupSection().disconnect_grace_ms) == (500, 6 * 500)
    run(work())


def test_what_is_settled_within_five_seconds_is_one_commit() -> None:
    """Redis has every step at once; it is Kafka that hears of them together, and at the stop."""

    async def work() -> None:
        async with Node() as node:
            committing = node.tasks.create_task(node.windows.commit_forever())
            node.log.produce(*(b"key-%d" % at for at in range(1_000)))
            node.beat("m1", connection=1)
            epoch = 1
            await settle()
            key = node.window().key
            assert acquire(node, "m1") is not None
            await asyncio.sleep(0.05)  # beside the commits
            for second in range(12):
                for part in range(10):
                    offset = second * 10 + part
                    batch = [(offset, offset, b"\1")]
                    event = Acknowledge(MemberId("m1"), SessionId("m1"), batch, now_ms())
                    await node.window().ask(event)
                    assert node.stored[key] == offset + 1, "each step at once"
                    await asyncio.sleep(0.1)
                node.beat("m1", epoch)
            assert [commit.offset for (commit,) in node.commits.requests] == [50, 100]
            await asyncio.sleep(10)
            assert [commit.offset for (commit,) in node.commits.requests] == [50, 100, 120]
            event = Acknowledge(MemberId("m1"), SessionId("m1"), [(120, 120, b"\1")], now_ms())
            node.window().post(event)
            await node.windows.stop()
            assert node.commits.requests[-1][0].offset == 121, "forced by the stop"
            committing.cancel()

    assert StateSection().commit_interval_ms == 5_000
    run(work())
