"""The bounds of share requests, and the error that answers each wrong one."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from dispatcher.store.base import FencedError, StoreError, Write
from gateway.config.groups import GroupSection
from gateway.core.share.errors import GroupError
from gateway.core.wire.apis import ApiKey
from gateway.core.wire.errors import ErrorCode
from gateway.handlers import share_fetch
from tests.rig.node_parts import GROUP, TOPIC, Node, ScriptedStore
from tests.rig.share_client import (
    ACCEPT,
    OTHER_ID,
    Client,
    ScriptedConnection,
    ack_error,
    error,
    joined,
    offsets,
    row_error,
    rows,
    story,
)
from tests.rig.virtual_time import now_ms, run, until

# ----------------------------------------------------------------------------------- bad requests


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"MaxRecords": 2**31 - 1}, [0, 1, 2]),
        ({"MaxRecords": 1}, [0]),
        ({"MaxRecords": 0}, []),
        ({"MaxRecords": -1}, []),
        ({"MaxBytes": 0}, []),
        ({"MaxBytes": -5}, []),
        ({"MaxBytes": 1}, [0]),  # one record at least, or a large one would never come
        ({"MaxBytes": 25}, [0, 1]),
        ({"MaxBytes": 2**31 - 1}, [0, 1, 2]),
        ({"BatchSize": 0}, [0, 1, 2]),
        ({"BatchSize": -1}, [0, 1, 2]),
        ({"MinBytes": 2**31 - 1}, [0, 1, 2]),
    ],
)
def test_limits_of_a_fetch(fields: dict[str, Any], expected: list[int]) -> None:
    async def tell(_node: Node, client: Client) -> None:
        answer = await client.fetch(**fields)
        assert error(answer) == ErrorCode.NONE
        assert offsets(answer) == expected

    story(tell)


def test_zero_records_acknowledge_and_do_not_wait() -> None:
    async def tell(node: Node, client: Client) -> None:
        await client.fetch(MaxRecords=1)
        before = now_ms()
        answer = await client.fetch(acks={0: [(0, 0, ACCEPT)]}, MaxRecords=0, MaxWaitMs=5_000)
        assert ack_error(answer) == ErrorCode.NONE
        assert now_ms() == before
        assert node.stored[node.window().key] == 1

    story(tell)


def test_a_session_does_not_grow_without_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """Partitions that do not exist cost memory, too: here, and a row in each answer."""
    monkeypatch.setattr(share_fetch, "SESSION_PARTITIONS_MAX", 20)

    async def tell(_node: Node, client: Client) -> None:
        half = list(range(10))
        await client.fetch(partitions=half, MaxRecords=0)
        more = await client.fetch(partitions=half, topic_id=OTHER_ID, MaxRecords=0)
        assert error(more) == ErrorCode.NONE
        assert error(await client.fetch(partitions=half, MaxRecords=0)) == ErrorCode.NONE
        refused = await client.fetch(partitions=[half[-1] + 1], MaxRecords=0)
        assert error(refused) == ErrorCode.INVALID_REQUEST
        session = client.services.groups.sessions.find((1, GROUP, "m1"))
        assert session is not None
        assert len(session.partitions) == 2 * len(half)

    story(tell)


def test_partitions_that_do_not_exist_are_answered_but_not_kept(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """57 bytes of request must not cost 50,000 error rows each time."""
    monkeypatch.setattr(share_fetch, "SESSION_UNKNOWN_PARTITIONS_MAX", 3)

    async def tell(_node: Node, client: Client) -> None:
        many = await client.fetch(partitions=list(range(10)), topic_id=OTHER_ID, MaxWaitMs=0)
        assert len(many["Responses"][0]["Partitions"]) == 10
        again = await client.fetch(MaxWaitMs=0, MaxRecords=1)
        errors = [
            row["ErrorCode"]
            for topic in again["Responses"]
            if topic["TopicId"] == OTHER_ID
            for row in topic["Partitions"]
        ]
        assert errors == [ErrorCode.UNKNOWN_TOPIC_ID] * 3

    story(tell)


def test_a_partition_named_twice_is_answered_once() -> None:
    async def tell(node: Node, client: Client) -> None:
        await client.fetch()
        topic_id = node.window().partition.topic_id
        twice = [
            {"PartitionIndex": 0, "AcknowledgementBatches": [(0, 0, ACCEPT)]},
            {"PartitionIndex": 0, "AcknowledgementBatches": [(1, 1, ACCEPT), (1, 1, ACCEPT)]},
        ]
        asked = [{"TopicId": topic_id, "Partitions": twice}]
        body = {
            "GroupId": GROUP,
            "MemberId": "m1",
            "ShareSessionEpoch": client.epoch,
            "Topics": asked,
        }
        answer = await client.ask(ApiKey.SHARE_ACKNOWLEDGE, body)
        assert len(answer["Responses"]) == 1
        assert len(answer["Responses"][0]["Partitions"]) == 1
        assert row_error(answer) == ErrorCode.INVALID_REQUEST, "one was acknowledged twice"
        assert node.stored[node.window().key] == 0, "nothing counts of what has an error"

    story(tell)


@pytest.mark.parametrize(
    "batches", [[(1, 2), (0, 0)], [(0, 1), (0, 1)], [(0, 2), (1, 1)], [(0, 0), (0, 0)]]
)
def test_batches_that_do_not_ascend_are_refused_unread(batches: list[tuple[int, int]]) -> None:
    async def tell(node: Node, client: Client) -> None:
        await client.fetch()
        acks = [(first, last, ACCEPT) for first, last in batches]
        answer = await client.acknowledge({0: acks})
        assert row_error(answer) == ErrorCode.INVALID_REQUEST
        assert node.stored[node.window().key] == 0
        answer = await client.fetch(acks={0: acks})
        assert ack_error(answer) == ErrorCode.INVALID_REQUEST
        answer = await client.acknowledge({0: [(0, 1, ACCEPT), (2, 2, ACCEPT)]})
        assert row_error(answer) == ErrorCode.NONE
        assert node.stored[node.window().key] == 3

    story(tell)


@pytest.mark.parametrize(
    ("batch", "expected"),
    [
        ((0, 0, b""), ErrorCode.INVALID_REQUEST),
        ((0, 2, b"\1\1"), ErrorCode.INVALID_REQUEST),
        ((0, 0, b"\x05"), ErrorCode.INVALID_REQUEST),
        ((2, 0, b"\1"), ErrorCode.INVALID_REQUEST),
        ((-1, 0, b"\1"), ErrorCode.INVALID_REQUEST),
        ((-(2**63), 2**63 - 1, b"\1"), ErrorCode.INVALID_REQUEST),
        ((0, 2**63 - 1, b"\1"), ErrorCode.INVALID_RECORD_STATE),
        ((99, 99, b"\1"), ErrorCode.INVALID_RECORD_STATE),
        ((0, 3, b"\1"), ErrorCode.INVALID_RECORD_STATE),
        ((0, 2, b"\1"), ErrorCode.NONE),
    ],
)
def test_acknowledgement_batches(batch: tuple[int, int, bytes], expected: ErrorCode) -> None:
    async def tell(node: Node, client: Client) -> None:
        await client.fetch()
        assert row_error(await client.acknowledge({0: [batch]})) == expected
        settled = 3 if expected == ErrorCode.NONE else 0
        assert node.stored[node.window().key] == settled

    story(tell)


def test_records_of_another_member_cannot_be_acknowledged() -> None:
    async def tell(node: Node, client: Client) -> None:
        await client.fetch()
        other = await joined(node, member="m2")
        await other.fetch()
        answer = await other.acknowledge({0: [(0, 0, ACCEPT)]})
        assert row_error(answer) == ErrorCode.INVALID_RECORD_STATE
        assert node.stored[node.window().key] == 0

    story(tell)


def test_a_member_that_is_not_in_the_group_opens_no_session() -> None:
    """Else one connection could use up the sessions of everybody, for members that never joined."""

    async def tell(node: Node, client: Client) -> None:
        connection = ScriptedConnection(77)
        stranger = Client(node, client.services, connection, member="nobody")
        answer = await stranger.fetch(MaxWaitMs=100)
        assert error(answer) == ErrorCode.UNKNOWN_MEMBER_ID
        refused = connection.counters.requests_refused
        assert refused == {(ApiKey.SHARE_FETCH, ErrorCode.UNKNOWN_MEMBER_ID): 1}
        assert len(node.groups.sessions) == 0

    story(tell)


# --------------------------------------------------------------------------------- sessions, errors


@pytest.mark.parametrize("epoch", [1, 7, -1])
def test_a_session_nobody_opened(epoch: int) -> None:
    async def tell(_node: Node, client: Client) -> None:
        answer = await client.fetch(epoch=epoch)
        assert error(answer) == ErrorCode.SHARE_SESSION_NOT_FOUND
        answer = await client.acknowledge({0: [(0, 0, ACCEPT)]}, epoch=epoch)
        assert error(answer) == ErrorCode.SHARE_SESSION_NOT_FOUND

    story(tell)


@pytest.mark.parametrize("epoch", [2, 5, -2, 2**31 - 1])
def test_a_wrong_epoch(epoch: int) -> None:
    async def tell(_node: Node, client: Client) -> None:
        await client.fetch()
        answer = await client.fetch(epoch=epoch)
        assert error(answer) == ErrorCode.INVALID_SHARE_SESSION_EPOCH
        answer = await client.acknowledge({0: [(0, 0, ACCEPT)]}, epoch=epoch)
        assert error(answer) == ErrorCode.INVALID_SHARE_SESSION_EPOCH
        assert error(await client.acknowledge({0: [(0, 0, ACCEPT)]}, epoch=1)) == ErrorCode.NONE

    story(tell)


def test_an_acknowledgement_opens_no_session() -> None:
    async def tell(_node: Node, client: Client) -> None:
        answer = await client.acknowledge({0: [(0, 0, ACCEPT)]}, epoch=0)
        assert error(answer) == ErrorCode.INVALID_SHARE_SESSION_EPOCH
        answer = await client.fetch(epoch=0, acks={0: [(0, 0, ACCEPT)]})
        assert error(answer) == ErrorCode.INVALID_REQUEST

    story(tell)


def test_a_member_fetches_on_one_connection_and_acknowledges_on_another() -> None:
    """As some stock clients always do. Only the connection the session was opened on ends it."""

    async def tell(node: Node, client: Client) -> None:
        assert offsets(await client.fetch()) == [0, 1, 2]
        second = Client(node, client.services, ScriptedConnection(66), epoch=1)
        answer = await second.acknowledge({0: [(0, 1, ACCEPT)]})
        assert row_error(answer) == ErrorCode.NONE
        assert node.stored[node.window().key] == 2
        node.groups.connection_lost(66, now_ms())
        client.epoch = second.epoch
        answer = await client.acknowledge({0: [(2, 2, ACCEPT)]})
        assert row_error(answer) == ErrorCode.NONE
        node.groups.connection_lost(client.connection.id, now_ms())
        assert error(await client.fetch()) == ErrorCode.SHARE_SESSION_NOT_FOUND

    story(tell)


@pytest.mark.parametrize(("group", "member"), [("", "m1"), (None, "m1"), ("g", ""), ("g", None)])
def test_requests_without_group_or_member(group: str | None, member: str | None) -> None:
    async def tell(_node: Node, client: Client) -> None:
        names: dict[str, Any] = {"GroupId": group, "MemberId": member}
        assert error(await client.fetch(**names)) == ErrorCode.INVALID_REQUEST
        answer = await client.acknowledge({0: [(0, 0, ACCEPT)]}, **names)
        assert error(answer) == ErrorCode.INVALID_REQUEST

    story(tell)


def test_ids_as_long_as_the_wire_permits_are_refused() -> None:
    """They would be kept, saved and logged with each join."""

    async def tell(node: Node, client: Client) -> None:
        too_long: list[dict[str, Any]] = [{"GroupId": "g" * 1_025}, {"MemberId": "m" * 256}]
        for names in too_long:
            assert error(await client.fetch(**names)) == ErrorCode.INVALID_REQUEST
            assert error(await client.heartbeat(**names)) == ErrorCode.INVALID_REQUEST
        before = len(node.groups.all())
        refused = await client.heartbeat(GroupId="new", RackId="r" * 256)
        assert error(refused) == ErrorCode.INVALID_REQUEST
        assert len(node.groups.all()) == before
        longest = await client.heartbeat(GroupId="g" * 1_024, MemberId="m" * 255, RackId="r" * 255)
        assert error(longest) == ErrorCode.NONE

    story(tell)


def test_names_that_no_topic_can_have_are_passed_over_and_not_kept() -> None:
    async def tell(node: Node, client: Client) -> None:
        for name in ("", "a b", "^orders", "x" * 250, "\n" * 32_000):
            assert error(await client.heartbeat(names=[name])) == ErrorCode.NONE
        (group,) = node.groups.all()
        assert group.topics() == []

    story(tell)


def test_a_group_one_may_not_read() -> None:
    async def tell(node: Node, client: Client) -> None:
        connection = ScriptedConnection(60, group_denied=True)
        denied = Client(node, client.services, connection)
        for answer in (
            await denied.heartbeat(),
            await denied.fetch(epoch=0),
            await denied.acknowledge({0: [(0, 0, ACCEPT)]}),
        ):
            assert error(answer) == ErrorCode.GROUP_AUTHORIZATION_FAILED
        assert connection.asked == [ApiKey.HEARTBEAT], "asked once, remembered for a while"

    story(tell)


def test_a_topic_one_may_not_read() -> None:
    async def tell(node: Node, client: Client) -> None:
        denied = Client(node, client.services, ScriptedConnection(61, denied={TOPIC}))
        assert error(await denied.heartbeat()) == ErrorCode.TOPIC_AUTHORIZATION_FAILED
        answer = await denied.fetch(epoch=0)
        assert row_error(answer) == ErrorCode.TOPIC_AUTHORIZATION_FAILED
        assert offsets(answer) == []
        denied.epoch = 1
        answer = await denied.acknowledge({0: [(0, 0, ACCEPT)]})
        assert row_error(answer) == ErrorCode.TOPIC_AUTHORIZATION_FAILED
        answer = await denied.fetch(acks={0: [(0, 0, ACCEPT)]})
        assert ack_error(answer) == ErrorCode.TOPIC_AUTHORIZATION_FAILED

    story(tell)


def test_partitions_that_are_not_there_or_led_elsewhere() -> None:
    async def tell(_node: Node, client: Client) -> None:
        answer = await client.fetch(partitions=[0, 9], topic_id=OTHER_ID, MaxWaitMs=5_000)
        assert row_error(answer, 0) == ErrorCode.UNKNOWN_TOPIC_ID
        before = now_ms()
        await client.fetch(partitions=[0])  # all there is
        answer = await client.fetch(partitions=[9], MaxWaitMs=5_000)
        codes = {row["ErrorCode"] for topic in answer["Responses"] for row in topic["Partitions"]}
        assert ErrorCode.UNKNOWN_TOPIC_OR_PARTITION in codes
        assert now_ms() == before, "bad news do not wait"
        answer = await client.acknowledge({9: [(0, 0, ACCEPT)]})
        assert row_error(answer, 9) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    story(tell)


@pytest.mark.parametrize("broker_id", [2, None])
def test_a_broker_that_does_not_lead_says_who_does(broker_id: int | None) -> None:
    async def tell(node: Node, client: Client) -> None:
        lost = Client(node, client.services, ScriptedConnection(62, broker_id))
        for answer in (await lost.fetch(), await lost.acknowledge({0: [(0, 0, ACCEPT)]})):
            assert row_error(answer) == ErrorCode.NOT_LEADER_OR_FOLLOWER
            assert rows(answer)[0]["CurrentLeader"]["LeaderId"] == 1
            endpoints = {e["NodeId"]: (e["Host"], e["Port"]) for e in answer["NodeEndpoints"]}
            assert endpoints == {1: ("keyway", 9201), 2: ("keyway", 9202)}

    story(tell)


def test_no_share_request_is_answered_with_an_unknown_server_error() -> None:
    """To stock clients it is no reason to try again, and it says nothing."""
    kinds = list(GroupError.__subclasses__())
    for kind in kinds:
        kinds += kind.__subclasses__()
    assert len(kinds) > 5
    assert [kind for kind in kinds if kind.code == ErrorCode.UNKNOWN_SERVER_ERROR] == []


def test_acknowledging_waits_for_a_window_that_is_being_loaded() -> None:
    async def tell(node: Node, client: Client) -> None:
        await client.fetch()
        node.store.failures = [FencedError("another node")]
        answer = await client.acknowledge({0: [(0, 0, ACCEPT)]})
        assert row_error(answer) == ErrorCode.NONE
        node.window().fail(FencedError("another node"))
        answer = await client.acknowledge({0: [(1, 1, ACCEPT)]}, epoch=-1)
        assert row_error(answer) == ErrorCode.NONE, "also when the session ends with it"
        assert node.stored[node.window().key] == 2

    story(tell)


def test_what_was_not_handled_before_is_asked_for_the_first_time() -> None:
    """A record that is settled already is refused, as if the window had been up."""

    async def tell(node: Node, client: Client) -> None:
        await client.fetch()
        await client.acknowledge({0: [(0, 0, ACCEPT)]})
        node.window().fail(FencedError("another node"))
        answer = await client.acknowledge({0: [(0, 0, ACCEPT)]})
        assert row_error(answer) == ErrorCode.INVALID_RECORD_STATE

    story(tell)


def test_what_was_in_doubt_is_no_error_when_the_client_asks_again() -> None:
    """The store has taken it, its answer was lost, and then the store was away for long."""

    async def tell(node: Node, client: Client) -> None:
        await client.fetch()
        node.store.gate = asyncio.Event()
        asked = asyncio.ensure_future(client.acknowledge({0: [(0, 0, ACCEPT)]}))
        await until(lambda: node.stored[node.window().key] == 1)
        node.store.down = True
        node.window().fail(StoreError("no answer"))
        assert row_error(await asked) == ErrorCode.COORDINATOR_NOT_AVAILABLE
        node.store.down, node.store.gate = False, None
        await until(lambda: node.window().dispatcher is not None)
        for told in (ErrorCode.NONE, ErrorCode.INVALID_RECORD_STATE):
            assert row_error(await client.acknowledge({0: [(0, 0, ACCEPT)]})) == told

    story(tell)


def test_acknowledging_while_the_state_is_away_can_be_retried() -> None:
    async def tell(node: Node, client: Client) -> None:
        await client.fetch(partitions=[0, 1])
        node.store.down = True
        before = now_ms()
        acks = {0: [(0, 0, ACCEPT)], 1: [(0, 0, ACCEPT)]}
        answer = await client.acknowledge(acks)
        assert [row_error(answer, p) for p in (0, 1)] == [ErrorCode.COORDINATOR_NOT_AVAILABLE] * 2
        assert now_ms() - before < 6_000, "one wait for all of them"
        node.store.down = False
        answer = await client.fetch(MaxWaitMs=10)
        assert error(answer) == ErrorCode.NONE
        await until(lambda: node.window().dispatcher is not None)
        answer = await client.acknowledge({0: [(0, 0, ACCEPT)]})
        assert row_error(answer) == ErrorCode.NONE

    story(tell, partitions=2)


class LostAnswers(ScriptedStore):
    """Applies what it is sent; some of its answers do not arrive."""

    lost = 0

    async def apply(self, writes: Sequence[Write]) -> list[StoreError | None]:
        results = await super().apply(writes)
        if not self.lost:
            return results
        self.lost -= 1
        return [StoreError("no answer")] * len(writes)


def test_what_the_store_has_taken_without_an_answer_is_no_error() -> None:
    """Who hears that a record is not acquired takes it for another's, and undoes the work."""

    async def work() -> None:
        store = LostAnswers()
        async with Node(GroupSection(auto_offset_reset="earliest"), store=store) as node:
            node.log.produce(b"a", b"b")
            client = await joined(node)
            assert offsets(await client.fetch()) == [0, 1]
            store.lost = 2  # of the write, and of its repetition
            answer = await client.acknowledge({0: [(0, 1, ACCEPT)]})
            assert row_error(answer) == ErrorCode.NONE
            assert node.stored[node.window().key] == 2

    run(work())
