"""DeleteShareGroupOffsets, as far as upstream alone does not decide."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest

from gateway.core.wire.apis import ApiKey
from gateway.core.wire.codec import decode_response, encode_request
from gateway.core.wire.errors import ErrorCode
from gateway.core.wire.frames import parse_request_header, request_frame
from gateway.core.wire.schema import Message
from gateway.handlers.delete_share_group_offsets import delete_share_group_offsets
from gateway.listen.answering import Request
from gateway.listen.authoriser import Authoriser
from tests.rig.admin_parts import Admin, worked
from tests.rig.node_parts import GROUP, TOPIC
from tests.rig.share_client import SIZE_PREFIX, ScriptedConnection
from tests.rig.virtual_time import now_ms, run

KEY = ApiKey.DELETE_SHARE_GROUP_OFFSETS
DENIED = int(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
NO_SUCH = "no-such-topic"


@dataclass(slots=True, eq=False)
class Deleting(ScriptedConnection):
    """Upstream answers OffsetDelete with this code for the group."""

    code: ErrorCode = ErrorCode.NONE
    named: list[str] = field(default_factory=list)  # topics

    async def ask_upstream(self, api_key: int, api_version: int, body: Message) -> Message:
        if api_key != ApiKey.OFFSET_DELETE:
            return await ScriptedConnection.ask_upstream(self, api_key, api_version, body)
        self.named += [topic["Name"] for topic in body["Topics"]]
        return {"ErrorCode": int(self.code), "Topics": []}


async def deleted(admin: Admin, connection: Deleting) -> Message:
    body = {"GroupId": GROUP, "Topics": [{"TopicName": TOPIC}, {"TopicName": NO_SUCH}]}
    frame = request_frame(KEY, 0, 1, "client", encode_request(KEY, 0, body))[SIZE_PREFIX:]
    request = Request(parse_request_header(frame), frame, connection.as_connection())
    answer = await delete_share_group_offsets(admin.offsets, Authoriser(now_ms), request)
    return decode_response(KEY, 0, answer)


@pytest.mark.parametrize("code", [ErrorCode.NONE, ErrorCode.GROUP_ID_NOT_FOUND])
def test_who_may_not_read_a_topic_does_not_learn_whether_there_is_one(code: ErrorCode) -> None:
    """And nothing of it is forgotten, also of a group that has committed nothing."""

    async def work() -> None:
        admin = Admin()
        async with admin.node:
            await worked(admin)
            stored = dict(admin.node.stored)
            connection = Deleting(1, denied={TOPIC, NO_SUCH}, code=code)
            answer = await deleted(admin, connection)
            assert answer["ErrorCode"] == 0
            errors = {row["TopicName"]: row["ErrorCode"] for row in answer["Responses"]}
            assert errors == {TOPIC: DENIED, NO_SUCH: DENIED}
            assert connection.named == []
            assert admin.node.stored == stored

    run(work())


def test_upstream_looks_at_the_right_on_the_group_whatever_the_topics_are() -> None:
    async def work() -> None:
        admin = Admin()
        async with admin.node:
            await worked(admin)
            code = ErrorCode.GROUP_AUTHORIZATION_FAILED
            answer = await deleted(admin, Deleting(1, denied={TOPIC, NO_SUCH}, code=code))
            assert answer["ErrorCode"] == code

    run(work())


def test_topics_that_it_may_read_are_forgotten() -> None:
    async def work() -> None:
        admin = Admin()
        async with admin.node:
            await worked(admin)
            connection = Deleting(1, unknown={NO_SUCH})
            answer = await deleted(admin, connection)
            errors = {row["TopicName"]: row["ErrorCode"] for row in answer["Responses"]}
            assert errors == {TOPIC: 0, NO_SUCH: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
            assert connection.named == [TOPIC]

    run(work())
