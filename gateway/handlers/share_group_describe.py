"""ShareGroupDescribe (77) v1: state, epochs, members and their assignments of the groups this node
coordinates, also of one that only the store or Kafka remembers.

As in Kafka, a client that may describe the group, but not every topic of its members, gets
TOPIC_AUTHORIZATION_FAILED and no members. A group is described once, however often it is named, and
an answer has a bound: a request of 13 KB that named one group a thousand times held the node up for
seconds.

Not implemented: a target assignment that differs from the current one; there is none.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from gateway.core.cluster.acl import DESCRIBE
from gateway.core.cluster.topology import Topology
from gateway.core.share.membership import Assignment, ShareGroup
from gateway.core.wire.codec import decode_request, encode_response
from gateway.core.wire.errors import ErrorCode
from gateway.core.wire.schema import Message
from gateway.handlers.coordinating import no_room
from gateway.handlers.limits import (
    DESCRIBED_GROUP_ROWS_MAX,
    DESCRIBED_ROWS_MAX,
    PARTITIONS_OF_A_ROW,
)
from gateway.handlers.share_requests import ShareServices
from gateway.listen.answering import Client, Request
from gateway.operations.errors import OperationError

OPERATIONS_NOT_ASKED = -(2**31)


FindGroup = Callable[[str], Awaitable[ShareGroup | None]]  # raises OperationError


async def share_group_describe(services: ShareServices, find: FindGroup, request: Request) -> bytes:
    header = request.header
    body = decode_request(header.api_key, header.api_version, request.frame, header.body_at)
    operations, connection = body["IncludeAuthorizedOperations"], request.connection
    groups: list[Message] = []
    left = DESCRIBED_ROWS_MAX
    for name in dict.fromkeys(body["GroupIds"]):
        known = services.groups.get(name)
        rows = 0 if known is None else rows_of(known)
        if left < DESCRIBED_ROWS_MAX and rows > left:
            groups.append(no_room(name))
            continue
        left -= rows
        groups.append(await _describe(services, find, connection, name, operations=operations))
        await asyncio.sleep(0)
    return encode_response(header.api_key, header.api_version, {"Groups": groups})


def rows_of(group: ShareGroup) -> int:
    """Of the group's description. Members with the same topics have the same partitions."""
    of_topics: dict[int, int] = {}
    rows = 0
    for member in group.members.values():
        own = of_topics.get(id(member.topics))
        if own is None:
            assigned = member.assignment.values()
            own = 1 + sum(1 + len(numbers) // PARTITIONS_OF_A_ROW for numbers in assigned)
            of_topics[id(member.topics)] = own
        rows += own
    return rows


async def _describe(
    services: ShareServices,
    find: FindGroup,
    connection: Client,
    name: str,
    *,
    operations: bool,
) -> Message:
    allowed = await services.authoriser.may_describe_group(connection, name)
    if not allowed:
        return {"GroupId": name, "ErrorCode": int(ErrorCode.GROUP_AUTHORIZATION_FAILED)}
    try:
        group = await find(name)
    except OperationError as error:
        return {"GroupId": name, "ErrorCode": int(error.code), "ErrorMessage": str(error)}
    if group is None:
        return {
            "GroupId": name,
            "ErrorCode": int(ErrorCode.GROUP_ID_NOT_FOUND),
            "ErrorMessage": f"Group {name} not found.",
            "GroupState": "Dead",
        }
    if await services.authoriser.denied_topics(connection, group.topics(), DESCRIBE):
        return {
            "GroupId": name,
            "ErrorCode": int(ErrorCode.TOPIC_AUTHORIZATION_FAILED),
            "ErrorMessage": "The group has topics that you may not describe.",
        }
    if (rows := rows_of(group)) > DESCRIBED_GROUP_ROWS_MAX:
        return {
            "GroupId": name,
            "ErrorCode": int(ErrorCode.INVALID_REQUEST),
            "ErrorMessage": f"The description of the group has {rows} rows, more than"
            f" {DESCRIBED_GROUP_ROWS_MAX}. GET /v1/members shows its members in pages.",
        }
    bits = await services.authoriser.group_operations(connection, name) if operations else None
    return {
        "GroupId": name,
        "ErrorCode": 0,
        "GroupState": group.state,
        "GroupEpoch": group.epoch,
        "AssignmentEpoch": group.epoch,
        "AssignorName": "key-shared",
        "Members": _members(group, services.topology()),
        "AuthorizedOperations": OPERATIONS_NOT_ASKED if bits is None else bits,
    }


def _members(group: ShareGroup, topology: Topology) -> list[Message]:
    return [
        {
            "MemberId": member.member_id,
            "RackId": member.rack_id,
            "MemberEpoch": member.epoch,
            "ClientId": member.client_id,
            "ClientHost": member.client_host,
            "SubscribedTopicNames": list(member.topics),
            "Assignment": {"TopicPartitions": _assignment(member.assignment, topology)},
        }
        for member in group.members.values()
    ]


def _assignment(assignment: Assignment, topology: Topology) -> list[Message]:
    return [
        {
            "TopicId": topic_id,
            "TopicName": topology.names.get(topic_id, ""),
            "Partitions": list(partitions),
        }
        for topic_id, partitions in assignment.items()
    ]
