"""A few real records of a topic, read with a plain consumer: it joins no group, commits nothing.

Used by `keyway pipeline check`, and by `run` before it starts: to see that the paths of the steps
lead somewhere takes a second, without Spark.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from keyway.clusters.config import Cluster
from keyway.kafka.log_ends import Partition
from keyway.kafka.to_ends import place_of, records_to

ANSWER_S_MAX = 20.0  # for an answer of the brokers, and between two records
SAMPLE_RECORDS_MAX = 10_000  # held in memory


class SampleError(Exception):
    """The records could not be read; says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SampledRecord:
    topic: str
    partition: int
    offset: int
    key: bytes | None
    value: bytes | None


def newest_records(cluster: Cluster, topic: str, records_max: int) -> list[SampledRecord]:
    """The newest committed records, about the same number from each partition: first the newest of
    each, then the one before. Fewer where the log has gaps. Raises SampleError, ConfigError.
    """
    assert 0 <= records_max <= SAMPLE_RECORDS_MAX
    settings: dict[str, str | int | float | bool] = {
        **cluster.client_settings(),
        "group.id": "keyway-pipeline-sample",  # librdkafka asks for one; it is never joined
        "enable.auto.commit": False,
        "enable.partition.eof": True,
        "isolation.level": "read_committed",
        "log_level": 0,  # faults are raised
    }
    try:
        consumer = Consumer(settings)
        try:
            found = _read(consumer, _places(consumer, topic, records_max))
        finally:
            consumer.close()
    except KafkaException as error:
        reason = error.args[0] if error.args else error
        text = reason.str() if isinstance(reason, KafkaError) else str(reason)
        raise SampleError(f"{topic} at {cluster.bootstrap_servers}: {text}") from None
    found.sort(key=lambda record: (record.partition, record.offset))
    return _cut(found, records_max)


def _places(consumer: Consumer, topic: str, records_max: int) -> dict[Partition, tuple[int, int]]:
    """From where to where each partition is read."""
    described = consumer.list_topics(topic, timeout=ANSWER_S_MAX).topics[topic]
    if described.error is not None:
        raise KafkaException(described.error)
    ends = {}
    for number in sorted(described.partitions):
        low, high = consumer.get_watermark_offsets(
            TopicPartition(topic, number), timeout=ANSWER_S_MAX
        )
        if high > low:
            ends[number] = (low, high)
    share = -(-records_max // max(len(ends), 1))
    # The offset behind the last record may be that of a transaction's end.
    return {
        (topic, number): (max(low, high - share - 1), high)
        for number, (low, high) in ends.items()
        if share
    }


def _read(consumer: Consumer, places: Mapping[Partition, tuple[int, int]]) -> list[SampledRecord]:
    consumer.assign([TopicPartition(*place, first) for place, (first, _) in places.items()])
    ends = {place: end for place, (_, end) in places.items()}
    found = []
    for message in records_to(consumer, ends, wait_s=ANSWER_S_MAX):
        topic, partition = place_of(message)
        offset = message.offset()
        assert offset is not None
        found.append(
            SampledRecord(
                topic=topic,
                partition=partition,
                offset=offset,
                key=message.key(),
                value=message.value(),
            )
        )
    return found


def _cut(records: list[SampledRecord], records_max: int) -> list[SampledRecord]:
    """The newest of each partition in turn, until there are enough."""
    queues: dict[int, list[SampledRecord]] = {}
    for record in records:
        queues.setdefault(record.partition, []).append(record)
    kept: list[SampledRecord] = []
    while len(kept) < records_max and any(queues.values()):
        for queue in queues.values():
            if queue and len(kept) < records_max:
                kept.append(queue.pop())
    return kept
