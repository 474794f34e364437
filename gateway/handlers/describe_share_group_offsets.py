"""DescribeShareGroupOffsets (90) v0-1: positions of Key-Shared groups; v1 adds the lag.

The start offset is the window's cursor. The lag counts offsets from there to the end of the log
that members may read, less those that are settled behind the cursor. As in Kafka it needs DESCRIBE
on the group and on its topics, by upstream's ACLs for this client's connection; topics that it may
not describe are left out when it asks for all. An answer has a bound: groups beyond it are left to
the next request. Not implemented: the leader epoch of the start offset (the partition's current one
is told).
"""

from __future__ import annotations

from gateway.core.cluster.acl import DESCRIBE
from gateway.core.cluster.topology import Topic
from gateway.core.wire.codec import decode_request, encode_response
from gateway.core.wire.errors import ErrorCode
from gateway.core.wire.schema import Message
from gateway.handlers.coordinating import no_room
from gateway.handlers.limits import DESCRIBED_ROWS_MAX
from gateway.listen.answering import Client, Request
from gateway.listen.authoriser import Authoriser
from gateway.operations.errors import OperationError
from gateway.operations.group_offsets import GroupOffsets, Partition, Position

_NO_OFFSET = -1  # the group has no position in that partition
_NO_LAG = -1
_NO_ID = bytes(16)


async def describe_share_group_offsets(
    offsets: GroupOffsets, authoriser: Authoriser, request: Request
) -> bytes:
    header = request.header
    body = decode_request(header.api_key, header.api_version, request.frame, header.body_at)
    groups: list[Message] = []
    rows = 0
    for asked in body["Groups"]:
        if rows >= DESCRIBED_ROWS_MAX:
            groups.append(no_room(asked["GroupId"]))
            continue
        try:
            described = await _describe(offsets, authoriser, request.connection, asked)
            rows += sum(len(topic["Partitions"]) for topic in described.get("Topics", ()))
            groups.append(described)
        except OperationError as error:
            groups.append(
                {
                    "GroupId": asked["GroupId"],
                    "ErrorCode": int(error.code),
                    "ErrorMessage": str(error),
                }
            )
    return encode_response(header.api_key, header.api_version, {"Groups": groups})


async def _describe(
    offsets: GroupOffsets,
    authoriser: Authoriser,
    connection: Client,
    asked: Message,
) -> Message:
    name = asked["GroupId"]
    if not await authoriser.may_describe_group(connection, name):
        return {"GroupId": name, "ErrorCode": int(ErrorCode.GROUP_AUTHORIZATION_FAILED)}
    if await offsets.find(name) is None:
        return {
            "GroupId": name,
            "ErrorCode": int(ErrorCode.GROUP_ID_NOT_FOUND),
            "ErrorMessage": f"Group {name} not found.",
        }
    positions = await offsets.positions(name)
    wanted: dict[str, list[int]] = {}
    if asked["Topics"] is None:
        for topic_name, partition in sorted(positions):
            wanted.setdefault(topic_name, []).append(partition)
    else:
        for row in asked["Topics"]:
            wanted.setdefault(row["TopicName"], []).extend(row["Partitions"])
    denied = await authoriser.denied_topics(connection, wanted, DESCRIBE)
    topics = await offsets.named_topics(name for name in wanted if name not in denied)
    rows = []
    for topic_name, partitions in wanted.items():
        topic = topics.get(topic_name)
        if topic is not None:
            rows.append(await _topic_row(offsets, name, topic, partitions, positions))
        elif asked["Topics"] is not None:
            error = (
                ErrorCode.TOPIC_AUTHORIZATION_FAILED
                if topic_name in denied
                else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            )
            rows.append(_refused_row(topic_name, partitions, error))
    return {"GroupId": name, "ErrorCode": 0, "Topics": rows}


async def _topic_row(
    offsets: GroupOffsets,
    group: str,
    topic: Topic,
    partitions: list[int],
    positions: dict[Partition, Position],
) -> Message:
    placed = [p for p in partitions if (topic.name, p) in positions and p in topic.partitions]
    ends = await offsets.log_ends(group, topic.name, placed) if placed else {}
    rows = []
    for partition in partitions:
        info = topic.partitions.get(partition)
        position = positions.get((topic.name, partition))
        if info is None:
            rows.append(_partition_row(partition, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))
            continue
        row = _partition_row(partition, ErrorCode.NONE)
        row["LeaderEpoch"] = info.leader_epoch
        if position is not None:
            row["StartOffset"] = position.offset
            if partition in ends:
                row["Lag"] = max(0, ends[partition] - position.offset - position.settled)
        rows.append(row)
    return {"TopicName": topic.name, "TopicId": topic.topic_id, "Partitions": rows}


def _refused_row(topic: str, partitions: list[int], error: ErrorCode) -> Message:
    rows = [_partition_row(partition, error) for partition in partitions]
    return {"TopicName": topic, "TopicId": _NO_ID, "Partitions": rows}


def _partition_row(partition: int, error: ErrorCode) -> Message:
    return {
        "PartitionIndex": partition,
        "StartOffset": _NO_OFFSET,
        "LeaderEpoch": 0,
        "Lag": _NO_LAG,
        "ErrorCode": int(error),
    }
