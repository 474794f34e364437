"""One window: its answers while it is away, their time, and its return."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest
import structlog

from dispatcher.core.model import (
    Acknowledge,
    AckType,
    Acquire,
    Member,
    MemberId,
    NotSent,
    SessionId,
)
from dispatcher.core.steps import AckResult, Notice
from dispatcher.store.base import Claimed, FencedError, StoreError, WindowGone, WindowKey
from gateway.config.groups import GroupSection
from gateway.core.reading.cache import RecordsReplaced
from gateway.core.wire.errors import ErrorCode
from gateway.upstream.commits import Committed
from gateway.upstream.errors import Refused, Unreachable
from gateway.windows.failures import WindowUnavailable
from gateway.windows.window import Acquired, Window
from keyway.commit_metadata.core.metadata import encode as encode_commit
from tests.rig.node_parts import GROUP, Node, ScriptedCommits, ScriptedStore
from tests.rig.virtual_time import now_ms, run, settle, until

M1, S1 = MemberId("m1"), SessionId("s1")
EARLIEST = GroupSection(auto_offset_reset="earliest")


def acquire(window: Window, records_max: int = 100, session: SessionId = S1) -> Acquired:
    acquired = window.acquire(Acquire(M1, session, records_max, now_ms()))
    assert acquired is not None
    return acquired


def members_of(window: Window) -> tuple[Member, ...]:
    core = window.dispatcher
    assert core is not None
    return core.members


def accept(*offsets: int, session: SessionId = S1, kind: AckType = AckType.ACCEPT) -> Acknowledge:
    return Acknowledge(M1, session, [(o, o, bytes([kind])) for o in offsets], now_ms())


def story(
    tell: Callable[[Node], Awaitable[None]],
    section: GroupSection | None = None,
    *keys: bytes,
    store: ScriptedStore | None = None,
    commits: ScriptedCommits | None = None,
) -> None:
    """A member has joined, the log holds `keys`, everything that can happen at once has."""

    async def work() -> None:
        async with Node(section, store=store, commits=commits) as node:
            node.log.produce(*(keys or (b"a", b"b", b"c")))
            node.beat()
            await settle()
            await tell(node)

    run(work())


def test_an_acknowledgement_is_answered_once_it_is_in_the_store() -> None:
    async def tell(node: Node) -> None:
        window = node.window()
        await acquire(window).persisted
        gate = node.store.gate = asyncio.Event()
        answer = window.ask(accept(0, 1))
        await settle()
        assert node.stored[window.key] == 2, "the store has it and has not said so yet"
        assert not answer.done()
        gate.set()
        (result,) = [e for e in await answer if isinstance(e, AckResult)]
        assert result.errors == [None, None]

    story(tell)


def test_an_event_without_changes_waits_for_those_before_it() -> None:
    async def tell(node: Node) -> None:
        window = node.window()
        gate = node.store.gate = asyncio.Event()
        acquired = acquire(window)
        refused = window.ask(
            accept(7)
        )  # changes nothing, but comes after a step that is not safe yet
        await settle()
        assert not acquired.persisted.done()
        assert not refused.done()
        gate.set()
        await refused
        assert acquired.persisted.done()

    story(tell)


def test_nothing_is_acquired_from_a_window_that_has_nothing() -> None:
    async def tell(node: Node) -> None:
        window = node.window()
        await acquire(window).persisted
        assert window.acquire(Acquire(M1, S1, 100, now_ms())) is None
        assert window.acquire(Acquire(MemberId("stranger"), S1, 100, now_ms())) is None

    story(tell)


def test_while_it_is_away_it_says_so_and_keeps_nothing() -> None:
    async def work() -> None:
        async with Node() as node:
            node.store.down = True
            node.beat()
            await settle()
            window = node.window()
            assert window.dispatcher is None
            with pytest.raises(WindowUnavailable):
                await window.ask(accept(0))
            assert window.acquire(Acquire(M1, S1, 1, now_ms())) is None
            window.post(accept(0))
            assert not window.life.busy
            node.store.down = False
            await until(lambda: window.dispatcher is not None)
            assert [m.member_id for m in members_of(window)] == ["m1"]

    run(work())


class CountingStore(ScriptedStore):
    """Notes when it is asked; `claim` raises the chosen error."""

    def __init__(self, failure: Exception | None = None) -> None:
        super().__init__()
        self.failure = failure
        self.claimed_at: list[int] = []

    async def claim(self, key: WindowKey, owner: str, generation: int = 0) -> Claimed:
        self.claimed_at.append(now_ms())
        if self.failure is not None:
            raise type(self.failure)(*self.failure.args)
        return await super().claim(key, owner, generation)


@pytest.mark.parametrize("failure", [StoreError("away"), RuntimeError("a bug")], ids=str)
def test_loading_is_tried_again_ever_more_slowly_and_costs_nobody_else(failure: Exception) -> None:
    store = CountingStore(failure)

    async def work() -> None:
        async with Node(store=store) as node:
            node.beat()
            await asyncio.sleep(20)
            waits = [b - a for a, b in zip(store.claimed_at, store.claimed_at[1:], strict=False)]
            assert waits[:7] == pytest.approx([100, 200, 400, 800, 1_600, 3_200, 5_000], abs=2)
            store.failure = None
            await until(lambda: node.window().dispatcher is not None)

    run(work())


def test_one_that_breaks_as_soon_as_it_is_up_is_not_loaded_ten_times_a_second() -> None:
    store = CountingStore()

    async def tell(node: Node) -> None:
        for _ in range(6):
            await until(lambda: node.window().dispatcher is not None)
            node.window().fail(RuntimeError("again"))
        waits = [b - a for a, b in zip(store.claimed_at, store.claimed_at[1:], strict=False)]
        await until(lambda: node.window().dispatcher is not None)
        assert waits[:5] == pytest.approx([100, 200, 400, 800, 1_600], abs=20)
        await asyncio.sleep(6)
        node.window().fail(RuntimeError("after a good while"))
        before = now_ms()
        await until(lambda: node.window().dispatcher is not None)
        assert now_ms() - before <= 3_300

    story(tell, store=store)


@pytest.mark.parametrize("failure", [FencedError("other"), WindowGone("flushed")], ids=str)
def test_what_was_not_persisted_is_told_so_and_comes_again(failure: StoreError) -> None:
    async def tell(node: Node) -> None:
        window = node.window()
        node.store.failures = [failure]
        acquired = acquire(window)
        waiting = window.ask(accept(0))
        with pytest.raises(WindowUnavailable):
            await acquired.persisted
        with pytest.raises(WindowUnavailable):
            await waiting
        await until(lambda: window.dispatcher is not None)
        await settle()
        assert acquire(window).attempts == [1, 1, 1], "nobody has seen them"

    story(tell)


def test_from_kafka_when_the_store_has_lost_it() -> None:
    commits = ScriptedCommits()
    commits.committed[GROUP, 0] = Committed(1, -1, encode_commit(1, [(2, 2)]))

    async def tell(node: Node) -> None:
        window = node.window()
        assert acquire(window).offsets == [1], "0 is below the cursor, 2 was settled"
        node.store.flush()
        with pytest.raises(WindowUnavailable):
            await window.ask(accept(1))
        await until(lambda: window.dispatcher is not None)
        await settle()
        assert acquire(window).offsets == [1]

    story(tell, commits=commits)


def test_metadata_of_somebody_else_means_everything_from_the_offset_on() -> None:
    commits = ScriptedCommits()
    commits.committed[GROUP, 0] = Committed(1, -1, "not ours")

    async def tell(node: Node) -> None:
        assert acquire(node.window()).offsets == [1, 2]

    story(tell, commits=commits)


def test_leases_outlive_a_rebuilt_window_and_can_be_acknowledged() -> None:
    async def tell(node: Node) -> None:
        window = node.window()
        await acquire(window, 2).persisted
        window.fail(StoreError("gone for a moment"))
        await until(lambda: window.dispatcher is not None)
        await window.ask(accept(0, 1))
        assert node.stored[window.key] == 2
        await settle()
        assert acquire(window).offsets == [2]

    story(tell)


def test_an_answer_of_the_store_to_a_core_that_is_gone_means_nothing() -> None:
    async def tell(node: Node) -> None:
        window = node.window()
        gate = node.store.gate = asyncio.Event()
        acquired = acquire(window)
        await settle()
        window.fail(RuntimeError("meanwhile"))
        node.store.gate = None
        gate.set()
        with pytest.raises(WindowUnavailable):
            await acquired.persisted
        await until(lambda: window.dispatcher is not None)
        await until(lambda: not window.life.busy)

    story(tell)


# ---------------------------------------------------------------------------------------- the log


def test_retention_that_passed_the_cursor_moves_it() -> None:
    async def work() -> None:
        async with Node(commits=ScriptedCommits()) as node:
            node.commits.committed[GROUP, 0] = Committed(0, -1, "")
            node.log.starts[0] = 2
            node.beat()
            await settle()
            node.log.refuse(ErrorCode.OFFSET_OUT_OF_RANGE, log_end=3)
            await settle()
            node.log.produce(b"a", b"b", b"c")
            await settle()
            assert acquire(node.window()).offsets == [2]

    run(work())


def test_a_log_that_has_lost_its_tail_is_read_from_its_end() -> None:
    async def tell(node: Node) -> None:
        window = node.window()
        core = window.dispatcher
        assert core is not None
        assert core.read_position == 3
        node.log.records[0] = [b"x"]
        with structlog.testing.capture_logs() as logs:
            node.log.refuse(ErrorCode.OFFSET_OUT_OF_RANGE, log_end=1)
        assert [line["event"] for line in logs][:1] == ["log_tail_lost"]
        await until(lambda: window.dispatcher is not None)
        await settle()
        assert acquire(window).offsets == [0]
        assert node.stored[window.key] == 0

    story(tell)


def test_records_that_were_replaced_are_not_handed_out_under_their_old_keys() -> None:
    """The window has read them, and they have left the cache."""

    async def tell(node: Node) -> None:
        window = node.window()
        acquired = acquire(window, 1)
        await acquired.persisted
        node.log.elect(0)
        node.log.records[0] = [b"x", b"x", b"x", b"x"]
        with pytest.raises(RecordsReplaced):
            await node.log.bytes_for(window.source, acquired.offsets, 9, 99, window.epoch_max)
        await window.replaced(NotSent(M1, S1, acquired.offsets, now_ms()))
        await until(lambda: window.ready_for(M1, now_ms()) > 0)
        assert acquire(window).offsets == [0], "one after the other: they are of one key"

    story(tell)


def test_a_read_that_is_refused_for_good_loads_the_window_again() -> None:
    async def tell(node: Node) -> None:
        window = node.window()
        node.log.refuse(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
        assert window.dispatcher is None
        await until(lambda: window.dispatcher is not None)
        await settle()
        assert len(node.log.wishes) == 1, "and reads on"

    story(tell)


@pytest.mark.parametrize(
    ("reset", "start"), [("earliest", 0), ("latest", 3), ("by_duration:PT1H", 3)]
)
def test_where_a_group_starts(reset: str, start: int) -> None:
    async def tell(node: Node) -> None:
        core = node.window().dispatcher
        assert core is not None
        assert core.cursor == start

    story(tell, GroupSection(auto_offset_reset=reset))


def test_where_kafka_says_wins() -> None:
    async def work() -> None:
        async with Node(GroupSection(auto_offset_reset="latest")) as node:
            node.kafka_config = {"share.auto.offset.reset": "earliest"}
            node.log.produce(b"a", b"b")
            node.beat()
            await settle()
            assert acquire(node.window()).offsets == [0, 1]

    run(work())


def test_a_group_whose_configs_we_may_not_see_follows_keyway_yaml() -> None:
    async def work() -> None:
        async with Node(EARLIEST) as node:
            node.config_failure = Refused(ErrorCode.GROUP_AUTHORIZATION_FAILED, "configuration")
            node.log.produce(b"a", b"b")
            node.beat()
            await settle()
            assert acquire(node.window()).offsets == [0, 1]

    run(work())


def test_upstream_that_is_away_delays_the_start() -> None:
    async def work() -> None:
        async with Node(EARLIEST) as node:
            node.config_failure = node.commits.failure = Unreachable("no broker")
            node.beat()
            await asyncio.sleep(1)
            assert node.window().dispatcher is None
            node.config_failure = node.commits.failure = None
            await until(lambda: node.window().dispatcher is not None)

    run(work())


# -------------------------------------------------------------------------------- settings


def test_settings_that_change_reach_a_window_that_is_up() -> None:
    async def tell(node: Node) -> None:
        window = node.window()
        core = window.dispatcher
        node.kafka_config = {"share.record.lock.duration.ms": "1000"}
        await node.settings.learn(GROUP)
        assert window.dispatcher is core, "not loaded again for it"
        await acquire(window).persisted
        await until(lambda: any(n.notice is Notice.TIMED_OUT for n in node.noticed), within_s=2)

    story(tell)


def test_settings_that_change_while_the_window_is_loading_count() -> None:
    async def work() -> None:
        store = SlowStore()
        async with Node(store=store) as node:
            node.log.produce(b"a")
            node.beat()
            await settle()
            node.kafka_config = {
                "share.record.lock.duration.ms": "1000",
                "share.isolation.level": "read_uncommitted",
            }
            await node.settings.learn(GROUP)
            store.claim_gate.set()
            await settle()
            window = node.window()
            assert window.section.isolation_level == "read_uncommitted"
            await acquire(window).persisted
            await until(lambda: any(n.notice is Notice.TIMED_OUT for n in node.noticed), within_s=2)

    run(work())


class SlowStore(ScriptedStore):
    """`claim` waits to be let go."""

    def __init__(self) -> None:
        super().__init__()
        self.claim_gate = asyncio.Event()

    async def claim(self, key: WindowKey, owner: str, generation: int = 0) -> Claimed:
        await self.claim_gate.wait()
        return await super().claim(key, owner, generation)


def test_another_isolation_level_loads_the_window_again() -> None:
    async def tell(node: Node) -> None:
        window = node.window()
        core = window.dispatcher
        node.kafka_config = {"share.isolation.level": "READ_UNCOMMITTED"}
        await node.settings.learn(GROUP)
        await until(lambda: window.dispatcher is not None)
        assert window.dispatcher is not core
        await settle()
        assert len(node.log.wishes) == 1, "the old read is withdrawn"

    story(tell)


# -------------------------------------------------------------------------------- bugs


def test_a_bug_in_the_core_costs_its_window_a_rebuild() -> None:
    async def tell(node: Node) -> None:
        window = node.window()
        bad = Acknowledge(M1, S1, [("no", "numbers", b"\1")], now_ms())  # type: ignore[list-item]
        with structlog.testing.capture_logs() as logs, pytest.raises(WindowUnavailable):
            await window.ask(bad)
        assert logs[0]["event"] == "dispatcher_bug"
        await until(lambda: window.dispatcher is not None)
        await settle()
        assert acquire(window).offsets == [0, 1, 2]

    story(tell)


def test_closed_means_no_answer_and_no_rebuild() -> None:
    async def tell(node: Node) -> None:
        window = node.window()
        gate = node.store.gate = asyncio.Event()
        acquired = acquire(window)
        await settle()
        node.windows.table.drop(window.key)
        gate.set()
        with pytest.raises(WindowUnavailable):
            await acquired.persisted
        await asyncio.sleep(10)
        assert window.dispatcher is None

    story(tell)
