"""A Kafka with one dead letter queue (KIP-1191), as the node's own requests see it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any

from gateway.core.cluster.topology import Broker, PartitionInfo, Topic, Topology
from gateway.core.share.dead_letter_queue import AUTO_CREATE, BYTES_MAX, ENABLED, PREFIX
from gateway.core.wire.apis import ApiKey
from gateway.core.wire.errors import ErrorCode
from gateway.core.wire.records import Record, read_records
from gateway.core.wire.schema import Message
from gateway.upstream.configs import RESOURCE_BROKER

QUEUE = "dlq.orders"


class QueueKafka:
    """One broker; the queue has two partitions."""

    def __init__(self) -> None:
        self.cluster = {PREFIX: "dlq.", AUTO_CREATE: "false"}
        self.topic: dict[str, str] | None = {ENABLED: "true", BYTES_MAX: "1000000"}
        self.refusals: dict[ApiKey, list[ErrorCode]] = {}
        self.created: list[Message] = []
        self.gate: asyncio.Event | None = None  # writes wait for it
        self.lanes: list[int] = []  # of the writes
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
                self.lanes.append(where["lane"])
                if self.gate is not None:
                    await self.gate.wait()
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
