"""A group with `reliable: false` through the share handlers: nothing comes again, nothing is
stored, and Kafka alone says where it goes on.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from dispatcher.core.model import AckType
from dispatcher.core.steps import Notice
from gateway.config.groups import GroupSection
from gateway.core.wire.errors import ErrorCode
from gateway.upstream.errors import Unreachable
from keyway.commit_metadata.core.metadata import decode as decode_commit
from tests.rig.node_parts import GROUP, Node, ScriptedCommits, ScriptedStore
from tests.rig.share_client import Client, ack_error, joined, offsets, row_error
from tests.rig.virtual_time import run, settle, until

SECTION = GroupSection(
    reliable=False, auto_offset_reset="earliest", in_flight_per_member_max=10, lock_duration_ms=100
)


def story(tell: Callable[[Node, Client], Awaitable[None]], *keys: bytes) -> None:
    async def work() -> None:
        async with Node(SECTION) as node:
            node.log.produce(*(keys or (b"a", b"b", b"a")))
            await tell(node, await joined(node))
            assert node.store.applied == [], "nothing of it is in the store"
            assert node.store.windows == {}

    run(work())


@pytest.mark.parametrize("kind", sorted(set(AckType) - {AckType.RENEW}))  # it wants IsRenewAck
def test_acknowledgements_are_answered_and_change_nothing(kind: AckType) -> None:
    async def tell(_node: Node, client: Client) -> None:
        assert offsets(await client.fetch()) == [0, 1, 2], "two of a key at once"
        answer = await client.fetch(acks={0: [(0, 1, bytes([kind]))]})
        assert (ack_error(answer), offsets(answer)) == (ErrorCode.NONE, [])
        answer = await client.acknowledge({0: [(2, 2, bytes([kind]))]})
        assert row_error(answer) == ErrorCode.NONE
        await asyncio.sleep(2)
        assert offsets(await client.fetch(epoch=-1)) == []
        client.epoch = 0
        assert offsets(await client.fetch()) == [], "nor does a lock or a session end anything"

    story(tell)


def test_a_saturated_member_loses_records_and_the_loss_is_counted() -> None:
    async def tell(node: Node, client: Client) -> None:
        assert offsets(await client.fetch()) == [0, 1, 2]
        node.log.produce(*[b"k"] * 100)
        window = node.window()
        await until(lambda: window.dispatcher is not None and window.dispatcher.cursor == 3)
        core = window.dispatcher
        assert core is not None
        await until(lambda: core.read_position == 103, within_s=2)
        assert core.stats().dropped == 90
        counted = [n.count for n in node.noticed if n.notice is Notice.UNDELIVERED]
        assert sum(counted) == 90
        assert offsets(await client.fetch()) == list(range(3, 13))
        await until(lambda: Notice.SATURATED in [n.notice for n in node.noticed], within_s=2)

    story(tell)


def counted(node: Node, notice: Notice) -> int:
    return sum(noticed.count for noticed in node.noticed if noticed.notice is notice)


def test_records_that_cannot_be_read_at_the_moment_come_later() -> None:
    async def tell(node: Node, client: Client) -> None:
        node.log.failure = Unreachable("broker 1")
        assert offsets(await client.fetch()) == []
        node.log.failure = None
        node.log.produce(b"next")
        await settle()
        assert offsets(await client.fetch()) == [0, 1, 2, 3]
        assert (counted(node, Notice.SENT), counted(node, Notice.UNDELIVERED)) == (4, 0)

    story(tell)


def test_records_without_room_in_an_answer_come_with_the_next() -> None:
    """They were lost, although their member was idle."""

    async def tell(node: Node, client: Client) -> None:
        node.log.sizes = {0: 300, 1: 300, 2: 700}
        got = [offsets(await client.fetch(MaxBytes=300)) for _ in range(3)]
        assert got == [[0, 1], [2], []]
        assert (counted(node, Notice.SENT), counted(node, Notice.UNDELIVERED)) == (3, 0)

    story(tell)


def test_kafka_says_where_it_goes_on() -> None:
    """Sent and committed: never again. Waiting when the node died: sent by the next one."""
    commits = ScriptedCommits()

    async def first() -> None:
        async with Node(SECTION, commits=commits) as node:
            node.log.produce(b"a", b"b", b"c")
            client = await joined(node)
            assert offsets(await client.fetch(MaxRecords=2)) == [0, 1]
            await node.windows.committer.commit()
            assert commits.committed[GROUP, 0].offset == 2

    async def second() -> None:
        async with Node(SECTION, commits=commits, boot="next") as node:
            node.log.produce(b"a", b"b", b"c")
            client = await joined(node)
            assert offsets(await client.fetch()) == [2]
            await node.windows.committer.commit()
            await node.windows.committer.commit()
            assert [c.offset for (c,) in commits.requests] == [2, 3], "new ones only"

    run(first())
    run(second())


def test_what_was_sent_behind_the_cursor_is_in_the_commit() -> None:
    async def tell(node: Node, client: Client) -> None:
        other = await joined(node, member="m2")
        window = node.window()
        core = window.dispatcher
        assert core is not None
        node.log.produce(*[b"key-%d" % i for i in range(20)])
        await settle()
        assert all(m.ready_keys for m in core.stats().members), "both have something"
        first, second = (client, other) if core.cursor == 0 else (other, client)
        sent = offsets(await first.fetch())
        held = core.cursor
        sent += offsets(await second.fetch(MaxRecords=1))
        await node.windows.committer.commit()
        committed = node.commits.committed[GROUP, 0]
        ranges = decode_commit(committed.offset, committed.metadata)
        assert ranges is not None
        settled = {o for low, high in ranges for o in range(low, high + 1)}
        assert committed.offset >= held
        assert {o for o in sent if o >= committed.offset} <= settled
        assert committed.offset not in settled

    story(tell)


def test_a_window_that_is_closed_idle_has_left_nothing_behind() -> None:
    async def tell(node: Node, client: Client) -> None:
        await client.fetch()
        await client.heartbeat(epoch=-1)
        await node.windows.committer.commit()
        await until(lambda: not node.windows.table.all(), within_s=120)
        client.epoch = 0
        again = await joined(node)
        assert offsets(await again.fetch()) == []

    story(tell)


def test_what_a_reliable_group_left_in_the_store_is_gone() -> None:
    """Else it would go back there when it is reliable again."""
    commits, store = ScriptedCommits(), ScriptedStore()
    reliable = GroupSection(auto_offset_reset="earliest")

    async def sends(section: GroupSection, records_max: int) -> list[int]:
        async with Node(section, store=store, commits=commits) as node:
            node.log.produce(*[b"key-%d" % at for at in range(9)])
            client = await joined(node)
            sent = offsets(await client.fetch(MaxRecords=records_max))
            accepted = [(sent[0], sent[-1], bytes([AckType.ACCEPT]))]
            assert row_error(await client.acknowledge({0: accepted})) == ErrorCode.NONE
            await node.windows.committer.commit()
            return sent

    assert run(sends(reliable, 2)) == [0, 1]
    assert len(store.windows) == 1
    assert run(sends(SECTION, 3)) == [2, 3, 4]
    assert store.windows == {}
    assert run(sends(reliable, 4)) == [5, 6, 7, 8]
