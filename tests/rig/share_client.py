"""A client of the share handlers without a socket: requests go in as bytes, answers come out."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Container, Mapping
from dataclasses import dataclass, field
from typing import Any, cast

from dispatcher.core.model import AckType
from gateway.config.groups import GroupSection
from gateway.core.cluster.acl import DESCRIBE, READ
from gateway.core.share.membership import ShareGroup
from gateway.core.wire.apis import ApiKey
from gateway.core.wire.codec import decode_response, encode_request
from gateway.core.wire.errors import ErrorCode
from gateway.core.wire.frames import parse_request_header, request_frame
from gateway.core.wire.long_bytes import LongBytes, view_of, whole
from gateway.core.wire.schema import Message
from gateway.handlers.share_acknowledge import share_acknowledge
from gateway.handlers.share_fetch import share_fetch
from gateway.handlers.share_group_describe import FindGroup, share_group_describe
from gateway.handlers.share_group_heartbeat import share_group_heartbeat
from gateway.handlers.share_requests import ShareServices
from gateway.listen.answering import Client as ClientConnection
from gateway.listen.answering import Request
from gateway.listen.authoriser import Authoriser
from gateway.listen.bounds import AnswerRoom, Bounds
from gateway.listen.connection_facts import ConnectionFacts
from gateway.listen.counters import Counters
from gateway.upstream.errors import UpstreamError
from tests.rig.node_parts import GROUP, TOPIC, TOPIC_ID, Node, topology
from tests.rig.virtual_time import now_ms, run, settle

Acks = list[tuple[int, int, bytes]]
ACCEPT = bytes([AckType.ACCEPT])
OTHER_ID = b"another topic id"
ALL_OPERATIONS = 1 << READ | 1 << DESCRIBE
SIZE_PREFIX = 4
PASSED = b"upstream's answer"


@dataclass(slots=True, eq=False)
class ScriptedConnection:
    """A client's connection as a handler sees it; the test says the upstream's ACLs."""

    id: int
    broker_id: int | None = 1
    listener: str = "clients"
    facts: ConnectionFacts = field(default_factory=lambda: ConnectionFacts(host="10.0.0.1"))
    group_denied: bool = False
    denied: set[str] = field(default_factory=set)  # topics
    unknown: set[str] = field(default_factory=set)  # topics that its broker has not heard of
    may_read: set[tuple[str, str]] = field(default_factory=set)
    asked: list[int] = field(default_factory=list)  # API keys
    gates: dict[int, asyncio.Event] = field(default_factory=dict)  # by API key
    failure: UpstreamError | None = None
    bounds: Bounds = field(default_factory=lambda: Bounds(lambda _id: None, lambda: 0))
    counters: Counters = field(default_factory=Counters)
    sessions_max: int | None = None  # the limit of its account
    operations: int = ALL_OPERATIONS  # on every group and topic that it is not denied
    passed: list[bytes] = field(default_factory=list)  # its requests that went upstream
    drained: bool = False

    def drain(self) -> None:
        self.drained = True

    @property
    def answer_room(self) -> AnswerRoom:
        return AnswerRoom(self.bounds, self.id)

    def may_open_session(self, open_on: Callable[[int], int]) -> bool:
        return self.sessions_max is None or open_on(self.id) < self.sessions_max

    async def ask_upstream(self, api_key: int, api_version: int, body: Message) -> Message:
        encode_request(api_key, api_version, body)  # it could be sent
        self.asked.append(api_key)
        if api_key in self.gates:
            await self.gates[api_key].wait()
        if self.failure is not None:
            raise self.failure
        if api_key == ApiKey.HEARTBEAT:
            denied = ErrorCode.GROUP_AUTHORIZATION_FAILED
            return {"ErrorCode": denied if self.group_denied else ErrorCode.UNKNOWN_MEMBER_ID}
        if api_key == ApiKey.DESCRIBE_GROUPS:
            return {"Groups": [self._described_group()]}
        assert api_key == ApiKey.METADATA
        return {"Topics": [self._described(topic["Name"]) for topic in body["Topics"]]}

    async def pass_on(self, payload: bytes) -> bytes:
        self.passed.append(payload)
        return PASSED

    def _described_group(self) -> Message:
        if self.group_denied:
            return {"ErrorCode": ErrorCode.GROUP_AUTHORIZATION_FAILED, "AuthorizedOperations": 0}
        return {"ErrorCode": 0, "AuthorizedOperations": self.operations}

    def _described(self, name: str) -> Message:
        if name in self.denied:
            error = ErrorCode.TOPIC_AUTHORIZATION_FAILED
            return {"Name": name, "ErrorCode": error, "TopicAuthorizedOperations": 0}
        if name in self.unknown:
            error = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            return {"Name": name, "ErrorCode": error, "TopicAuthorizedOperations": 0}
        return {"Name": name, "ErrorCode": 0, "TopicAuthorizedOperations": self.operations}

    def as_connection(self) -> ClientConnection:
        return cast(ClientConnection, self)


async def nothing_is_overtaken(group: str) -> None:
    """No name was another group's before."""


def services(node: Node, others: Container[str] = ()) -> ShareServices:
    """`others`: names under which members of another kind of group are at work."""

    async def other_type_active(group: str) -> bool:
        return group in others

    async def refresh(_topics: list[str]) -> Any:
        if node.refresh_failure is not None:
            raise node.refresh_failure
        return node.topology

    def delivered(group: str, topic: str, records: int, size: int) -> None:
        node.delivered.count(topic, size)
        node.flow.sent(group, topic, records)

    return ShareServices(
        settings=node.settings,
        topology=lambda: node.topology,
        advertised=lambda _: {1: ("keyway", 9201), 2: ("keyway", 9202)},
        refresh=refresh,
        groups=node.groups,
        windows=node.windows.table,
        news=node.windows.news,
        records=node.log,
        authoriser=Authoriser(now_ms),
        ready=node.ready,
        other_type_active=other_type_active,
        clear_overtaken=nothing_is_overtaken,
        delivered=delivered,
        now_ms=now_ms,
        owners=node.owners,
    )


HANDLERS: dict[ApiKey, Callable[[ShareServices, Request], Awaitable[bytes | LongBytes]]] = {
    ApiKey.SHARE_GROUP_HEARTBEAT: share_group_heartbeat,
    ApiKey.SHARE_FETCH: share_fetch,
    ApiKey.SHARE_ACKNOWLEDGE: share_acknowledge,
    ApiKey.SHARE_GROUP_DESCRIBE: lambda of, asked: share_group_describe(of, _find(of), asked),
}


def _find(of: ShareServices) -> FindGroup:
    async def find(name: str) -> ShareGroup | None:
        return of.groups.get(name)

    return find


@dataclass(slots=True)
class Client:
    """One member on one connection to one virtual broker."""

    node: Node
    services: ShareServices
    connection: ScriptedConnection
    member: str = "m1"
    group: str = GROUP
    epoch: int = 0
    version: int = 1  # of ShareFetch and ShareAcknowledge
    asked: list[Request] = field(default_factory=list)

    async def ask(self, key: ApiKey, body: Message) -> Message:
        version = 1 if key == ApiKey.SHARE_GROUP_HEARTBEAT else self.version
        frame = request_frame(key, version, 1, "client", encode_request(key, version, body))
        payload = frame[SIZE_PREFIX:]
        request = Request(parse_request_header(payload), payload, self.connection.as_connection())
        self.asked.append(request)
        return decode_response(key, version, whole(await HANDLERS[key](self.services, request)))

    async def fetch(
        self,
        *,
        partitions: list[int] | None = None,
        acks: Mapping[int, Acks] | None = None,
        topic_id: bytes = TOPIC_ID,
        epoch: int | None = None,
        **fields: Any,
    ) -> Message:
        """Names `partitions` (default: 0 when opening, none later) and counts the epoch up."""
        epoch = self.epoch if epoch is None else epoch
        if partitions is None:
            partitions = [0] if epoch == 0 else []
        body = {
            "GroupId": self.group,
            "MemberId": self.member,
            "ShareSessionEpoch": epoch,
            "MaxWaitMs": 0,
            "MinBytes": 1,
            "MaxBytes": 1_000_000,
            "MaxRecords": 100,
            "BatchSize": 100,
            "Topics": topics(partitions, acks or {}, topic_id),
            **fields,
        }
        self.epoch += 1
        return await self.ask(ApiKey.SHARE_FETCH, body)

    async def acknowledge(
        self,
        acks: Mapping[int, Acks],
        *,
        epoch: int | None = None,
        topic_id: bytes = TOPIC_ID,
        **fields: Any,
    ) -> Message:
        body = {
            "GroupId": self.group,
            "MemberId": self.member,
            "ShareSessionEpoch": self.epoch if epoch is None else epoch,
            "Topics": topics([], acks, topic_id),
            **fields,
        }
        self.epoch += 1
        return await self.ask(ApiKey.SHARE_ACKNOWLEDGE, body)

    async def heartbeat(
        self, epoch: int = 0, names: list[str] | None = None, **fields: Any
    ) -> Message:
        body = {
            "GroupId": self.group,
            "MemberId": self.member,
            "MemberEpoch": epoch,
            "RackId": None,
            "SubscribedTopicNames": [TOPIC] if names is None and epoch == 0 else names,
            **fields,
        }
        return await self.ask(ApiKey.SHARE_GROUP_HEARTBEAT, body)

    def hang_up(self) -> None:
        """As the server tells it; the caller cancels this connection's waiting requests."""
        self.node.groups.connection_lost(self.connection.id, now_ms())
        self.services.authoriser.connection_lost(self.connection.id)


def topics(partitions: list[int], acks: Mapping[int, Acks], topic_id: bytes) -> list[Message]:
    rows = [
        {"PartitionIndex": p, "AcknowledgementBatches": acks.get(p, [])}
        for p in dict.fromkeys([*partitions, *acks])
    ]
    return [{"TopicId": topic_id, "Partitions": rows}] if rows else []


def rows(answer: Message) -> dict[int, Message]:
    """The partitions of an answer that has but one topic, by number."""
    assert len(answer["Responses"]) <= 1
    return {
        row["PartitionIndex"]: row for topic in answer["Responses"] for row in topic["Partitions"]
    }


def offsets(answer: Message, partition: int = 0) -> list[int]:
    """Of the records in the answer, as ScriptedLog writes them; checked against the ranges."""
    row = rows(answer).get(partition)
    if row is None or not row["Records"]:
        return []
    records = bytes(view_of(row["Records"]))
    found = [int(text.split(b"-")[1]) for text in records.split(b",")]
    acquired = [o for first, last, _ in row["AcquiredRecords"] for o in range(first, last + 1)]
    assert acquired == found
    return found


def error(answer: Message) -> ErrorCode:
    return ErrorCode(answer["ErrorCode"])


def row_error(answer: Message, partition: int = 0) -> ErrorCode:
    return ErrorCode(rows(answer)[partition]["ErrorCode"])


def ack_error(answer: Message, partition: int = 0) -> ErrorCode:
    return ErrorCode(rows(answer)[partition]["AcknowledgeErrorCode"])


async def joined(node: Node, *, member: str = "m1", broker_id: int | None = 1) -> Client:
    """A client whose member is in the group, its windows loaded."""
    node.connections += 1
    connection = ScriptedConnection(node.connections, broker_id)
    client = Client(node, services(node), connection, member)
    answer = await client.heartbeat()
    assert answer["ErrorCode"] == 0, answer["ErrorMessage"]
    node.fetch(member, connection.id, group=client.group)
    await settle()
    return client


Story = Callable[[Node, Client], Awaitable[None]]


def story(tell: Story, section: GroupSection | None = None, *, partitions: int = 1) -> None:
    """Runs `tell` with a client that has joined; each partition has the records a, b and c."""

    async def work() -> None:
        async with Node(section, topology=topology(partitions)) as node:
            for partition in range(partitions):
                node.log.produce(b"a", b"b", b"c", partition=partition)
            await tell(node, await joined(node))

    run(work())
