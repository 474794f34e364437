"""Letters to the dead letter queues that Kafka's configs name (KIP-1191).

What a broker does for its own share groups (gateway/core/share/dead_letter_queue.py), under the
node's identity: it looks at the topic and the cluster before each write, creates the topic if the
cluster says so, and writes to the partition with the record's own number, modulo their count. A
broker drops a letter that it cannot write. Here the caller keeps it and tries again.
"""

from __future__ import annotations

from collections.abc import Sequence

from gateway.core.cluster.topology import Topic
from gateway.core.share.dead_letter_queue import (
    AUTO_CREATE,
    BYTES_MAX,
    CREATED_WITH,
    ENABLED,
    PREFIX,
    batches,
    refusal,
)
from gateway.core.wire.apis import ApiKey
from gateway.core.wire.errors import ErrorCode, error_name
from gateway.core.wire.records import Record, build
from gateway.reading.limits import DEAD_LETTER_WRITE_MS_MAX, QUEUE_ANSWER_MS_MAX
from gateway.reading.record_times import TIMES_LANE
from gateway.upstream.cluster import Upstream
from gateway.upstream.configs import broker_config, topic_config
from gateway.upstream.errors import Refused, UpstreamError

# A write waits for the replicas, and holds up all behind it on its connection: each of those that
# are under way has its own.
FIRST_LETTERS_LANE = TIMES_LANE + 1
_ALL_IN_SYNC = -1
_BY_THE_BROKER = -1  # the count of partitions and of replicas


class NotWritable(UpstreamError):
    """The topic may not take letters, or not yet."""


async def write_to_queue(
    upstream: Upstream, topic: str, origin_partition: int, letters: Sequence[Record], slot: int
) -> list[str | None]:
    """One answer per letter: None once it is on all in-sync replicas, else the reason. `slot`: from
    0, of the write among those under way.
    """
    done: list[str | None] = []
    try:
        known, bytes_max = await _writable(upstream, topic)
        partition = origin_partition % len(known.partitions)
        for batch in batches(letters, bytes_max):
            await _write(upstream, known, partition, build(batch, base_offset=0), slot)
            done += [None] * len(batch)
    except UpstreamError as error:
        return done + [str(error)] * (len(letters) - len(done))
    return done


async def _writable(upstream: Upstream, name: str) -> tuple[Topic, int]:
    """The topic and the limit of its batches in bytes. Raises UpstreamError."""
    topology = await upstream.refresh([name])
    known = topology.topics.get(name)
    if known is not None and known.error == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
        known = None
    if known is not None and known.error:
        raise Refused(known.error, "the topic")
    of_cluster = await broker_config(upstream, min(topology.brokers), [PREFIX, AUTO_CREATE])
    of_topic = None if known is None else await topic_config(upstream, name, [ENABLED, BYTES_MAX])
    reason = refusal(name, of_cluster, of_topic)
    if reason is not None:
        raise NotWritable(reason)
    if known is None or of_topic is None or not known.partitions:
        await _create(upstream, name)
        raise NotWritable("the topic is being created")
    return known, int(of_topic[BYTES_MAX])


async def _create(upstream: Upstream, name: str) -> None:
    """Raises UpstreamError."""
    topic = {
        "Name": name,
        "NumPartitions": _BY_THE_BROKER,
        "ReplicationFactor": _BY_THE_BROKER,
        "Configs": [{"Name": key, "Value": value} for key, value in CREATED_WITH.items()],
    }
    answer = await upstream.call(ApiKey.CREATE_TOPICS, {"Topics": [topic]})
    code = answer["Topics"][0]["ErrorCode"]
    if code not in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS):
        raise Refused(code, "its creation")


async def _write(upstream: Upstream, topic: Topic, partition: int, batch: bytes, slot: int) -> None:
    """Raises UpstreamError."""
    row = {"Index": partition, "Records": batch}
    data = {"Name": topic.name, "TopicId": topic.topic_id, "PartitionData": [row]}
    answer = await upstream.call(
        ApiKey.PRODUCE,
        {"Acks": _ALL_IN_SYNC, "TimeoutMs": DEAD_LETTER_WRITE_MS_MAX, "TopicData": [data]},
        broker_id=topic.partitions[partition].leader,
        lane=FIRST_LETTERS_LANE + slot,
        timeout_ms=QUEUE_ANSWER_MS_MAX,
    )
    told = answer["Responses"][0]["PartitionResponses"][0]
    if told["ErrorCode"]:
        text = told["ErrorMessage"] or error_name(told["ErrorCode"])
        raise NotWritable(text)
