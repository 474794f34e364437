"""All windows of a node: round trips, commits, topics that change, stopping."""

from __future__ import annotations

import asyncio

import pytest
import structlog

from dispatcher.core.model import Acknowledge, Acquire, MemberId, SessionId
from dispatcher.store.base import FencedError, StoreError
from gateway.config.groups import GroupSection
from gateway.core.cluster.topology import Topology
from gateway.core.share.sessions import ShareSession
from gateway.core.wire.errors import ErrorCode
from gateway.windows.failures import WindowUnavailable
from gateway.windows.limits import TOPIC_UNUSED_MS
from gateway.windows.window import Acquired, Window
from keyway.commit_metadata.core.metadata import decode as decode_commit
from tests.rig.node_parts import GROUP, TOPIC, Node, ScriptedStore, topology
from tests.rig.virtual_time import now_ms, run, settle, until

M1, S1 = MemberId("m1"), SessionId("s1")
OTHER_ID = bytes(range(1, 17))


def acquire(window: Window, session: ShareSession | None = None) -> Acquired | None:
    session_id = S1 if session is None else session.session_id
    return window.acquire(Acquire(M1, session_id, 100, now_ms()))


async def filled(node: Node, partitions: int = 1, count: int = 3) -> None:
    """A member has joined; every partition has `count` records of as many keys."""
    for partition in range(partitions):
        node.log.produce(*(b"key-%d" % at for at in range(count)), partition=partition)
    node.beat()
    await settle()


async def accept(window: Window, *offsets: int) -> None:
    await window.ask(Acknowledge(M1, S1, [(o, o, b"\1") for o in offsets], now_ms()))


# -------------------------------------------------------------------------------------- round trips


def test_what_gathers_during_a_round_trip_goes_with_the_next_one() -> None:
    async def work() -> None:
        async with Node(topology=topology(4)) as node:
            await filled(node, 4)
            node.store.applied.clear()
            gate = node.store.gate = asyncio.Event()
            first = acquire(node.window(0))
            await settle()
            rest = [acquire(node.window(p)) for p in (1, 2, 3)]
            late = node.window(0).ask(Acknowledge(M1, S1, [(0, 0, b"\1")], now_ms()))
            await settle()
            assert [len(writes) for writes in node.store.applied] == [1]
            gate.set()
            await late
            assert [len(writes) for writes in node.store.applied] == [1, 4]
            assert all(acquired is not None and acquired.persisted.done() for acquired in rest)
            assert first is not None
            assert first.persisted.done()

    run(work())


def test_a_write_that_failed_for_a_moment_is_written_again() -> None:
    async def work() -> None:
        async with Node() as node:
            await filled(node)
            core = node.window().dispatcher
            node.store.failures = [StoreError("a dead connection")]
            before = len(node.store.applied)
            acquired = acquire(node.window())
            assert acquired is not None
            await acquired.persisted
            assert node.window().dispatcher is core, "nothing was thrown away"
            first, again = node.store.applied[before:]
            assert first == again

    run(work())


def test_a_write_that_arrived_but_was_not_answered_may_come_twice() -> None:
    class Deaf(ScriptedStore):
        async def apply(self, writes: object) -> list[StoreError | None]:
            applied = await super().apply(writes)  # type: ignore[arg-type]
            if len(self.applied) == self.deaf_at:
                return [StoreError("the answer was lost") for _ in applied]
            return applied

        deaf_at = 0

    async def work() -> None:
        store = Deaf()
        async with Node(store=store) as node:
            await filled(node)
            assert acquire(node.window()) is not None
            await settle()
            store.deaf_at = len(store.applied) + 1
            await accept(node.window(), 0, 1)
            assert node.stored[node.window().key] == 2

    run(work())


def test_a_store_that_stays_away_fails_the_windows_and_says_so_once() -> None:
    async def work() -> None:
        async with Node(topology=topology(5)) as node:
            await filled(node, 5)
            with structlog.testing.capture_logs() as logs:
                node.store.down = True
                taken = [acquire(node.window(p)) for p in range(5)]
                for acquired in taken:
                    assert acquired is not None
                    with pytest.raises(WindowUnavailable):
                        await acquired.persisted
                await asyncio.sleep(30)
                assert [line["event"] for line in logs if line["log_level"] != "debug"] == [
                    "store_away"
                ]
                node.store.down = False
                windows = node.windows.table.all()
                await until(lambda: all(w.dispatcher is not None for w in windows))
                assert "store_back" in [line["event"] for line in logs]
                assert "window_waits" not in [line["event"] for line in logs]
            await settle()
            again = acquire(node.window(4))
            assert again is not None
            assert again.attempts == [1, 1, 1], "nothing had been handed out"

    run(work())


def test_another_owner_is_no_store_that_is_away() -> None:
    async def work() -> None:
        async with Node() as node:
            await filled(node)
            before = len(node.store.applied)
            node.store.claim_now(node.window().key, "another node")
            acquired = acquire(node.window())
            assert acquired is not None
            with structlog.testing.capture_logs() as logs, pytest.raises(WindowUnavailable):
                await acquired.persisted
            assert len(node.store.applied) == before + 1, "not written again"
            assert "window_fenced" in [line["event"] for line in logs]

    run(work())


def test_a_cancelled_round_trip_leaves_no_window_waiting_for_it() -> None:
    async def work() -> None:
        async with Node() as node:
            await filled(node)
            window = node.window()
            node.store.gate = asyncio.Event()
            acquired = acquire(window)
            assert acquired is not None
            await settle()
            task = next(t for t in asyncio.all_tasks() if "persist_forever" in repr(t.get_coro()))
            task.cancel()
            with pytest.raises(WindowUnavailable):
                await acquired.persisted
            assert not window.life.busy

    run(work())


# ------------------------------------------------------------------------------ stopping


def test_stopping_waits_for_the_round_trip_under_way() -> None:
    async def work() -> None:
        async with Node() as node:
            await filled(node)
            window = node.window()
            gate = node.store.gate = asyncio.Event()
            acquired = acquire(window)
            assert acquired is not None
            late = window.ask(Acknowledge(M1, S1, [(0, 1, b"\1")], now_ms()))
            stopping = node.tasks.create_task(node.windows.stop())
            await settle()
            assert not stopping.done()
            gate.set()
            await stopping
            assert late.done()
            assert node.commits.committed[GROUP, 0].offset == 2
            assert node.windows.table.all() == []

    run(work())


def test_a_backlog_of_keys_that_nobody_accepts_does_not_delay_the_stop() -> None:
    async def work() -> None:
        section = GroupSection(auto_offset_reset="earliest", span_max=10, unmatched_wait_ms=0)
        async with Node(section) as node:
            node.filters = (b"accepted-*",)
            node.log.produce(*[b"other"] * 100_000)
            node.beat()
            await settle()
            await node.windows.stop()
            assert node.log.wishes == {}
            offset = node.commits.committed[GROUP, 0].offset
            assert 0 < offset < 5_000, "far from the end of the log"

    run(work())


def test_stopping_ends_while_the_store_is_away() -> None:
    async def work() -> None:
        async with Node(topology=topology(3)) as node:
            await filled(node, 3)
            node.store.down = True
            for partition in range(3):
                acquire(node.window(partition))
            async with asyncio.timeout(10):
                await node.windows.stop()

    run(work())


def test_no_window_opens_while_stopping() -> None:
    async def work() -> None:
        async with Node() as node:
            await node.windows.stop()
            node.beat()
            node.change_topology(topology(3))
            assert node.windows.table.all() == []

    run(work())


# ------------------------------------------------------------------------------ commits


def test_only_what_is_in_the_store_is_committed() -> None:
    async def work() -> None:
        async with Node() as node:
            await filled(node)
            window = node.window()
            acquire(window)
            await accept(window, 0, 2)
            node.store.failures = [FencedError("another node")]
            window.ask(Acknowledge(M1, S1, [(1, 1, b"\1")], now_ms()))
            await node.windows.committer.commit()
            assert (GROUP, 0) not in node.commits.committed, "nothing it may speak for"
            await until(lambda: window.dispatcher is not None)
            await settle()
            await node.windows.committer.commit()
            committed = node.commits.committed[GROUP, 0]
            assert committed.offset == 1
            assert decode_commit(committed.offset, committed.metadata) == [(2, 2)]

    run(work())


def test_what_is_committed_is_not_committed_again() -> None:
    async def work() -> None:
        async with Node(topology=topology(2)) as node:
            await filled(node, 2)
            await node.windows.committer.commit()
            assert [len(r) for r in node.commits.requests] == [2], "both of the group in one"
            await node.windows.committer.commit()
            assert len(node.commits.requests) == 1
            acquire(node.window(1))
            await accept(node.window(1), 0)
            await node.windows.committer.commit()
            assert [c.tp.partition for c in node.commits.requests[-1]] == [1]

    run(work())


def test_a_commit_that_fails_is_tried_again_and_said_once() -> None:
    async def work() -> None:
        async with Node() as node:
            await filled(node)
            node.commits.errors = [int(ErrorCode.UNKNOWN_MEMBER_ID)] * 3
            with structlog.testing.capture_logs() as logs:
                for _ in range(5):
                    await node.windows.committer.commit()
            said = [line["event"] for line in logs if line["event"].startswith("commit")]
            assert said == ["commit_failed", "commit_works_again"]
            assert len(node.commits.requests) == 4
            assert node.commits.committed[GROUP, 0].offset == 0

    run(work())


# ------------------------------------------------------------------------------- topics and leaders


@pytest.mark.parametrize("reset", ["latest", "earliest"])
def test_a_partition_added_while_the_group_reads_is_read_from_its_start(reset: str) -> None:
    async def work() -> None:
        async with Node(GroupSection(auto_offset_reset=reset), topology=topology(1)) as node:
            await filled(node)
            node.log.produce(b"early", partition=1)
            node.change_topology(topology(2))
            await settle()
            node.fetch()
            await settle()
            acquired = acquire(node.window(1))
            assert acquired is not None
            assert acquired.offsets == [0]

    run(work())


def test_a_group_that_comes_later_starts_at_the_end_of_all_partitions() -> None:
    async def work() -> None:
        async with Node(GroupSection(auto_offset_reset="latest"), topology=topology(1)) as node:
            node.change_topology(topology(2))
            await filled(node, 2)
            assert acquire(node.window(1)) is None

    run(work())


def test_a_recreated_topic_is_another_one() -> None:
    async def work() -> None:
        async with Node(topology=topology(2)) as node:
            await filled(node, 2)
            old = node.window(0)
            acquire(old)
            node.change_topology(topology(2, topic_id=OTHER_ID))
            node.fetch()
            await settle()
            assert old.dispatcher is None
            assert node.window(0) is not old
            assert node.window(0).key.topic_id != old.key.topic_id
            assert len(node.windows.table.all()) == 2

    run(work())


def test_a_deleted_topic_takes_its_windows_along_and_may_come_back() -> None:
    async def work() -> None:
        async with Node() as node:
            await filled(node)
            acquire(node.window())
            await accept(node.window(), 0)
            assert not node.windows.news.waits_for_topics()
            node.change_topology(topology(error=3))
            assert node.windows.table.all() == []
            assert node.windows.news.waits_for_topics(), "upstream is asked again soon"
            node.change_topology(topology())
            node.fetch()
            await until(lambda: node.window().dispatcher is not None)
            assert node.stored[node.window().key] == 1, "it was only a broker that knew nothing"

    run(work())


def test_a_member_that_joins_before_its_topic_exists_gets_it_when_it_does() -> None:
    async def work() -> None:
        async with Node(topology=topology(error=3)) as node:
            node.beat()
            assert node.windows.table.all() == []
            node.change_topology(topology(2))
            node.fetch()
            await settle()
            assert len(node.windows.table.all()) == 2

    run(work())


@pytest.mark.parametrize("shown", [topology(1), topology(2, error=29)], ids=["fewer", "refused"])
def test_members_that_come_while_upstream_shows_less_are_told_to_all_windows(
    shown: Topology,
) -> None:
    async def work() -> None:
        async with Node(topology=topology(2)) as node:
            node.beat()
            await settle()
            node.beat("m1", -1)
            await settle()
            node.change_topology(shown)
            node.beat("m2")
            node.change_topology(topology(2))
            await settle()
            for partition in (0, 1):
                core = node.window(partition).dispatcher
                assert core is not None
                assert [member.member_id for member in core.members] == ["m2"]

    run(work())


# ------------------------------------------------------------------------------ topics without use


def test_topics_that_nobody_uses_leave_the_view_in_time() -> None:
    async def work() -> None:
        async with Node(topology=topology(error=3)) as node:
            await asyncio.sleep(TOPIC_UNUSED_MS / 1000 + 1)
            assert node.unwatched == [], "somebody may be about to join"
            epoch = node.beat()
            for _ in range(TOPIC_UNUSED_MS // 10_000 * 2):
                await asyncio.sleep(10)
                node.beat("m1", epoch)
            assert node.unwatched == [], "a member waits for it"
            node.beat("m1", -1)
            await asyncio.sleep(2 * TOPIC_UNUSED_MS / 1000 + 1)
            assert set(node.unwatched) == {TOPIC}
            node.beat("m2")
            assert node.unwatched == [], "watched again before anything is asked"

    run(work())


def test_names_that_no_topic_has_leave_the_view_too() -> None:
    """They are in no view, and were asked about for ever: beyond 100 MB of names no broker answered
    any more.
    """

    async def work() -> None:
        async with Node() as node:
            epoch = node.beat("m1", 0, TOPIC, "no-such-topic")
            node.watched.append("no-such-topic")
            node.beat("m1", epoch)
            for _ in range(TOPIC_UNUSED_MS // 10_000 * 3):
                await asyncio.sleep(10)
                node.beat("m1", epoch)
            assert node.unwatched == [], "the member waits for it"
            node.beat("m1", -1)
            await asyncio.sleep(2 * TOPIC_UNUSED_MS / 1000 + 1)
            assert "no-such-topic" in node.unwatched

    run(work())
