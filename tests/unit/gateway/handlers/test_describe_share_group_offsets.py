"""DescribeShareGroupOffsets: the bound of an answer."""

from __future__ import annotations

import pytest

from gateway.core.wire.apis import ApiKey
from gateway.core.wire.codec import decode_response, encode_request
from gateway.core.wire.errors import ErrorCode
from gateway.core.wire.frames import parse_request_header, request_frame
from gateway.core.wire.schema import Message
from gateway.handlers import describe_share_group_offsets as described
from gateway.listen.answering import Request
from gateway.listen.authoriser import Authoriser
from tests.rig.admin_parts import Admin, worked
from tests.rig.node_parts import GROUP, TOPIC
from tests.rig.share_client import SIZE_PREFIX, ScriptedConnection
from tests.rig.virtual_time import now_ms, run

KEY = ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS


async def groups_of(admin: Admin, *asked: Message) -> list[Message]:
    encoded = encode_request(KEY, 1, {"Groups": list(asked)})
    frame = request_frame(KEY, 1, 1, "client", encoded)[SIZE_PREFIX:]
    request = Request(parse_request_header(frame), frame, ScriptedConnection(1).as_connection())
    answer = await described.describe_share_group_offsets(
        admin.offsets, Authoriser(now_ms), request
    )
    groups: list[Message] = decode_response(KEY, 1, answer)["Groups"]
    return groups


def test_groups_beyond_the_bound_are_asked_for_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """A request of some KB may name a group with thousands of positions thousands of times."""
    monkeypatch.setattr(described, "DESCRIBED_ROWS_MAX", 3)
    every: Message = {"GroupId": GROUP, "Topics": None}
    two: Message = {"GroupId": GROUP, "Topics": [{"TopicName": TOPIC, "Partitions": [0, 1]}]}

    async def work() -> None:
        admin = Admin()
        async with admin.node:
            await worked(admin)
            rows = await groups_of(admin, every, two, every, two)
            later = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
            assert [row["ErrorCode"] for row in rows] == [0, 0, later, later]
            assert [len(row["Topics"]) for row in rows] == [1, 1, 0, 0]
            (row,) = await groups_of(admin, every)
            assert (row["ErrorCode"], len(row["Topics"])) == (0, 1)

    run(work())
