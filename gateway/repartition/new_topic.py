"""The new topic of one that moves: like the old one, but for its name and its partitions."""

from __future__ import annotations

from typing import Final

from gateway.core.cluster.discovery import metadata_request
from gateway.core.repartition.record import Repartition
from gateway.core.wire.apis import ApiKey
from gateway.core.wire.errors import ErrorCode
from gateway.core.wire.schema import Message
from gateway.operations.errors import InvalidOperation, StateUnavailable
from gateway.repartition.limits import CREATE_MS_MAX
from gateway.upstream.cluster import LATEST, READ_UNCOMMITTED, Upstream
from gateway.upstream.configs import own_topic_config
from gateway.upstream.errors import Refused
from gateway.upstream.requests import offsets_at_leader

# These name partitions of the old one.
_NOT_COPIED: Final = frozenset(
    {"leader.replication.throttled.replicas", "follower.replication.throttled.replicas"}
)


async def create_like(upstream: Upstream, record: Repartition) -> bytes:
    """The id of the topic, which this has created, or did before a crash. Raises OperationError,
    UpstreamError.
    """
    old = await _described(upstream, record.topic)
    configs = await own_topic_config(upstream, record.topic)
    topic = {
        "Name": record.into,
        "NumPartitions": record.after - record.before,
        "ReplicationFactor": len(old["Partitions"][0]["ReplicaNodes"]),
        "Configs": [
            {"Name": name, "Value": value}
            for name, value in sorted(configs.items())
            if name not in _NOT_COPIED
        ],
    }
    body = {"Topics": [topic], "timeoutMs": CREATE_MS_MAX}
    answer = await upstream.call(ApiKey.CREATE_TOPICS, body, timeout_ms=CREATE_MS_MAX)
    (row,) = answer["Topics"]
    if row["ErrorCode"] not in (0, ErrorCode.TOPIC_ALREADY_EXISTS):
        code = ErrorCode(row["ErrorCode"]).name
        raise StateUnavailable(f"CreateTopics: {code} {row['ErrorMessage'] or ''}".rstrip())
    return await _empty(upstream, record)


async def _empty(upstream: Upstream, record: Repartition) -> bytes:
    """Its id, if it is as this creates it and nobody has used it."""
    topic = await _described(upstream, record.into)
    records = 0
    for leader in {row["LeaderId"] for row in topic["Partitions"]}:
        if leader < 0:
            raise StateUnavailable(f"topic {record.into!r} has partitions without a leader")
        places = [
            (record.into, row["PartitionIndex"])
            for row in topic["Partitions"]
            if row["LeaderId"] == leader
        ]
        found = await offsets_at_leader(upstream, leader, places, LATEST, READ_UNCOMMITTED)
        for code, end in found.values():
            if code != 0:
                raise Refused(code, f"the log ends of topic {record.into!r}")
            records += end
    count = len(topic["Partitions"])
    if count != record.after - record.before or records:
        raise InvalidOperation(
            f"somebody else has created topic {record.into!r}: it has {count} partitions and"
            f" {records} records; `keyway repartition abort` it"
        )
    topic_id: bytes = topic["TopicId"]
    return topic_id


async def _described(upstream: Upstream, name: str) -> Message:
    """Its row in Metadata. The node's own view may hide it."""
    answer = await upstream.call(ApiKey.METADATA, metadata_request([name]))
    row: Message = answer["Topics"][0]
    if row["ErrorCode"] != 0:
        raise Refused(row["ErrorCode"], f"topic {name!r}")
    return row
