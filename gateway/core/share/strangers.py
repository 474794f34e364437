"""Requests about the name of a Key-Shared group that are not a share consumer's: a consumer that
would join it, and commits of its offsets by who is no member. Kafka refuses them for its own share
groups, also while these are empty, with the codes that are used here (4.3.1).

What a member of an upstream group sends passes: upstream knows its members.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from gateway.core.wire.apis import ApiKey, request_header_version
from gateway.core.wire.decode import Reader
from gateway.core.wire.errors import ErrorCode, WireError
from gateway.core.wire.frames import parse_request_header
from gateway.core.wire.schema import Message
from keyway.commit_metadata.core.metadata import read_times

GUARDED: Final = frozenset(
    {
        int(ApiKey.JOIN_GROUP),
        int(ApiKey.CONSUMER_GROUP_HEARTBEAT),
        int(ApiKey.STREAMS_GROUP_HEARTBEAT),
        int(ApiKey.OFFSET_COMMIT),
        int(ApiKey.TXN_OFFSET_COMMIT),
        int(ApiKey.OFFSET_DELETE),
    }
)
_JOIN_EPOCH: Final = 0


def group_named(payload: bytes) -> str | None:
    """The group of a request of GUARDED, without its size; None if it is not readable. The rest of
    it is not decoded: all commits of plain groups come along here.
    """
    try:
        header = parse_request_header(payload)
        reader = Reader(payload, header.body_at)
        flexible = request_header_version(header.api_key, header.api_version) == 2
        names = (
            2 if header.api_key == ApiKey.TXN_OFFSET_COMMIT else 1
        )  # behind that of its producer
        at = size = 0
        for _ in range(names):
            size = reader.uvarint() - 1 if flexible else reader.i16()
            if size < 0:
                return None
            at = reader.skip(size)
        return payload[at : at + size].decode()
    except (WireError, UnicodeDecodeError):
        return None


def is_strangers(api_key: int, body: Message) -> bool:
    """Whether who sends it is no member, as far as the request says."""
    match api_key:
        case ApiKey.JOIN_GROUP:
            return not body["MemberId"]
        case ApiKey.CONSUMER_GROUP_HEARTBEAT | ApiKey.STREAMS_GROUP_HEARTBEAT:
            return bool(body["MemberEpoch"] == _JOIN_EPOCH)
        case ApiKey.OFFSET_COMMIT:
            return bool(body["GenerationIdOrMemberEpoch"] < 0)
        case ApiKey.TXN_OFFSET_COMMIT:
            return bool(body["GenerationId"] < 0)
        case _:
            return True


def sets_position(api_key: int, body: Message) -> bool:
    """Whether it commits positions of a Key-Shared group, as offsets that follow from another
    cluster do: their metadata tells of which life of the window they are. One that has it vouches
    for the others: a partition may have come from a plain consumer, without.
    """
    return api_key == ApiKey.OFFSET_COMMIT and any(
        read_times(entry["CommittedOffset"], entry["CommittedMetadata"] or "").origin
        for entry in _partitions(body)
    )


def refusal(api_key: int, body: Message, later: ErrorCode | None = None) -> Message:
    """Kafka's answer for a share group of its own; `later`: the request is to come again."""
    code = int(ErrorCode.GROUP_ID_NOT_FOUND if later is None else later)
    if api_key == ApiKey.JOIN_GROUP:
        return {"ErrorCode": int(later or ErrorCode.INCONSISTENT_GROUP_PROTOCOL)}
    if api_key in (ApiKey.CONSUMER_GROUP_HEARTBEAT, ApiKey.STREAMS_GROUP_HEARTBEAT):
        text = f"Group {body['GroupId']} is not a consumer group."
        if api_key == ApiKey.STREAMS_GROUP_HEARTBEAT:
            text = f"Group {body['GroupId']} is not a streams group."
        return {"ErrorCode": code, "ErrorMessage": text if later is None else None}
    if api_key == ApiKey.OFFSET_DELETE:
        return {"ErrorCode": code}
    topics = [
        {
            **{name: topic[name] for name in ("Name", "TopicId") if name in topic},
            "Partitions": [
                {"PartitionIndex": entry["PartitionIndex"], "ErrorCode": code}
                for entry in topic["Partitions"]
            ],
        }
        for topic in body["Topics"]
    ]
    return {"Topics": topics}


def _partitions(body: Message) -> Iterator[Message]:
    for topic in body["Topics"]:
        yield from topic["Partitions"]
