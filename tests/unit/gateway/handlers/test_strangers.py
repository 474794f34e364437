"""A Key-Shared group's name in requests that are not a share consumer's."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest

from gateway.core.cluster.acl import DELETE, DESCRIBE, READ
from gateway.core.share.strangers import GUARDED
from gateway.core.wire.apis import ApiKey
from gateway.core.wire.codec import decode_response, encode_request
from gateway.core.wire.errors import ErrorCode
from gateway.core.wire.frames import parse_request_header, request_frame
from gateway.core.wire.schema import Message
from gateway.group_log import GroupLog
from gateway.handlers.strangers import Strangers
from gateway.listen.answering import Request
from gateway.listen.authoriser import Authoriser
from gateway.operations.errors import (
    GroupInUse,
    NotCoordinated,
    OperationError,
    StateUnavailable,
)
from keyway.commit_metadata.core.metadata import encode as encode_commit
from tests.rig.node_parts import GROUP, TOPIC, Node
from tests.rig.share_client import PASSED, SIZE_PREFIX, ScriptedConnection, joined
from tests.rig.virtual_time import now_ms, run

VERSION = 3  # all but OffsetDelete and the heartbeats have it


def committing(metadata: str = "", **fields: object) -> Message:
    row = {"PartitionIndex": 0, "CommittedOffset": 7, "CommittedMetadata": metadata}
    return {"GroupId": GROUP, "Topics": [{"Name": TOPIC, "Partitions": [row]}], **fields}


DELETED = [{"Name": TOPIC, "Partitions": [{"PartitionIndex": 0}]}]
BODIES: dict[ApiKey, tuple[int, Message]] = {
    ApiKey.JOIN_GROUP: (VERSION, {"GroupId": GROUP, "MemberId": ""}),
    ApiKey.CONSUMER_GROUP_HEARTBEAT: (0, {"GroupId": GROUP, "MemberId": "m", "MemberEpoch": 0}),
    ApiKey.STREAMS_GROUP_HEARTBEAT: (0, {"GroupId": GROUP, "MemberId": "m", "MemberEpoch": 0}),
    ApiKey.OFFSET_COMMIT: (VERSION, committing()),
    ApiKey.TXN_OFFSET_COMMIT: (VERSION, committing(TransactionalId="t")),
    ApiKey.OFFSET_DELETE: (0, {"GroupId": GROUP, "Topics": DELETED}),
}
EVERY = 1 << READ | 1 << DESCRIBE | 1 << DELETE


@dataclass
class Site:
    """A node with one Key-Shared group, and a stranger's connection to it."""

    node: Node
    connection: ScriptedConnection = field(
        default_factory=lambda: ScriptedConnection(99, operations=EVERY)
    )
    others: set[str] = field(default_factory=set)  # names of consumers' groups at upstream
    given_back: list[str] = field(default_factory=list)
    failure: OperationError | None = None  # of giving a name back

    def __post_init__(self) -> None:
        self.strangers = Strangers(
            self.node.groups, Authoriser(now_ms), self._have, self._give_back, GroupLog(now_ms)
        )

    async def _give_back(self, group: str) -> None:
        if self.failure is not None:
            raise self.failure
        self.given_back.append(group)

    async def _have(self, group: str) -> bool:
        return group in self.others

    async def ask(self, key: ApiKey, message: Message | None = None) -> Message | None:
        """None: the request has passed."""
        version, usual = BODIES[key]
        sent = request_frame(key, version, 1, "c", encode_request(key, version, message or usual))
        payload = sent[SIZE_PREFIX:]
        connection = self.connection.as_connection()
        if not self.strangers.stops(("", None), set(), key, version, payload):
            return None
        request = Request(parse_request_header(payload), payload, connection)
        answer = await self.strangers.answer(request)
        if answer == PASSED:
            assert self.connection.passed.pop() == payload, "as it came"
            return None
        return decode_response(key, version, answer)

    async def all_refused(self) -> bool:
        answers = [await self.ask(key) for key in BODIES]
        assert len({answer is None for answer in answers}) == 1, "all, or none"
        return answers[0] is not None


def test_every_api_is_tried() -> None:
    assert set(BODIES) == {ApiKey(key) for key in GUARDED}


def test_who_is_no_share_consumer_is_refused_while_there_are_members_and_after() -> None:
    async def work() -> None:
        async with Node() as node:
            site = Site(node)
            assert not await site.all_refused(), "a name like any other"
            client = await joined(node)
            assert await site.all_refused()
            assert await site.ask(ApiKey.OFFSET_COMMIT, committing(encode_commit(7, [], origin=5)))
            await client.heartbeat(-1)
            assert await site.all_refused()
            refused = site.connection.counters.requests_refused
            assert refused[ApiKey.JOIN_GROUP, ErrorCode.INCONSISTENT_GROUP_PROTOCOL] == 2
            assert refused[ApiKey.OFFSET_COMMIT, ErrorCode.GROUP_ID_NOT_FOUND] == 3
            node.groups.forget(GROUP)
            assert not await site.all_refused(), "its name is free"

    run(work())


def test_what_passes_while_a_group_has_no_members() -> None:
    async def work() -> None:
        async with Node() as node:
            site = Site(node)
            client = await joined(node)
            site.others.add(GROUP)
            assert await site.all_refused(), "share members have the name"
            await client.heartbeat(-1)
            assert not await site.all_refused(), "consumers have it, or had it"
            assert site.given_back == [GROUP] * len(BODIES), "the stand-in forgets no group"
            site.others.clear()
            site.given_back.clear()
            position = committing(encode_commit(7, [], origin=5))
            assert await site.ask(ApiKey.OFFSET_COMMIT, position) is None
            assert site.given_back == [], "it stays a Key-Shared group"

    run(work())


def test_a_name_that_cannot_be_given_back_yet_is_asked_for_again() -> None:
    async def work() -> None:
        async with Node() as node:
            site = Site(node)
            client = await joined(node)
            await client.heartbeat(-1)
            site.others.add(GROUP)
            for site.failure in (StateUnavailable("away"), NotCoordinated("another node")):
                code = site.failure.code
                for key in BODIES:
                    answer = await site.ask(key)
                    assert answer is not None
                    assert error_codes(answer) == {code}
                elsewhere = isinstance(site.failure, NotCoordinated)
                assert site.connection.drained is elsewhere
            site.failure = GroupInUse("share members have come")
            assert await site.all_refused()
            assert error_codes(await site.ask(ApiKey.OFFSET_COMMIT)) == {
                ErrorCode.GROUP_ID_NOT_FOUND
            }

    run(work())


def error_codes(answer: Message | None) -> set[int]:
    assert answer is not None
    if "ErrorCode" in answer:
        return {answer["ErrorCode"]}
    return {row["ErrorCode"] for topic in answer["Topics"] for row in topic["Partitions"]}


@pytest.mark.parametrize(
    ("key", "fields"),
    [
        (ApiKey.JOIN_GROUP, {"MemberId": "m"}),
        (ApiKey.CONSUMER_GROUP_HEARTBEAT, {"MemberEpoch": 4}),
        (ApiKey.STREAMS_GROUP_HEARTBEAT, {"MemberEpoch": 4}),
        (ApiKey.OFFSET_COMMIT, {"GenerationIdOrMemberEpoch": 4, "MemberId": "m"}),
        (ApiKey.TXN_OFFSET_COMMIT, {"GenerationId": 4, "MemberId": "m"}),
    ],
)
def test_upstream_knows_its_members(key: ApiKey, fields: Message) -> None:
    async def work() -> None:
        async with Node() as node:
            await joined(node)
            assert await Site(node).ask(key, {**BODIES[key][1], **fields}) is None

    run(work())


def test_who_has_no_right_on_the_group_hears_what_upstream_says_of_any_name() -> None:
    async def work() -> None:
        async with Node() as node:
            site = Site(node)
            await joined(node)
            site.connection.group_denied = True
            assert not await site.all_refused()
            site.connection.group_denied = False
            assert await site.all_refused(), "a denial that upstream has forgotten is not kept"

    run(work())


def test_deleting_offsets_takes_the_right_to_delete() -> None:
    async def work() -> None:
        async with Node() as node:
            site = Site(node)
            await joined(node)
            site.connection.operations = 1 << READ | 1 << DESCRIBE
            assert await site.ask(ApiKey.OFFSET_DELETE) is None
            site.connection.operations = 1 << DELETE | 1 << DESCRIBE
            assert await site.ask(ApiKey.OFFSET_DELETE) is not None

    run(work())


def test_a_group_that_goes_while_the_right_is_asked_for_is_nobodys() -> None:
    async def work() -> None:
        async with Node() as node:
            site = Site(node)
            client = await joined(node)
            await client.heartbeat(-1)
            key, (version, message) = ApiKey.OFFSET_COMMIT, BODIES[ApiKey.OFFSET_COMMIT]
            sent = request_frame(key, version, 1, "c", encode_request(key, version, message))
            payload = sent[SIZE_PREFIX:]
            request = Request(
                parse_request_header(payload), payload, site.connection.as_connection()
            )
            node.groups.forget(GROUP)
            assert await site.strangers.answer(request) == PASSED

    run(work())
