"""Groups: the effects of a heartbeat, a lost connection and the watchdog."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from functools import partial

import pytest
import structlog

from dispatcher.core.model import Acquire, MemberId
from gateway.config.groups import GroupSection
from gateway.core.share.errors import FencedMemberEpoch, GroupError, GroupFull, UnknownMember
from gateway.core.share.membership import Heartbeat, ShareGroup
from gateway.members import evictions
from gateway.members.groups import TopicMembersChanged
from gateway.members.limits import GROUP_EMPTY_MS_MAX, RESTART_GRACE_MS, TICK_MS
from gateway.members.saved_members import SavedGroup
from tests.rig.node_parts import GROUP, TOPIC, Node, topology
from tests.rig.virtual_time import now_ms, run, settle

QUICK = GroupSection(
    auto_offset_reset="earliest",
    session_timeout_ms=10_000,
    heartbeat_interval_ms=1_000,
    disconnect_grace_ms=3_000,
)


def names(node: Node) -> list[str]:
    return [member.member_id for member in node.groups.members(GROUP, TOPIC)]


async def beating(node: Node, member: str, epoch: int, seconds: int, connection: int = 1) -> None:
    for _ in range(seconds):
        node.beat(member, epoch, connection=connection)
        await asyncio.sleep(1)


def test_joining_and_leaving_reach_the_windows() -> None:
    async def work() -> None:
        async with Node() as node:
            node.beat("m1")
            node.beat("m2")
            await settle()
            core = node.window().dispatcher
            assert core is not None
            assert [m.member_id for m in core.members] == ["m1", "m2"]
            node.beat("m1", -1)
            assert [m.member_id for m in core.members] == ["m2"]
            assert [len(group.members) for group in node.changed] == [1, 1, 1]

    run(work())


def test_a_join_asks_for_the_key_filters_of_each_member_once() -> None:
    """Not once for each topic: a thousand of both are allowed."""
    topics = tuple(f"topic-{at:02}" for at in range(20))
    asked: list[str] = []
    told: list[TopicMembersChanged] = []

    def filters(_group: str, client: str) -> tuple[bytes, ...]:
        asked.append(client)
        return ()

    async def work() -> None:
        async with Node() as node:
            node.groups.key_filters = filters
            node.groups.on_topic_members(told.append)
            for member in ("m1", "m2"):
                node.beat(member, 0, *topics, fetches=False)
            asked.clear()
            told.clear()
            node.beat("m3", 0, *topics, fetches=False)

    run(work())
    assert asked.pop(0) == "client-m3", "before it may join"
    assert sorted(asked) == ["client-m1", "client-m2", "client-m3"]
    assert [one.topic for one in told] == list(topics)
    assert {one.members for one in told} == {told[0].members}


def test_a_member_that_comes_or_goes_is_told_in_its_own_topics_alone() -> None:
    """A group may have 20,000 topics, and each is looked at: seconds for each join."""
    told: list[TopicMembersChanged] = []

    def heard(node: Node, member: str, epoch: int, *topics: str) -> list[str]:
        told.clear()
        node.beat(member, epoch, *topics, fetches=False)
        return sorted(one.topic for one in told)

    async def work() -> None:
        async with Node() as node:
            node.groups.on_topic_members(told.append)
            assert heard(node, "m1", 0, "a", "b") == ["a", "b"]
            assert heard(node, "m2", 0, "b", "c") == ["b", "c"]
            assert heard(node, "m2", 0, "c", "d") == ["b", "c", "d"]
            assert heard(node, "m1", -1) == ["a", "b"]

    run(work())


def test_a_heartbeat_goes_through_no_topics() -> None:
    """A thousand members with a thousand topics each beat 200 times a second."""

    async def work() -> None:
        async with Node() as node:
            node.beat("m1", fetches=False)
            group = node.groups.get(GROUP)
            member = node.groups.member(GROUP, "m1")
            assert group is not None
            assert member is not None
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(ShareGroup, "topics", None)
                patch.setattr(ShareGroup, "by_subscribers", None)
                node.beat("m1", member.epoch, fetches=False)

    run(work())


def test_a_silent_member_is_evicted_and_its_records_go_to_the_others() -> None:
    async def work() -> None:
        async with Node(QUICK) as node:
            node.log.produce(b"a", b"b", b"c")
            node.beat("m1", connection=1)
            await settle()
            session = node.groups.sessions.open((1, GROUP, "m1"), 1, acknowledges=False)
            event = Acquire(MemberId("m1"), session.session_id, 9, now_ms())
            assert node.window().acquire(event) is not None
            epoch = node.beat("m2", connection=2)
            await beating(node, "m2", epoch, 9, connection=2)
            assert names(node) == ["m1", "m2"]
            await beating(node, "m2", epoch, 2, connection=2)
            assert names(node) == ["m2"]
            assert len(node.groups.sessions) == 0
            other = node.groups.sessions.open((1, GROUP, "m2"), 2, acknowledges=False)
            event = Acquire(MemberId("m2"), other.session_id, 9, now_ms())
            acquired = node.window().acquire(event)
            assert acquired is not None
            assert acquired.offsets == [0, 1, 2]
            with pytest.raises(UnknownMember):
                node.beat("m1", 1)

    run(work())


def test_a_late_tick_evicts_nobody_who_could_not_be_heard() -> None:
    """The node was held up for two minutes; heartbeats of that time are still unread."""

    async def work() -> None:
        async with Node(QUICK) as node:
            node.beat("m1", connection=1)
            await asyncio.sleep(2)
            later_ms = now_ms() + 120_000
            await node.evictions.tick(later_ms)
            assert names(node) == ["m1"]
            # Silence counts again from here on: 10 s, of which two had passed before.
            for tick in range(1, 14):
                await node.evictions.tick(later_ms + tick * TICK_MS)
            assert names(node) == ["m1"]
            for tick in range(14, 20):
                await node.evictions.tick(later_ms + tick * TICK_MS)
            assert names(node) == []

    run(work())


def test_a_planned_stop_evicts_nobody_and_ends_no_session() -> None:
    """The node hangs up on idle clients at once, and may wait for a busy one for longer than the
    grace. With `on_evict: ack` that counted unacknowledged records as done.
    """

    async def work() -> None:
        async with Node(QUICK) as node:
            node.log.produce(b"a", b"b")
            node.beat("m1", connection=1)
            await settle()
            session = node.groups.sessions.open((1, GROUP, "m1"), 1, acknowledges=False)
            event = Acquire(MemberId("m1"), session.session_id, 9, now_ms())
            assert node.window().acquire(event) is not None
            node.groups.keep_members()
            node.groups.connection_lost(1, now_ms())
            await asyncio.sleep(QUICK.session_timeout_ms / 1000 + 5)
            assert names(node) == ["m1"]
            core = node.window().dispatcher
            assert core is not None
            assert core.stats().in_flight == 2

    run(work())


def test_evictions_of_many_groups_take_turns_and_end_with_a_planned_stop() -> None:
    """38 groups of 500 topics each were evicted in one go: nobody was answered for 100 ms."""

    async def work() -> None:
        async with Node(QUICK) as node:
            node.beat("m1")
            beat = Heartbeat("m2", 0, None, (TOPIC,), "client", "127.0.0.1", 1)
            node.groups.heartbeat("other", beat, node.topology.topics.get, now_ms())
            for at in range(1, 100):
                tick = node.evictions.tick(now_ms() + at * TICK_MS)
                with suppress(StopIteration):
                    tick.send(None)
                    break  # it has evicted the members of one group, and gives way
            node.groups.keep_members()
            with pytest.raises(StopIteration):
                tick.send(None)
            assert [len(group.members) for group in node.groups.all()] == [0, 1]

    run(work())


def test_a_connection_is_remembered_only_for_members_that_are_there() -> None:
    """A long connection on which members come and go must not gather their names."""

    async def work() -> None:
        async with Node(QUICK) as node:
            for at in range(50):
                node.beat(f"m{at}", connection=1)
                node.groups.connected(GROUP, f"m{at}", 2)
                node.beat(f"m{at}", -1, connection=1)
            node.groups.connected(GROUP, "nobody", 3)
            assert len(node.groups.carried) == 0
            node.beat("m", connection=1)
            node.groups.connected(GROUP, "m", 2)
            assert len(node.groups.carried) == 2
            await asyncio.sleep(QUICK.session_timeout_ms / 1000 + 1)
            assert names(node) == []
            assert len(node.groups.carried) == 0

    run(work())


def test_of_too_many_empty_groups_the_one_that_is_empty_for_longest_goes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(evictions, "EMPTY_GROUPS_MAX", 2)

    async def work() -> None:
        async with Node(QUICK) as node:
            start = now_ms()
            for at, name in enumerate(("b", "c", "a", "d")):
                node.groups.ensure(name)
                await node.evictions.tick(start + at)
            assert [group.name for group in node.groups.all()] == ["a", "d"]

    run(work())


def test_an_empty_group_that_is_joined_while_others_are_evicted_stays(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    joined = Heartbeat("m2", 0, None, (TOPIC,), "client", "127.0.0.1", connection=1)

    async def work() -> None:
        async with Node(QUICK) as node:
            old = node.groups.ensure("old")
            node.beat("m1")
            join = partial(node.groups.heartbeat, "old", joined, node.topology.topics.get)

            def too_many_now(_: object) -> None:
                if not (old.members or node.groups.has_members(GROUP, TOPIC)):
                    monkeypatch.setattr(evictions, "EMPTY_GROUPS_MAX", 0)
                    asyncio.get_running_loop().call_soon(join, now_ms())

            node.groups.on_change(too_many_now)
            await asyncio.sleep(QUICK.session_timeout_ms / 1000 + 1)
            assert names(node) == []
            assert list(old.members) == ["m2"]
            assert node.groups.get("old") is old

    run(work())


def test_a_member_without_connections_is_evicted_after_the_grace() -> None:
    async def work() -> None:
        async with Node(QUICK) as node:
            node.beat("m1", connection=1)
            node.groups.connected(GROUP, "m1", 2)
            node.groups.connection_lost(1, now_ms())
            await asyncio.sleep(5)
            assert names(node) == ["m1"], "one is left"
            node.groups.connection_lost(2, now_ms())
            await asyncio.sleep(2)
            assert names(node) == ["m1"]
            await asyncio.sleep(2)
            assert names(node) == []

    run(work())


def test_one_that_connects_again_in_time_stays() -> None:
    async def work() -> None:
        async with Node(QUICK) as node:
            node.beat("m1", connection=1)
            node.groups.connection_lost(1, now_ms())
            await asyncio.sleep(2)
            node.groups.connected(GROUP, "m1", 7)
            await asyncio.sleep(4)
            assert names(node) == ["m1"]

    run(work())


def test_members_of_before_a_restart_have_a_while_to_come_back() -> None:
    async def work() -> None:
        async with Node(QUICK) as before:
            epoch = before.beat("m1")
            before.beat("m2")
            group = before.groups.get(GROUP)
            assert group is not None
        async with Node(QUICK) as after:
            restored = {GROUP: SavedGroup(group.epoch, list(group.members.values()))}
            assert after.groups.restore(restored, now_ms()) == [TOPIC]
            after.windows.news.topology_changed(after.topology)
            await settle()
            assert names(after) == ["m1", "m2"]
            await beating(after, "m1", epoch, RESTART_GRACE_MS // 1000 - 1, connection=5)
            assert names(after) == ["m1", "m2"]
            await beating(after, "m1", epoch, 2, connection=5)
            assert names(after) == ["m1"]

    run(work())


def test_epochs_that_move_with_new_partitions_are_kept() -> None:
    async def work() -> None:
        async with Node() as node:
            first = node.beat("m1")
            node.changed.clear()
            node.change_topology(topology(2))
            second = node.beat("m1", first)
            assert second > first
            assert [group.epoch for group in node.changed] == [second]
            assert node.beat("m1", first) == second, "the answer may have been lost"
            with pytest.raises(FencedMemberEpoch):
                node.beat("m1", second + 1)

    run(work())


def test_a_join_that_is_refused_leaves_nothing() -> None:
    async def work() -> None:
        async with Node() as node:
            for at in range(100):
                with pytest.raises(GroupError):
                    node.beat("", 0)
                with pytest.raises(UnknownMember):
                    node.beat(f"m{at}", 5)
            assert node.groups.all() == []
            assert node.changed == []

    run(work())


def test_an_empty_group_is_forgotten_after_a_week_and_not_before() -> None:
    async def work() -> None:
        async with Node() as node:
            epoch = node.beat("m1")
            await settle()
            await node.settings.learn(GROUP)
            node.beat("m1", -1)
            start = now_ms()
            await node.evictions.tick(start)
            await node.evictions.tick(start + GROUP_EMPTY_MS_MAX - 1)
            assert [group.name for group in node.groups.all()] == [GROUP]
            assert node.beat("m1") > epoch, "a group that is used again is not empty"
            await node.evictions.tick(start + 1)
            node.beat("m1", -1)
            await node.evictions.tick(start + GROUP_EMPTY_MS_MAX)
            assert len(node.groups.all()) == 1
            await node.evictions.tick(start + 2 * GROUP_EMPTY_MS_MAX)
            assert node.groups.all() == []
            assert node.groups.members(GROUP, TOPIC) == ()

    run(work())


def test_a_session_timeout_that_kafka_has_counts_at_once() -> None:
    async def work() -> None:
        async with Node(QUICK) as node:
            node.beat("m1")
            node.kafka_config = {"share.session.timeout.ms": "60000"}
            await node.settings.learn(GROUP)
            await asyncio.sleep(50)
            assert names(node) == ["m1"]
            node.kafka_config = {}
            await node.settings.learn(GROUP)
            await asyncio.sleep(1)
            assert names(node) == []

    run(work())


@pytest.mark.parametrize("bound", ["CONNECTION_MEMBERS_MAX", "MEMBERS_MAX"])
def test_members_have_a_bound(bound: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(f"gateway.members.groups.{bound}", 2)

    async def work() -> None:
        async with Node() as node:
            with structlog.testing.capture_logs() as logs:
                epoch = node.beat("m1")
                node.beat("m2")
                node.beat("m1", 0)
                node.beat("m1", epoch)
                for _ in range(3):
                    with pytest.raises(GroupFull):
                        node.beat("m3")
            assert [log["event"] for log in logs].count("too_many_members") == 1
            if bound == "CONNECTION_MEMBERS_MAX":
                node.beat("m3", connection=2)
            else:
                with pytest.raises(GroupFull):
                    node.beat("m3", connection=2)
            node.beat("m1", -1)
            node.beat("m4", connection=3) if bound == "MEMBERS_MAX" else node.beat("m4")

    run(work())


def test_one_principal_does_not_take_the_room_of_all(monkeypatch: pytest.MonkeyPatch) -> None:
    """However many connections it has; a client without a name counts for nobody."""
    monkeypatch.setattr("gateway.members.groups.PRINCIPAL_MEMBERS_MAX", 2)

    async def work() -> None:
        async with Node() as node:
            epoch = node.beat("m1", connection=1, principal="anna")
            node.beat("m2", connection=2, principal="anna")
            with pytest.raises(GroupFull, match="One principal"):
                node.beat("m3", connection=3, principal="anna")
            node.beat("m1", epoch, connection=3, principal="anna")
            node.beat("m3", connection=4, principal="bert")
            for at in range(3):
                node.beat(f"n{at}", connection=5 + at)
            node.beat("m1", -1, connection=1, principal="anna")
            node.beat("m4", connection=3, principal="anna")

    run(work())
