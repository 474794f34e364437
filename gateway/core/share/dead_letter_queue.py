"""The dead letter queue that Kafka's own configs give a share group (KIP-1191, share.version 2).

As Kafka 4.4.0 has it: `SharePartition.isDLQEnabledForGroup` decides whether there is one, and
`ShareGroupDLQStateManager$ProduceRequestHandler` (validateDlqTopic, headers, topicProduceData)
what is written. A letter has the context in headers and the broker's time; key and value only if
the group copies records. The record's own headers and its time are never copied.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from dispatcher.core.model import Reason
from gateway.core.cluster.topology import TopicPartition
from gateway.core.wire.records import Header, Record

# Configs of a group, ...
TOPIC_NAME = "errors.deadletterqueue.topic.name"
COPY_RECORD = "errors.deadletterqueue.copy.record.enable"
# ... of a topic, ...
ENABLED = "errors.deadletterqueue.group.enable"
BYTES_MAX = "max.message.bytes"
# ... and of the cluster.
PREFIX = "errors.deadletterqueue.topic.name.prefix"
AUTO_CREATE = "errors.deadletterqueue.auto.create.topics.enable"

SHARE_VERSION_MIN = 2  # the feature share.version: with 1 the configs are kept, and do nothing
CREATED_WITH = {ENABLED: "true", "message.timestamp.type": "CreateTime"}

_BATCH_BYTES = 61  # the head of a batch
_NUMBERS_BYTES = 40  # at most, of the sizes and numbers of one record
_HEADER_NUMBERS_BYTES = 10


@dataclass(frozen=True, slots=True)
class DeadLetterQueue:
    topic: str
    copies: bool  # key and value


def queue_of(configs: Mapping[str, str]) -> DeadLetterQueue | None:
    """What the configs of a group say; Kafka trims the name."""
    topic = configs.get(TOPIC_NAME, "").strip()
    return DeadLetterQueue(topic, is_true(configs.get(COPY_RECORD))) if topic else None


def is_true(value: str | None) -> bool:
    return value is not None and value.strip().lower() == "true"


def refusal(
    topic: str, of_cluster: Mapping[str, str], of_topic: Mapping[str, str] | None
) -> str | None:
    """Why no letter may be written to the topic; None if one may. `of_topic`: None while there is
    no such topic.
    """
    prefix = of_cluster.get(PREFIX, "")
    if topic.startswith("__"):
        return "the name of a dead letter queue must not start with '__'"
    if of_topic is not None and not is_true(of_topic.get(ENABLED)):
        return f"its config {ENABLED} is not true"
    if of_topic is None and not is_true(of_cluster.get(AUTO_CREATE)):
        return f"there is no such topic, and the cluster's {AUTO_CREATE} is not true"
    if not topic.startswith(prefix):
        return f"its name does not start with {prefix!r}, the cluster's {PREFIX}"
    return None


def letter(
    tp: TopicPartition,
    group: str,
    offset: int,
    deliveries: int,
    reason: Reason,
    copied: Record | None,
    now_ms: int,
) -> Record:
    """The letter for the record at `offset`. `copied`: None if the group copies none, or the record
    is not in the log any more.
    """
    rejected = reason is Reason.REJECTED
    headers: list[Header] = [
        ("__dlq.errors.topic", tp.topic.encode()),
        ("__dlq.errors.partition", b"%d" % tp.partition),
        ("__dlq.errors.offset", b"%d" % offset),
        ("__dlq.errors.group", group.encode()),
        ("__dlq.errors.delivery.count", b"%d" % deliveries),
        (
            "__dlq.errors.message",
            b"Offset rejected by client."
            if rejected
            else b"Offset delivery count exceeded the threshold.",
        ),
    ]
    key, value = (None, None) if copied is None else (copied.key, copied.value)
    return Record(0, now_ms, key, value, headers)


def batches(letters: Sequence[Record], bytes_max: int) -> Iterator[list[Record]]:
    """The letters in batches of at most so many bytes, numbered from 0 in each. One that is larger
    is a batch of its own: the broker decides.
    """
    batch: list[Record] = []
    size = _BATCH_BYTES
    for one in letters:
        more = _bytes_max_of(one)
        if batch and size + more > bytes_max:
            yield batch
            batch, size = [], _BATCH_BYTES
        batch.append(Record(len(batch), one.timestamp, one.key, one.value, one.headers))
        size += more
    if batch:
        yield batch


def _bytes_max_of(record: Record) -> int:
    own = len(record.key or b"") + len(record.value or b"") + _NUMBERS_BYTES
    return own + sum(
        len(name.encode()) + len(value or b"") + _HEADER_NUMBERS_BYTES
        for name, value in record.headers
    )
