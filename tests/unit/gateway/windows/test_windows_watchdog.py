"""The watchdog of a node: six ticks of 500 ms to an eviction; and commits that gather for 5 s."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from dispatcher.core.model import Acknowledge, Acquire, MemberId, SessionId
from gateway.config.groups import GroupSection
from gateway.config.state import StateSection
from gateway.members.limits import TICK_MS
from gateway.windows.limits import (
    ASKED_AT_REST,
    OFFSETS_PER_TICK,
    TICKED_AT_ONCE,
    WINDOW_IDLE_MS_MAX,
)
from gateway.windows.window import Acquired, Window
from tests.rig.node_parts import GROUP, TOPIC, Node, topology
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
            committing = node.tasks.create_task(node.windows.committer.commit_forever())
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


# ------------------------------------------------------------------------------------------ at rest


class Ticks:
    """Counts the ticks of all windows."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.count = 0
        tick = Window.tick

        def counted(window: Window, now_ms: int, waiting: frozenset[MemberId]) -> int:
            self.count += 1
            return tick(window, now_ms, waiting)

        monkeypatch.setattr(Window, "tick", counted)


async def beaten(node: Node, seconds: int) -> None:
    """Time in which the member shows itself, and nothing else happens."""
    for _ in range(seconds // 5):
        await asyncio.sleep(5)
        node.beat("m1", 1)


def test_windows_in_which_nothing_happens_are_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """No tick, no commit; the store is asked about a few of them in turn."""

    async def work() -> None:
        ticks = Ticks(monkeypatch)
        async with Node(topology=topology(40)) as node:
            committing = node.tasks.create_task(node.windows.committer.commit_forever())
            for partition in range(40):
                node.log.produce(b"a", b"b", partition=partition)
            node.beat()
            await beaten(node, 40)  # m1 fetches nothing: it is silent by now
            commits, ticks.count = len(node.commits.requests), 0
            node.store.applied.clear()
            await beaten(node, 60)
            assert ticks.count == 0
            assert len(node.commits.requests) == commits
            asked = [write.key.partition for writes in node.store.applied for write in writes]
            assert len(asked) == 12 * ASKED_AT_REST, "with each commit"
            assert set(asked) == set(range(40)), "each has its turn"
            committing.cancel()

    run(work())


def test_a_window_at_rest_is_ticked_when_a_lock_is_over(monkeypatch: pytest.MonkeyPatch) -> None:
    async def work() -> None:
        ticks = Ticks(monkeypatch)
        async with Node() as node:
            node.log.produce(b"a")
            node.beat()
            await settle()
            assert acquire(node, "m1") is not None
            await ticks_over(ticks, node, 25)
            assert acquire(node, "m1") is None
            await beaten(node, 10)
            again = acquire(node, "m1")
            assert again is not None
            assert again.attempts == [2]

    async def ticks_over(ticks: Ticks, node: Node, seconds: int) -> None:
        await beaten(node, 5)
        ticks.count = 0
        await beaten(node, seconds - 5)
        assert ticks.count == 0, "until the lock is over"

    assert GroupSection().lock_duration_ms == 30_000
    run(work())


def test_settings_that_make_room_reach_a_window_at_rest() -> None:
    async def work() -> None:
        section = GroupSection(auto_offset_reset="earliest", window_records=2)
        async with Node(section) as node:
            node.log.produce(b"a", b"b", b"c", b"d")
            node.beat()
            await beaten(node, 10)
            core = node.window().dispatcher
            assert core is not None
            assert core.read_position == 2
            node.windows.news.settings_changed(
                GROUP, section.model_copy(update={"window_records": 4})
            )
            await ticks(1)
            assert core.read_position == 4

    run(work())


def test_a_store_that_was_flushed_while_nothing_happens_is_found_out() -> None:
    """By the few windows that ask it; then all do, and are written again."""

    async def work() -> None:
        async with Node(topology=topology(40)) as node:
            heard: list[int] = []
            node.windows.persister.when_lost = lambda: heard.append(now_ms())
            committing = node.tasks.create_task(node.windows.committer.commit_forever())
            node.beat()
            await beaten(node, 20)
            assert len(node.stored) == 40
            node.store.flush()
            assert not node.stored
            assert not heard
            await beaten(node, 15)
            assert len(node.stored) == 40
            assert 1 <= len(heard) <= 3, "not of each window"
            committing.cancel()

    run(work())


def test_a_window_of_a_topic_that_left_the_view_leaves_memory_without_members() -> None:
    async def work() -> None:
        async with Node() as node:
            node.beat()
            await settle()
            await node.windows.committer.commit()
            await ticks(1)
            await node.windows.committer.commit()
            node.topology = replace(node.topology, topics={})
            node.beat("m1", -1)
            await asyncio.sleep(WINDOW_IDLE_MS_MAX / 1000 + 1)
            assert node.windows.table.all() == []

    run(work())


def test_an_operators_window_without_members_leaves_memory_again() -> None:
    async def work() -> None:
        async with Node() as node:
            node.windows.table.open(GROUP, node.topology.topics[TOPIC], 0)
            await settle()
            await node.windows.committer.commit()
            assert len(node.windows.table.all()) == 1
            await asyncio.sleep(WINDOW_IDLE_MS_MAX / 1000 + 1)
            assert node.windows.table.all() == []

    run(work())


def test_full_windows_are_ticked_in_several_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    """A tick may route all records of a window anew: when a member falls silent, and when it is
    back.
    """
    partitions, records = 20, 2_048
    turn = 0
    passed: dict[int, int] = {}  # unsettled offsets of ticked windows, by turn
    tick = Window.tick

    def counted(window: Window, now_ms: int, waiting: frozenset[MemberId]) -> int:
        passed[turn] = passed.get(turn, 0) + window.unsettled_span
        return tick(window, now_ms, waiting)

    async def count_turns() -> None:
        nonlocal turn
        while True:
            turn += 1
            await asyncio.sleep(0)

    async def work() -> None:
        async with Node(topology=topology(partitions)) as node:
            for partition in range(partitions):
                node.log.records[partition] = [b"key-%d" % at for at in range(records)]
            node.beat()
            await settle()
            for window in node.windows.table.all():
                node.windows.table.ticks.stir(window)
            monkeypatch.setattr(Window, "tick", counted)
            ticking = node.tasks.create_task(node.windows.watchdog._tick(now_ms()))
            counting = node.tasks.create_task(count_turns())
            await ticking
            counting.cancel()

    run(work())
    assert sum(passed.values()) == partitions * records
    assert max(passed.values()) < TICKED_AT_ONCE * OFFSETS_PER_TICK + records
