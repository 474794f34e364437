"""Letters to Kafka's dead letter queues: the questions before each write, and the write itself."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest

from gateway.core.share.dead_letter_queue import AUTO_CREATE, BYTES_MAX, ENABLED
from gateway.core.wire.apis import ApiKey
from gateway.core.wire.errors import ErrorCode
from gateway.core.wire.records import Record
from gateway.reading.queue_letters import write_to_queue
from tests.rig.dead_letter_queue import QUEUE, QueueKafka

LETTERS = [Record(0, 5, None, None, [("n", b"%d" % at)]) for at in range(3)]


def write(kafka: QueueKafka, origin_partition: int = 3) -> list[str | None]:
    return asyncio.run(write_to_queue(cast(Any, kafka), QUEUE, origin_partition, LETTERS, 0))


@pytest.mark.parametrize(("origin", "partition"), [(0, 0), (1, 1), (2, 0), (3, 1)])
def test_the_partition_is_that_of_the_record_modulo_their_count(
    origin: int, partition: int
) -> None:
    kafka = QueueKafka()
    assert write(kafka, origin) == [None] * 3
    ((written_to, records),) = kafka.written
    assert written_to == partition
    assert [record.headers for record in records] == [record.headers for record in LETTERS]
    assert {(record.key, record.value, record.timestamp) for record in records} == {(None, None, 5)}


def test_a_batch_that_is_refused_leaves_the_batches_before_it_written() -> None:
    kafka = QueueKafka()
    assert kafka.topic is not None
    kafka.topic[BYTES_MAX] = "1"
    kafka.refusals[ApiKey.PRODUCE] = [ErrorCode.NONE, ErrorCode.NOT_ENOUGH_REPLICAS]
    assert write(kafka) == [None, "NOT_ENOUGH_REPLICAS", "NOT_ENOUGH_REPLICAS"]
    assert len(kafka.written) == 1


@pytest.mark.parametrize("code", [ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS])
def test_a_queue_is_created_if_the_cluster_says_so(code: ErrorCode) -> None:
    kafka = QueueKafka()
    kafka.topic = None
    kafka.cluster[AUTO_CREATE] = "true"
    kafka.refusals[ApiKey.CREATE_TOPICS] = [code]
    assert write(kafka) == ["the topic is being created"] * 3
    (created,) = kafka.created
    assert (created["Name"], created["NumPartitions"], created["ReplicationFactor"]) == (
        QUEUE,
        -1,
        -1,
    )
    assert {row["Name"]: row["Value"] for row in created["Configs"]} == {
        ENABLED: "true",
        "message.timestamp.type": "CreateTime",
    }
    kafka.refusals[ApiKey.CREATE_TOPICS] = [ErrorCode.CLUSTER_AUTHORIZATION_FAILED]
    assert write(kafka) == ["its creation: CLUSTER_AUTHORIZATION_FAILED"] * 3


def test_nothing_is_written_where_nothing_may_be() -> None:
    kafka = QueueKafka()
    kafka.topic = None
    (reason, *_) = write(kafka)
    assert AUTO_CREATE in str(reason)
    kafka.topic = {ENABLED: "false", BYTES_MAX: "1000"}
    (reason, *_) = write(kafka)
    assert ENABLED in str(reason)
    kafka.topic[ENABLED] = "true"
    for codes in (
        [ErrorCode.CLUSTER_AUTHORIZATION_FAILED],
        [ErrorCode.NONE, ErrorCode.TOPIC_AUTHORIZATION_FAILED],
    ):
        kafka.refusals[ApiKey.DESCRIBE_CONFIGS] = list(codes)
        (reason, *_) = write(kafka)
        assert codes[-1].name in str(reason), "who cannot look does not write"
    assert (kafka.written, kafka.created) == ([], [])
    assert write(kafka) == [None] * 3
