"""The orders of a Spark task that writes the records of one partition, and what it tells when it
has done so.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import pyarrow
from confluent_kafka import KafkaError

from keyway.clusters.core.names import Translation
from spark.streaming.limits import BATCH_BYTES, BATCH_OVERHEAD_BYTES

Settings = Mapping[str, Any]  # of librdkafka
Partition = tuple[str, int]  # topic as the source calls it, partition

RESULT_FIELDS = (
    ("topic", pyarrow.string()),
    ("partition", pyarrow.int32()),
    ("position", pyarrow.int64()),  # the next offset of the source to be copied
    ("copied", pyarrow.int64()),
    ("skipped", pyarrow.int64()),  # by flags
    ("already", pyarrow.int64()),  # copied by an earlier attempt
    ("repeats", pyarrow.int64()),  # written although the target has that origin
    ("doubts", pyarrow.int64()),  # copy headers that were not believed
    ("last_timestamp_ms", pyarrow.int64()),  # of the last record; -1: none
    ("bytes", pyarrow.int64()),  # as Arrow has them
    ("left_out", pyarrow.int64()),  # refused by the target: skipped, or among the dead letters
    ("last_left_out", pyarrow.string()),  # its offset and the target's words
    ("refused", pyarrow.string()),  # null, or why the topic stops behind `position`
)
Result = dict[str, Any]  # a row of RESULT_FIELDS
RESULT_SCHEMA = pyarrow.schema(RESULT_FIELDS)
RESULT_DDL = (
    "topic string, partition int, position bigint, copied bigint, skipped bigint, already bigint,"
    " repeats bigint, doubts bigint, last_timestamp_ms bigint, bytes bigint, left_out bigint,"
    " last_left_out string, refused string"
)
# What the target says of a record. Trying again cannot help.
RECORD_REFUSALS = frozenset(
    {
        KafkaError.MSG_SIZE_TOO_LARGE,
        KafkaError.INVALID_MSG,
        KafkaError.INVALID_MSG_SIZE,
        KafkaError.INVALID_RECORD,
        KafkaError.INVALID_TIMESTAMP,
        KafkaError.RECORD_LIST_TOO_LARGE,
    }
)
# Or of a topic: then the connection is not at fault either, and other topics are not concerned.
REFUSALS = RECORD_REFUSALS | {
    KafkaError.TOPIC_AUTHORIZATION_FAILED,
    KafkaError.POLICY_VIOLATION,
    KafkaError.TOPIC_EXCEPTION,
    KafkaError.UNKNOWN_TOPIC_OR_PART,
    KafkaError._UNKNOWN_TOPIC,
    KafkaError._UNKNOWN_PARTITION,
}
# What the target says of a topic that is to be created there, or to get more partitions. None of it
# is about the other topics.
MAKING_REFUSALS = frozenset(
    {
        KafkaError.TOPIC_AUTHORIZATION_FAILED,
        KafkaError.CLUSTER_AUTHORIZATION_FAILED,
        KafkaError.POLICY_VIOLATION,
        KafkaError.TOPIC_EXCEPTION,
        KafkaError.INVALID_PARTITIONS,
        KafkaError.INVALID_REPLICATION_FACTOR,
        KafkaError.INVALID_REPLICA_ASSIGNMENT,
        KafkaError.INVALID_CONFIG,
        KafkaError.INVALID_REQUEST,
        KafkaError.THROTTLING_QUOTA_EXCEEDED,
        KafkaError.REASSIGNMENT_IN_PROGRESS,
    }
)
MAKING = -1  # the partition of such a refusal: it is about the whole topic
CODECS = frozenset({"gzip", "snappy", "lz4", "zstd"})


@dataclass(frozen=True, slots=True)
class Taking:
    """How a topic of the target takes records: its `max.message.bytes` (0: unknown), which Kafka
    compares with a whole batch, and its `compression.type`.
    """

    bytes_max: int = 0
    compression: str = "producer"

    def settings(self, *, careful: bool) -> Settings:
        """`careful`: each record is a batch of its own, and is compressed unless something speaks
        against it, because it may have come to the source compressed.
        """
        codec = self.compression if self.compression in CODECS else "none"
        if careful and self.compression == "producer":
            codec = "zstd"
        room = max(1, self.bytes_max - BATCH_OVERHEAD_BYTES) if self.bytes_max else BATCH_BYTES
        settings = {"compression.type": codec, "batch.size": min(BATCH_BYTES, room)}
        return {**settings, "batch.num.messages": 1} if careful else settings


@dataclass(frozen=True, slots=True)
class Writing:
    """The orders of a task, pickled into it. `expected`: the positions this run has reached, by
    place; a place that is missing is taken up where its position on the target says.
    """

    group: str
    client: Mapping[str, str]  # settings of librdkafka, with credentials
    targets: Mapping[str, str]  # topic on the source: topic on the target
    topic_ids: Mapping[str, str]  # on the source; stored with the position
    expected: Mapping[Partition, int]
    ends: Mapping[Partition, int]  # of the ranges that Spark reads: the positions of finished tasks
    exactly_once: bool
    transaction_timeout_ms: int
    # Places of which this run has written nothing yet: a crash may have left unaccounted records.
    taken_up: frozenset[Partition] = frozenset()
    generation: int = 0  # of the last switch of targets: a later one fences this task
    epochs: Mapping[Partition, int] = field(default_factory=dict)  # of the logs' leaders
    # Where transforms route: from names on the target to logical ones. None: no row is routed.
    routed: Translation | None = None
    taking: Mapping[str, Taking] = field(default_factory=dict)  # by topic on the source
    again: bool = False  # the position is committed also where it stands: Kafka forgets old ones
    task_bytes_max: int = 2**62  # a task that has written more ends before its range
    # Of records that the target refuses: stop, skip, dead_letter; and the topic of the last.
    on_refused: str = "stop"
    dead_letter_topic: str = ""


@dataclass(slots=True)
class Tally:
    """What a task has done, in transactions that are committed."""

    position: int = -1
    copied: int = 0
    skipped: int = 0
    already: int = 0
    repeats: int = 0
    doubts: int = 0
    last_timestamp_ms: int = -1
    bytes: int = 0
    left_out: int = 0
    last_left_out: str = ""
