"""ShareFetch, ShareAcknowledge and ShareGroupHeartbeat: their answers and the time of them, and the
end of a client that hangs up in the middle.
"""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from dispatcher.core.steps import Notice
from gateway.config.groups import GroupSection
from gateway.core.forwarding.api_counts import NEVER_WAITS
from gateway.core.wire.apis import ApiKey
from gateway.core.wire.errors import ErrorCode
from gateway.handlers.limits import SHARE_FETCH_WAIT_MS_MAX, SUBSCRIBED_TOPICS_MAX
from gateway.upstream.errors import Unreachable
from tests.rig.node_parts import GROUP, TOPIC, Node, topology
from tests.rig.share_client import (
    ACCEPT,
    Client,
    ScriptedConnection,
    ack_error,
    error,
    joined,
    offsets,
    row_error,
    rows,
    services,
    story,
)
from tests.rig.virtual_time import now_ms, run, settle

# --------------------------------------------------------------------------------------- the usual


def test_records_are_fetched_and_acknowledged_with_the_next_fetch() -> None:
    async def tell(node: Node, client: Client) -> None:
        answer = await client.fetch(MaxRecords=2)
        assert offsets(answer) == [0, 1]
        assert answer["AcquisitionLockTimeoutMs"] == 30_000
        answer = await client.fetch(acks={0: [(0, 1, ACCEPT)]})
        assert ack_error(answer) == ErrorCode.NONE
        assert offsets(answer) == [2]
        assert node.delivered.rows() == [("other", len(b"0-0,0-1") + len(b"0-2"))]
        answer = await client.acknowledge({0: [(2, 2, ACCEPT)]})
        assert row_error(answer) == ErrorCode.NONE
        assert node.stored[node.window().key] == 3

    story(tell)


def test_what_an_acknowledgement_frees_is_in_the_answer() -> None:
    async def tell(node: Node, client: Client) -> None:
        node.log.produce(b"a")
        await settle()
        assert offsets(await client.fetch()) == [0, 1, 2]
        assert offsets(await client.fetch(acks={0: [(0, 0, ACCEPT)]})) == [3]

    story(tell)


def test_partitions_share_a_fetch() -> None:
    async def tell(_node: Node, client: Client) -> None:
        answer = await client.fetch(partitions=[0, 1, 2], MaxRecords=6)
        assert [offsets(answer, p) for p in range(3)] == [[0, 1], [0, 1], [0, 1]]

    story(tell, partitions=3)


def test_records_larger_than_the_mean_go_back_rather_than_burst_the_answer() -> None:
    """A librdkafka drops its connection for a response of more than 100 MB, and again and again,
    until the records are poison.
    """

    async def tell(node: Node, client: Client) -> None:
        node.log.sizes = {0: 300, 1: 300, 2: 700}
        assert offsets(await client.fetch(MaxBytes=300)) == [0, 1]
        node.log.produce(b"d")
        node.log.sizes[3] = 1
        await settle()
        answer = await client.fetch(MaxBytes=300)
        assert offsets(answer) == [2], "one of any size, or it would never come"
        answer = await client.fetch(MaxBytes=300)
        assert offsets(answer) == [3]
        row = rows(answer)[0]["AcquiredRecords"]
        assert [tuple(acquired) for acquired in row] == [(3, 3, 1)], "it was no delivery"

    story(tell)


def test_a_partition_waits_for_the_next_answer_when_this_one_is_full() -> None:
    async def tell(node: Node, client: Client) -> None:
        node.log.sizes = dict.fromkeys(range(3), 400)
        answer = await client.fetch(partitions=[0, 1], MaxBytes=500)
        assert (offsets(answer, 0), offsets(answer, 1)) == ([0, 1], [])
        answer = await client.fetch(MaxBytes=500)
        assert (offsets(answer, 0), offsets(answer, 1)) == ([], [0, 1])

    story(tell, partitions=2)


def test_partitions_take_turns() -> None:
    async def tell(_node: Node, client: Client) -> None:
        first = await client.fetch(partitions=[0, 1, 2], MaxRecords=1)
        second = await client.fetch(MaxRecords=1)
        third = await client.fetch(MaxRecords=1)
        served = [[p for p in range(3) if offsets(a, p)] for a in (first, second, third)]
        assert served == [[0], [1], [2]]

    story(tell, partitions=3)


def test_a_forgotten_partition_brings_nothing_more() -> None:
    async def tell(node: Node, client: Client) -> None:
        await client.fetch(partitions=[0, 1], MaxRecords=0)
        forgotten = [{"TopicId": node.window().partition.topic_id, "Partitions": [0]}]
        answer = await client.fetch(ForgottenTopicsData=forgotten)
        assert offsets(answer, 0) == []
        assert offsets(answer, 1) == [0, 1, 2]

    story(tell, partitions=2)


def test_keys_do_not_wait_for_a_member_that_may_no_longer_read() -> None:
    """Upstream's ACLs have changed, and its client goes on sending heartbeats."""

    async def tell(node: Node, client: Client) -> None:
        other = await joined(node, member="m2")
        node.log.produce(*(b"%d" % key for key in range(20)))
        await settle()
        client.connection.denied = {TOPIC}
        before = now_ms()
        told = set()
        while now_ms() - before < 100_000:
            assert error(await other.heartbeat(2)) == ErrorCode.NONE
            told.add(error(await client.heartbeat(1)))
            await asyncio.sleep(5)
        assert ErrorCode.TOPIC_AUTHORIZATION_FAILED in told
        group = node.groups.get(GROUP)
        assert group is not None
        assert list(group.members) == ["m2"]
        assert len(offsets(await other.fetch())) == 23
        assert error(await client.heartbeat(-1)) == ErrorCode.UNKNOWN_MEMBER_ID

    story(tell)


# --------------------------------------------------------------------------------- permissions


@pytest.mark.parametrize("denied", [set(), {"secret"}])
def test_members_are_shown_to_who_may_describe_all_their_topics(denied: set[str]) -> None:
    async def tell(node: Node, client: Client) -> None:
        node.beat("m2", 0, TOPIC, "secret")
        client.connection.denied = denied
        asked = {"GroupIds": [GROUP], "IncludeAuthorizedOperations": False}
        (row,) = (await client.ask(ApiKey.SHARE_GROUP_DESCRIBE, asked))["Groups"]
        expected = ErrorCode.TOPIC_AUTHORIZATION_FAILED if denied else ErrorCode.NONE
        assert row["ErrorCode"] == expected
        assert len(row["Members"]) == (0 if denied else 2)
        assert ("secret" in str(row)) is not bool(denied)

    story(tell)


# ------------------------------------------------------------------------------------- waiting


def test_a_fetch_waits_for_records_and_no_longer_than_it_said() -> None:
    async def tell(node: Node, client: Client) -> None:
        await client.fetch()
        before = now_ms()
        assert offsets(await client.fetch(MaxWaitMs=500)) == []
        assert now_ms() - before == 500
        asyncio.get_running_loop().call_later(0.2, node.log.produce, b"new")
        assert offsets(await client.fetch(MaxWaitMs=500)) == [3]
        assert now_ms() - before == 700

    story(tell)


def test_the_wait_for_records_is_told_apart_from_the_work() -> None:
    """Work takes no time here."""

    async def tell(node: Node, client: Client) -> None:
        await client.fetch()
        asyncio.get_running_loop().call_later(0.2, node.log.produce, b"new")
        assert offsets(await client.fetch(MaxWaitMs=500)) == [3]
        assert client.asked[-1].waited_ns == pytest.approx(200_000_000)
        await client.fetch()
        assert client.asked[-1].waited_ns == 0
        await client.heartbeat()
        assert client.asked[-1].waited_ns == NEVER_WAITS
        assert node.flow.of(GROUP, TOPIC) == (4, 0)

    story(tell)


@pytest.mark.parametrize(("wait_ms", "waited"), [(-1, 0), (2**31 - 1, SHARE_FETCH_WAIT_MS_MAX)])
def test_odd_waits(wait_ms: int, waited: int) -> None:
    async def tell(_node: Node, client: Client) -> None:
        await client.fetch()
        before = now_ms()
        await client.fetch(MaxWaitMs=wait_ms)
        assert now_ms() - before == waited

    story(tell, GroupSection(auto_offset_reset="earliest", lock_duration_ms=3_600_000))


def test_two_fetches_of_a_member_do_not_take_the_news_from_each_other() -> None:
    async def work() -> None:
        first = topology(2)
        first.topics[TOPIC].partitions[1] = first.topics[TOPIC].partitions[1].__class__(2, 0)
        async with Node(topology=first) as node:
            at_1 = await joined(node)
            at_2 = Client(node, at_1.services, ScriptedConnection(99, 2))
            waiting = [
                node.tasks.create_task(at_1.fetch(partitions=[0], MaxWaitMs=5_000)),
                node.tasks.create_task(at_2.fetch(partitions=[1], MaxWaitMs=5_000)),
            ]
            await settle()
            before = now_ms()
            node.log.produce(b"for broker 2", partition=1)
            await settle()
            # A third request of the member comes in between: its answer waits for the store.
            node.log.produce(b"for broker 1", partition=0)
            await asyncio.wait(waiting)
            assert now_ms() == before
            assert offsets(waiting[0].result(), 0) == [0]
            assert offsets(waiting[1].result(), 1) == [0]
            assert len(node.ready) == 0

    run(work())


def test_news_that_come_while_acknowledgements_are_persisted_are_not_lost() -> None:
    async def work() -> None:
        async with Node(topology=topology(2)) as node:
            node.log.produce(b"a")
            first = await joined(node)
            other = Client(node, first.services, ScriptedConnection(98))
            assert offsets(await first.fetch(partitions=[0])) == [0]
            gate = node.store.gate = asyncio.Event()
            waiting = node.tasks.create_task(
                first.fetch(acks={0: [(0, 0, ACCEPT)]}, MaxWaitMs=5_000)
            )
            await settle()
            node.log.produce(b"b")  # wakes the fetch while it waits for the store
            await settle()
            other.epoch = 0
            meanwhile = node.tasks.create_task(other.ask(ApiKey.SHARE_ACKNOWLEDGE, unknown()))
            await meanwhile
            before = now_ms()
            gate.set()
            assert offsets(await waiting) == [1]
            assert now_ms() == before

    run(work())


def unknown() -> dict[str, Any]:
    return {"GroupId": GROUP, "MemberId": "m1", "ShareSessionEpoch": 7, "Topics": []}


def test_a_fetch_whose_session_was_reopened_takes_nothing_any_more() -> None:
    async def tell(node: Node, client: Client) -> None:
        await client.fetch()
        waiting = node.tasks.create_task(client.fetch(MaxWaitMs=1_000))
        await settle()
        again = Client(node, client.services, ScriptedConnection(50))
        await again.fetch(MaxRecords=0)
        node.log.produce(b"new")
        assert offsets(await waiting) == []
        assert offsets(await again.fetch()) == [3]

    story(tell)


def test_a_fetch_takes_nothing_of_a_partition_whose_leader_has_moved() -> None:
    async def tell(node: Node, client: Client) -> None:
        await client.fetch()
        waiting = node.tasks.create_task(client.fetch(MaxWaitMs=1_000))
        await settle()
        node.change_topology(topology(leader=2))
        node.log.produce(b"new")
        assert offsets(await waiting) == []
        moved = Client(node, client.services, ScriptedConnection(51, 2))
        assert offsets(await moved.fetch()) == [3]

    story(tell)


def test_a_leader_that_comes_back_finds_its_sessions_alive() -> None:
    """Their records were to be given back after the grace, when the leader had moved away."""

    async def tell(node: Node, client: Client) -> None:
        assert offsets(await client.fetch()) == [0, 1, 2]
        for leader in (2, 1):
            node.change_topology(topology(leader=leader))
        await asyncio.sleep(5)
        await client.acknowledge({0: [(0, 2, ACCEPT)]})
        assert node.stored[node.window().key] == 3

    story(tell)


# ---------------------------------------------------------------------- records that cannot be had


def test_records_that_cannot_be_read_back_are_no_delivery() -> None:
    async def tell(node: Node, client: Client) -> None:
        node.log.failure = Unreachable("no broker")
        for _ in range(5):
            assert offsets(await client.fetch()) == []
        node.log.failure = None
        answer = await client.fetch()
        assert offsets(answer) == [0, 1, 2]
        assert rows(answer)[0]["AcquiredRecords"] == [(0, 2, 1)], "the first delivery"

    story(tell, GroupSection(auto_offset_reset="earliest", deliveries_max=2))


def test_records_that_are_gone_from_the_log_are_settled() -> None:
    async def tell(node: Node, client: Client) -> None:
        node.log.gone = {0, 2}
        assert offsets(await client.fetch()) == [1]
        await client.acknowledge({0: [(1, 1, ACCEPT)]})
        assert node.stored[node.window().key] == 3
        counted = [(one.notice, one.count) for one in node.noticed]
        assert counted == [(Notice.TRUNCATED, 2), (Notice.ACCEPTED, 1)]

    story(tell)


def test_a_fetch_that_finds_only_gone_records_gets_the_next_ones() -> None:
    async def tell(node: Node, client: Client) -> None:
        node.log.produce(b"a", b"b", b"c")
        node.log.gone = {0, 1, 2}
        await settle()
        assert offsets(await client.fetch(MaxWaitMs=500)) == [3, 4, 5]

    story(tell)


# ------------------------------------------------------------------------------------- hanging up


# -------------------------------------------------------------------------------------- heartbeats


def test_a_member_joins_before_its_topic_exists_and_while_upstream_is_away() -> None:
    async def work() -> None:
        async with Node(topology=topology(error=3)) as node:
            node.refresh_failure = node.config_failure = Unreachable("no broker")
            client = Client(node, services(node), ScriptedConnection(1))
            answer = await client.heartbeat()
            assert error(answer) == ErrorCode.NONE
            assert answer["Assignment"] == {"TopicPartitions": []}
            node.config_failure = None
            node.change_topology(topology(2))
            answer = await client.heartbeat(answer["MemberEpoch"])
            (assigned,) = answer["Assignment"]["TopicPartitions"]
            assert assigned["Partitions"] == [0, 1]

    run(work())


def test_the_intervals_are_those_kafka_has_for_the_group() -> None:
    async def work() -> None:
        async with Node() as node:
            node.kafka_config = {
                "share.heartbeat.interval.ms": "7000",
                "share.session.timeout.ms": "50000",
                "share.assignment.interval.ms": "2000",
                "share.record.lock.duration.ms": "17000",
            }
            client = Client(node, services(node), ScriptedConnection(1))
            assert (await client.heartbeat())["HeartbeatIntervalMs"] == 7_000
            other = Client(node, services(node), ScriptedConnection(2), "m2")
            crowded = await other.heartbeat()
            assert crowded["Assignment"] == {"TopicPartitions": []}
            assert crowded["HeartbeatIntervalMs"] == 7_000, "after it the partitions come"
            assert (await other.heartbeat(crowded["MemberEpoch"]))["Assignment"]["TopicPartitions"]
            assert (await other.heartbeat(-1))["HeartbeatIntervalMs"] == 0, "there is no next one"
            group = node.groups.get(GROUP)
            assert group is not None
            assert group.session_timeout_ms == 50_000
            await settle()
            assert (await client.fetch())["AcquisitionLockTimeoutMs"] == 17_000

    run(work())


@pytest.mark.parametrize(
    ("epoch", "names", "expected"),
    [
        (0, [], ErrorCode.INVALID_REQUEST),
        (0, [str(at) for at in range(SUBSCRIBED_TOPICS_MAX + 1)], ErrorCode.INVALID_REQUEST),
        (5, None, ErrorCode.UNKNOWN_MEMBER_ID),
        (-1, None, ErrorCode.UNKNOWN_MEMBER_ID),
        (-2, None, ErrorCode.INVALID_REQUEST),
    ],
)
def test_a_refused_heartbeat_leaves_no_group(
    epoch: int, names: list[str] | None, expected: ErrorCode
) -> None:
    async def work() -> None:
        async with Node() as node:
            client = Client(node, services(node), ScriptedConnection(1), group="other")
            answer = await client.heartbeat(epoch, names)
            assert error(answer) == expected
            assert answer["ErrorMessage"]
            assert node.groups.all() == []
            assert "other" not in node.settings._known, "nor anything about it"

    run(work())


def test_as_many_topics_as_a_member_may_have() -> None:
    async def work() -> None:
        async with Node() as node:
            client = Client(node, services(node), ScriptedConnection(1))
            names = [str(at) for at in range(SUBSCRIBED_TOPICS_MAX)]
            assert error(await client.heartbeat(0, names)) == ErrorCode.NONE

    run(work())


@pytest.mark.parametrize("name", ["a b", "{}|%", "grüße/../x", "\n", "*", "x" * 1_000])
def test_groups_with_odd_names_work(name: str) -> None:
    async def tell(node: Node, client: Client) -> None:
        odd = Client(node, client.services, ScriptedConnection(70), "member", name)
        assert error(await odd.heartbeat()) == ErrorCode.NONE
        assert offsets(await odd.fetch(MaxWaitMs=5_000)) == [0, 1, 2]
        answer = await odd.acknowledge({0: [(0, 2, ACCEPT)]})
        assert row_error(answer) == ErrorCode.NONE

    story(tell)
