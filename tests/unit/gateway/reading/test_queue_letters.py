"""Letters to Kafka's dead letter queues: the questions before each write, and the write itself."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any, cast

import pytest

from gateway.core.cluster.topology import Broker, PartitionInfo, Topic, Topology
from gateway.core.share.dead_letter_queue import AUTO_CREATE, BYTES_MAX, ENABLED, PREFIX
from gateway.core.wire.apis import ApiKey
from gateway.core.wire.errors import ErrorCode
from gateway.core.wire.records import Record, read_records
from gateway.core.wire.schema import Message
from gateway.reading.queue_letters import LETTERS_LANE, write_to_queue
from gateway.upstream.configs import RESOURCE_BROKER

QUEUE = "dlq.orders"
LETTERS = [Record(0, 5, None, None, [("n", b"%d" % at)]) for at in range(3)]


class Kafka:
    """One broker; the queue has two partitions."""

    def __init__(self) -> None:
        self.cluster = {PREFIX: "dlq.", AUTO_CREATE: "false"}
        self.topic: dict[str, str] | None = {ENABLED: "true", BYTES_MAX: "1000000"}
        self.refusals: dict[ApiKey, list[ErrorCode]] = {}
        self.created: list[Message] = []
        self.written: list[tuple[int, list[Record]]] = []

    async def refresh(self, topics: Iterable[str]) -> Topology:
        assert list(topics) == [QUEUE]
        error = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if self.topic is None else ErrorCode.NONE
        partitions = {} if error else {at: PartitionInfo(leader=1, leader_epoch=0) for at in (0, 1)}
        topic = Topic(QUEUE, b"q" * 16, partitions, error)
        return Topology(brokers={1: Broker(1, "there", 9092)}, topics={QUEUE: topic})

    async def call(self, key: ApiKey, body: Message, **where: Any) -> Message:
        codes = self.refusals.get(key, [])
        code = codes.pop(0) if codes else ErrorCode.NONE
        match key:
            case ApiKey.DESCRIBE_CONFIGS:
                (asked,) = body["Resources"]
                of_broker = asked["ResourceType"] == RESOURCE_BROKER
                values = self.cluster if of_broker else self.topic or {}
                assert set(asked["ConfigurationKeys"]) == set(values)
                configs = [{"Name": name, "Value": value} for name, value in values.items()]
                return {"Results": [{"ErrorCode": code, "Configs": configs}]}
            case ApiKey.CREATE_TOPICS:
                self.created += body["Topics"]
                return {"Topics": [{"ErrorCode": code}]}
            case ApiKey.PRODUCE:
                assert where["broker_id"] == 1
                assert where["lane"] == LETTERS_LANE
                assert body["Acks"] == -1
                (data,) = body["TopicData"]
                assert (data["Name"], data["TopicId"]) == (QUEUE, b"q" * 16)
                (row,) = data["PartitionData"]
                if code == ErrorCode.NONE:
                    self.written.append((row["Index"], list(read_records(row["Records"]))))
                answer = {"ErrorCode": code, "ErrorMessage": None}
                return {"Responses": [{"PartitionResponses": [answer]}]}
            case _:
                raise AssertionError(key)

    def write(self, origin_partition: int = 3) -> list[str | None]:
        return asyncio.run(write_to_queue(cast(Any, self), QUEUE, origin_partition, LETTERS))


@pytest.mark.parametrize(("origin", "partition"), [(0, 0), (1, 1), (2, 0), (3, 1)])
def test_the_partition_is_that_of_the_record_modulo_their_count(
    origin: int, partition: int
) -> None:
    kafka = Kafka()
    assert kafka.write(origin) == [None] * 3
    ((written_to, records),) = kafka.written
    assert written_to == partition
    assert [record.headers for record in records] == [record.headers for record in LETTERS]
    assert {(record.key, record.value, record.timestamp) for record in records} == {(None, None, 5)}


def test_a_batch_that_is_refused_leaves_the_batches_before_it_written() -> None:
    kafka = Kafka()
    assert kafka.topic is not None
    kafka.topic[BYTES_MAX] = "1"
    kafka.refusals[ApiKey.PRODUCE] = [ErrorCode.NONE, ErrorCode.NOT_ENOUGH_REPLICAS]
    assert kafka.write() == [None, "NOT_ENOUGH_REPLICAS", "NOT_ENOUGH_REPLICAS"]
    assert len(kafka.written) == 1


@pytest.mark.parametrize("code", [ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS])
def test_a_queue_is_created_if_the_cluster_says_so(code: ErrorCode) -> None:
    kafka = Kafka()
    kafka.topic = None
    kafka.cluster[AUTO_CREATE] = "true"
    kafka.refusals[ApiKey.CREATE_TOPICS] = [code]
    assert kafka.write() == ["the topic is being created"] * 3
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
    assert kafka.write() == ["its creation: CLUSTER_AUTHORIZATION_FAILED"] * 3


def test_nothing_is_written_where_nothing_may_be() -> None:
    kafka = Kafka()
    kafka.topic = None
    (reason, *_) = kafka.write()
    assert AUTO_CREATE in str(reason)
    kafka.topic = {ENABLED: "false", BYTES_MAX: "1000"}
    (reason, *_) = kafka.write()
    assert ENABLED in str(reason)
    kafka.topic[ENABLED] = "true"
    for codes in (
        [ErrorCode.CLUSTER_AUTHORIZATION_FAILED],
        [ErrorCode.NONE, ErrorCode.TOPIC_AUTHORIZATION_FAILED],
    ):
        kafka.refusals[ApiKey.DESCRIBE_CONFIGS] = list(codes)
        (reason, *_) = kafka.write()
        assert codes[-1].name in str(reason), "who cannot look does not write"
    assert (kafka.written, kafka.created) == ([], [])
    assert kafka.write() == [None] * 3
