"""Admin requests about a group at a node that does not coordinate it any more."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

import pytest

from gateway.core.wire.apis import ApiKey
from gateway.core.wire.codec import decode_response, encode_request
from gateway.core.wire.errors import ErrorCode
from gateway.core.wire.frames import parse_request_header, request_frame
from gateway.core.wire.schema import Message
from gateway.handlers.alter_share_group_offsets import alter_share_group_offsets
from gateway.handlers.delete_groups import delete_groups
from gateway.handlers.delete_share_group_offsets import delete_share_group_offsets
from gateway.listen.answering import Request
from gateway.listen.authoriser import Authoriser
from gateway.members.coordination import EveryGroup, NotCoordinator
from tests.rig.admin_parts import Admin, worked
from tests.rig.node_parts import GROUP, TOPIC
from tests.rig.share_client import SIZE_PREFIX, ScriptedConnection
from tests.rig.virtual_time import now_ms, run

POSITION = [{"PartitionIndex": 0, "StartOffset": 0}]
REQUESTS: dict[ApiKey, tuple[int, Any, Message]] = {
    ApiKey.DELETE_GROUPS: (2, delete_groups, {"GroupsNames": [GROUP]}),
    ApiKey.ALTER_SHARE_GROUP_OFFSETS: (
        0,
        alter_share_group_offsets,
        {"GroupId": GROUP, "Topics": [{"TopicName": TOPIC, "Partitions": POSITION}]},
    ),
    ApiKey.DELETE_SHARE_GROUP_OFFSETS: (
        0,
        delete_share_group_offsets,
        {"GroupId": GROUP, "Topics": [{"TopicName": TOPIC}]},
    ),
}


class Elsewhere(EveryGroup):
    async def check(self, group: str, broker: int | None) -> None:  # noqa: ARG002
        raise NotCoordinator("Another node coordinates the group.")


@pytest.mark.parametrize("key", REQUESTS, ids=lambda key: key.name)
def test_the_client_is_sent_to_the_coordinator_and_nothing_is_changed(key: ApiKey) -> None:
    """It keeps its connection to the coordinator's broker id: that has to end, or it would ask here
    again until its time is over. Upstream's part must not be done alone.
    """
    version, handler, body = REQUESTS[key]

    async def work() -> None:
        admin = Admin()
        async with admin.node:
            await worked(admin)
            admin.offsets.coordination = Elsewhere()
            stored = dict(admin.node.stored)
            connection = ScriptedConnection(1)
            frame = request_frame(key, version, 1, "client", encode_request(key, version, body))
            payload = frame[SIZE_PREFIX:]
            request = Request(parse_request_header(payload), payload, connection.as_connection())
            handle: Callable[[Request], Awaitable[bytes]] = partial(
                handler, admin.offsets, Authoriser(now_ms)
            )
            answer = decode_response(key, version, await handle(request))
            error = answer["Results"][0] if key is ApiKey.DELETE_GROUPS else answer
            assert error["ErrorCode"] == ErrorCode.NOT_COORDINATOR
            assert connection.drained
            assert key not in connection.asked
            assert admin.node.stored == stored
            await asyncio.sleep(0)

    run(work())
