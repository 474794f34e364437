"""DeleteShareGroupOffsets (92) v0: an empty Key-Shared group forgets topics: their windows and the
offsets it committed for them.

Upstream deletes the committed offsets first (OffsetDelete on the client's own connection), so it is
upstream that says whether this client may: DELETE on the group, READ on the topics, as Kafka wants
it of this API. A topic that the client may not read is refused whether or not there is one. Not
implemented: topics that exist no more are refused, though windows of them may be left; they go with
the group.
"""

from __future__ import annotations

from gateway.core.cluster.topology import Topic
from gateway.core.wire.apis import ApiKey
from gateway.core.wire.codec import decode_request, encode_response
from gateway.core.wire.errors import ErrorCode
from gateway.core.wire.schema import Message
from gateway.handlers.coordinating import send_on
from gateway.listen.answering import Client, Request
from gateway.listen.authoriser import Authoriser
from gateway.operations.errors import (
    GroupUnknown,
    OperationError,
    StateUnavailable,
    UpstreamRefused,
)
from gateway.operations.group_offsets import GroupOffsets
from gateway.upstream.errors import UpstreamError
from gateway.windows.window_keys import topic_id_text

_NO_ID = bytes(16)
_OFFSET_DELETE_VERSION = 0


async def delete_share_group_offsets(
    offsets: GroupOffsets, authoriser: Authoriser, request: Request
) -> bytes:
    header = request.header
    body = decode_request(header.api_key, header.api_version, request.frame, header.body_at)
    try:
        if await authoriser.may_describe_group(request.connection, body["GroupId"]):
            answer = await _delete(offsets, authoriser, request.connection, body)
        else:
            answer = {"ErrorCode": int(ErrorCode.GROUP_AUTHORIZATION_FAILED)}
    except OperationError as error:
        send_on(request.connection, error)
        answer = {"ErrorCode": int(error.code), "ErrorMessage": str(error)}
    return encode_response(header.api_key, header.api_version, answer)


async def _delete(
    offsets: GroupOffsets, authoriser: Authoriser, connection: Client, body: Message
) -> Message:
    group = body["GroupId"]
    if await offsets.find(group) is None:
        raise GroupUnknown(f"Group {group} not found.")
    names = [row["TopicName"] for row in body["Topics"]]
    denied = await authoriser.denied_topics(connection, names)
    topics = await offsets.named_topics(name for name in names if name not in denied)
    ids = {topic_id_text(topic.topic_id): name for name, topic in topics.items()}
    errors = dict.fromkeys(names, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    errors |= dict.fromkeys(denied, ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    async with offsets.at_rest(group, lambda key: key.topic_id in ids):
        # Also without a topic: upstream looks at the right on the group.
        errors |= await _delete_committed(connection, group, list(topics.values()))
        done = {topic_id for topic_id, name in ids.items() if errors[name] is ErrorCode.NONE}
        await offsets.begin_anew(group, [topics[ids[topic_id]] for topic_id in sorted(done)])
        await offsets.forget_windows(group, lambda key: key.topic_id in done)
    return {
        "ErrorCode": 0,
        "Responses": [
            {
                "TopicName": name,
                "TopicId": topics[name].topic_id if name in topics else _NO_ID,
                "ErrorCode": int(error),
            }
            for name, error in errors.items()
        ],
    }


async def _delete_committed(
    connection: Client, group: str, topics: list[Topic]
) -> dict[str, ErrorCode]:
    """An error by topic. Raises StateUnavailable, OperationError."""
    rows = [
        {
            "Name": topic.name,
            "Partitions": [{"PartitionIndex": number} for number in sorted(topic.partitions)],
        }
        for topic in topics
    ]
    try:
        answer = await connection.ask_upstream(
            ApiKey.OFFSET_DELETE, _OFFSET_DELETE_VERSION, {"GroupId": group, "Topics": rows}
        )
    except UpstreamError as error:
        raise StateUnavailable(f"upstream: {error}") from error
    if answer["ErrorCode"] == ErrorCode.GROUP_ID_NOT_FOUND:
        return {topic.name: ErrorCode.NONE for topic in topics}  # nothing was committed yet
    if answer["ErrorCode"]:
        raise UpstreamRefused(ErrorCode(answer["ErrorCode"]))
    errors = {topic.name: ErrorCode.NONE for topic in topics}
    for topic in answer["Topics"]:
        for entry in topic["Partitions"]:
            if entry["ErrorCode"]:
                errors[topic["Name"]] = ErrorCode(entry["ErrorCode"])
    return errors
