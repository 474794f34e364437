"""Members that another node is connected to, or has evicted."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace

import pytest

from dispatcher.core.model import Acquire, EvictPolicy, MemberId
from gateway.core.share.membership import ShareMember
from gateway.members.groups import TopicMembersChanged
from gateway.members.saved_members import SavedGroup
from tests.rig.node_parts import GROUP, TOPIC, Node
from tests.rig.virtual_time import now_ms, run, settle
from tests.unit.gateway.members.test_groups import QUICK, names


def copied(*names: str) -> SavedGroup:
    return SavedGroup(1, [row(name) for name in names])


def row(name: str) -> ShareMember:
    return ShareMember(
        member_id=name,
        client_id=f"client-{name}",
        client_host="/127.0.0.1",
        rack_id=None,
        topics=(TOPIC,),
        epoch=1,
        previous_epoch=1,
        assignment={},
        last_heartbeat_ms=0,
    )


@pytest.mark.parametrize("evicted", [True, False])
def test_who_was_evicted_at_another_node_is_evicted_here(*, evicted: bool) -> None:
    """With `on_evict: ack` its records count as done; those of a member that left come again."""

    async def work() -> None:
        policy = QUICK.model_copy(update={"on_evict": EvictPolicy.ACK})
        async with Node(policy) as node:
            node.groups.leads = lambda _: False
            node.log.produce(b"a", b"b")
            node.groups.copy(GROUP, copied("m1", "m2"), now_ms())
            node.fetch("m1", 1)
            await settle()
            held = []
            for name in ("m1", "m2"):
                session = node.groups.sessions.open((1, GROUP, name), 1, acknowledges=False)
                event = Acquire(MemberId(name), session.session_id, 9, now_ms())
                acquired = node.window().acquire(event)
                held.append([] if acquired is None else acquired.offsets)
            await settle()
            core = node.window().dispatcher
            assert core is not None
            assert sorted(held[0] + held[1]) == [0, 1]
            gone = ("m1", "m2") if evicted else ()
            node.groups.copy(GROUP, copied(), now_ms(), gone)
            await settle()
            assert (core.cursor == 2) is evicted
            assert (len(node.groups.sessions) == 0) is evicted

    run(work())


def test_who_was_evicted_elsewhere_and_joined_again_is_a_member_without_its_records() -> None:
    async def work() -> None:
        async with Node(QUICK) as node:
            node.groups.leads = lambda _: False
            node.log.produce(b"a")
            node.groups.copy(GROUP, copied("m1"), now_ms())
            node.fetch("m1", 1)
            await settle()
            session = node.groups.sessions.open((1, GROUP, "m1"), 1, acknowledges=False)
            assert node.window().acquire(Acquire(MemberId("m1"), session.session_id, 9, now_ms()))
            node.groups.copy(GROUP, copied("m1"), now_ms(), ["m1"])
            await settle()
            assert names(node) == ["m1"]
            assert len(node.groups.sessions) == 0
            again = node.groups.sessions.open((1, GROUP, "m1"), 1, acknowledges=False)
            event = Acquire(MemberId("m1"), again.session_id, 9, now_ms())
            acquired = node.window().acquire(event)
            assert acquired is not None
            assert acquired.offsets == [0]
            assert acquired.attempts == [2]

    run(work())


def test_a_member_that_another_node_is_connected_to_stays() -> None:
    async def work() -> None:
        connected = {"m1"}
        asked: list[str] = []

        async def elsewhere(_group: str, member_ids: Sequence[str]) -> set[str]:
            asked.extend(member_ids)
            return connected & set(member_ids)

        async with Node(QUICK) as node:
            node.evictions.elsewhere = elsewhere
            node.beat("m1", connection=1)
            node.beat("m2", connection=2)
            await asyncio.sleep(1)
            assert asked == []
            node.groups.connection_lost(1, now_ms())
            node.groups.connection_lost(2, now_ms())
            await asyncio.sleep(5)
            assert names(node) == ["m1"]
            connected.clear()
            await asyncio.sleep(3)
            assert names(node) == []

    run(work())


def test_a_connection_to_another_node_is_no_heartbeat() -> None:
    async def work() -> None:
        async def elsewhere(_group: str, member_ids: Sequence[str]) -> Sequence[str]:
            return member_ids

        async with Node(QUICK) as node:
            node.evictions.elsewhere = elsewhere
            node.beat("m1", connection=1)
            node.groups.connection_lost(1, now_ms())
            await asyncio.sleep(QUICK.session_timeout_ms / 1000 - 1)
            assert names(node) == ["m1"]
            await asyncio.sleep(2)
            assert names(node) == []

    run(work())


def test_a_copy_is_told_in_the_topics_that_it_touches_alone() -> None:
    """Each join at another node is a copy here, of a group that may have 20,000 topics."""
    told: list[TopicMembersChanged] = []

    def copied_with(node: Node, evicted: Sequence[str] = (), **topics: tuple[str, ...]) -> set[str]:
        told.clear()
        members = [replace(row(name), topics=own) for name, own in topics.items()]
        node.groups.copy(GROUP, SavedGroup(1, members), now_ms(), evicted)
        return {one.topic for one in told}

    async def work() -> None:
        async with Node() as node:
            node.groups.leads = lambda _: False
            node.groups.on_topic_members(told.append)
            assert copied_with(node, m1=("a", "b"), m2=("c",)) == {"a", "b", "c"}
            assert copied_with(node, m1=("a", "b"), m2=("c", "d")) == {"c", "d"}
            assert copied_with(node, m1=("a", "b"), m2=("c", "d"), m3=("a",)) == {"a"}
            assert copied_with(node, m1=("a", "b"), m2=("c", "d")) == {"a"}
            assert copied_with(node, ["m2"], m1=("a", "b")) == {"c", "d"}

    run(work())
