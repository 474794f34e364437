"""AlterShareGroupOffsets (91) v0: sets the positions of an empty Key-Shared group.

As in Kafka: READ on the group and its topics, refused while the group has members, a group that
does not exist is created. Everything delivered before and not settled is forgotten with its
attempts, parked records as well. Not implemented: a check that the offset lies inside the log (a
member that starts outside of it starts as the group's auto.offset.reset says).
"""

from __future__ import annotations

from gateway.core.cluster.topology import Topic, TopicPartition
from gateway.core.wire.codec import decode_request, encode_response
from gateway.core.wire.errors import ErrorCode
from gateway.core.wire.schema import Message
from gateway.handlers.coordinating import send_on
from gateway.listen.answering import Client, Request
from gateway.listen.authoriser import Authoriser
from gateway.operations.errors import OperationError
from gateway.operations.group_offsets import GroupOffsets

_NO_ID = bytes(16)


async def alter_share_group_offsets(
    offsets: GroupOffsets, authoriser: Authoriser, request: Request
) -> bytes:
    header = request.header
    body = decode_request(header.api_key, header.api_version, request.frame, header.body_at)
    try:
        answer = await _alter(offsets, authoriser, request.connection, body)
    except OperationError as error:
        send_on(request.connection, error)
        answer = {"ErrorCode": int(error.code), "ErrorMessage": str(error)}
    return encode_response(header.api_key, header.api_version, answer)


async def _alter(
    offsets: GroupOffsets,
    authoriser: Authoriser,
    connection: Client,
    body: Message,
) -> Message:
    group = body["GroupId"]
    if not group:
        return {"ErrorCode": int(ErrorCode.INVALID_GROUP_ID)}
    if not await authoriser.may_read_group(connection, group):
        return {"ErrorCode": int(ErrorCode.GROUP_AUTHORIZATION_FAILED)}
    names = [row["TopicName"] for row in body["Topics"]]
    denied = await authoriser.denied_topics(connection, names)
    topics = await offsets.named_topics(name for name in names if name not in denied)
    wanted: dict[TopicPartition, int] = {}
    for row in body["Topics"]:
        topic = topics.get(row["TopicName"])
        for entry in row["Partitions"]:
            if topic is not None and _fault(topic, entry) is ErrorCode.NONE:
                tp = TopicPartition(topic.name, topic.topic_id, entry["PartitionIndex"])
                wanted[tp] = entry["StartOffset"]
    results = await offsets.set_positions(group, wanted)
    rows = []
    for row in body["Topics"]:
        name = row["TopicName"]
        topic = topics.get(name)
        entries = []
        for entry in row["Partitions"]:
            error = ErrorCode.TOPIC_AUTHORIZATION_FAILED if name in denied else _fault(topic, entry)
            if error is ErrorCode.NONE and topic is not None:
                error = results[TopicPartition(name, topic.topic_id, entry["PartitionIndex"])]
            entries.append({"PartitionIndex": entry["PartitionIndex"], "ErrorCode": int(error)})
        topic_id = _NO_ID if topic is None else topic.topic_id
        rows.append({"TopicName": name, "TopicId": topic_id, "Partitions": entries})
    return {"ErrorCode": 0, "Responses": rows}


def _fault(topic: Topic | None, entry: Message) -> ErrorCode:
    """The error of one partition of the request."""
    if topic is None or entry["PartitionIndex"] not in topic.partitions:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    if entry["StartOffset"] < 0:
        return ErrorCode.INVALID_REQUEST
    return ErrorCode.NONE
