"""A broker of one node that takes dead letters, or does not, as the test says."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

from gateway.core.cluster.topology import TopicPartition
from gateway.core.wire.apis import ApiKey
from gateway.core.wire.errors import ErrorCode
from gateway.core.wire.records import Record, build
from gateway.core.wire.schema import Message
from gateway.upstream.settings import UpstreamSettings
from tests.rig.fake_broker import FakeBroker, ReceivedRequest, speaking

ORDERS = TopicPartition("orders", bytes(range(16)), 0)  # the topic that is read
ORDERS_COUNT = 10
SHORT, WHOLE = "short-of-replicas", "whole"  # topics of dead letters


@dataclass
class LettersBroker:
    """Every topic has one partition. `errors` are its answers to writes, by topic; None: none."""

    errors: dict[str, ErrorCode | None] = field(default_factory=dict)
    no_producer_id: ErrorCode = ErrorCode.NONE
    metadata_gate: asyncio.Event | None = None  # metadata waits for it
    metadata_asked: int = 0
    writes: Counter[str] = field(default_factory=Counter)  # requests, by topic
    letters: Counter[str] = field(default_factory=Counter)  # requests that were taken, by topic

    def broker(self) -> FakeBroker:
        self.node = speaking(
            {
                ApiKey.METADATA: self._metadata,
                ApiKey.FETCH: self._fetch,
                ApiKey.INIT_PRODUCER_ID: self._init_producer_id,
                ApiKey.PRODUCE: self._produce,
            }
        )
        return self.node

    def settings(self) -> UpstreamSettings:
        return UpstreamSettings(f"127.0.0.1:{self.node.port}", request_timeout_ms=2_000)

    def producers(self) -> int:
        """How many asked for an id so far."""
        return len(self.node.versions_asked(ApiKey.INIT_PRODUCER_ID))

    def lines_open(self) -> int:
        return sum(not line.ended_by_peer for line in self.node.connections)

    async def _metadata(self, request: ReceivedRequest) -> bytes:
        self.metadata_asked += 1
        if self.metadata_gate is not None:
            await self.metadata_gate.wait()
        names: Iterable[str] = [topic["Name"] for topic in request.body["Topics"] or ()]
        topics = [_topic(name) for name in names]
        return request.response({**self.node.metadata(), "Topics": topics})

    async def _fetch(self, request: ReceivedRequest) -> bytes:
        records = [Record(offset, 0, b"k", b"%d" % offset) for offset in range(ORDERS_COUNT)]
        row = {
            "PartitionIndex": 0,
            "HighWatermark": ORDERS_COUNT,
            "LastStableOffset": ORDERS_COUNT,
            "LogStartOffset": 0,
            "Records": build(records, base_offset=0),
        }
        topics = [{"TopicId": ORDERS.topic_id, "Partitions": [row]}]
        return request.response({"Responses": topics})

    async def _init_producer_id(self, request: ReceivedRequest) -> bytes:
        return request.response({"ErrorCode": self.no_producer_id, "ProducerId": 7})

    async def _produce(self, request: ReceivedRequest) -> bytes | None:
        topics: list[Message] = []
        for topic in request.body["TopicData"]:
            name = topic["Name"]
            error = self.errors.get(name, ErrorCode.NONE)
            self.writes[name] += 1
            if error is None:
                return None
            self.letters[name] += error == ErrorCode.NONE
            topics.append({"Name": name, "PartitionResponses": [{"Index": 0, "ErrorCode": error}]})
        return request.response({"Responses": topics})


def _topic(name: str) -> Message:
    partition = {"PartitionIndex": 0, "LeaderId": 1, "LeaderEpoch": 1}
    topic_id = ORDERS.topic_id if name == ORDERS.topic else name.encode().ljust(16, b"-")[:16]
    return {"Name": name, "TopicId": topic_id, "Partitions": [partition]}
