"""The topic that another one moves into, over a scripted Kafka."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, cast

import pytest

from gateway.core.repartition.record import Pace, Repartition
from gateway.core.wire.apis import ApiKey
from gateway.core.wire.schema import Message
from gateway.operations.errors import InvalidOperation, StateUnavailable
from gateway.repartition.new_topic import create_like
from gateway.upstream.cluster import Upstream
from tests.rig.virtual_time import run

ID = b"n" * 16
RECORD = Repartition(
    topic="orders",
    topic_id="00",
    before=8,
    after=11,
    partitioner=None,
    pace=Pace(adoption_ms=0, settle_ms=0, late_ms=0),
    into="orders-3",
)


@dataclass
class Kafka:
    code: int = 0  # of CreateTopics
    partitions: int = 3
    leader: int = 1
    end: int = 0
    asked: list[Message] = field(default_factory=list)

    async def call(self, key: int, body: Message, **_: Any) -> Message:
        if key == ApiKey.METADATA:
            row = {"LeaderId": self.leader, "ReplicaNodes": [1, 2]}
            rows = [{"PartitionIndex": at, **row} for at in range(self.partitions)]
            return {"Topics": [{"ErrorCode": 0, "TopicId": ID, "Partitions": rows}]}
        if key == ApiKey.DESCRIBE_CONFIGS:
            configs = [
                {"Name": "retention.ms", "Value": "9", "ConfigSource": 1},
                {"Name": "leader.replication.throttled.replicas", "Value": "*", "ConfigSource": 1},
                {"Name": "cleanup.policy", "Value": "delete", "ConfigSource": 5},
            ]
            return {"Results": [{"ErrorCode": 0, "Configs": configs}]}
        if key == ApiKey.CREATE_TOPICS:
            self.asked += body["Topics"]
            return {"Topics": [{"ErrorCode": self.code, "ErrorMessage": "no"}]}
        assert key == ApiKey.LIST_OFFSETS
        rows = [{"PartitionIndex": 0, "ErrorCode": 0, "Offset": self.end}]
        return {"Topics": [{"Name": "orders-3", "Partitions": rows}]}


def created(kafka: Kafka) -> bytes:
    found: list[bytes] = []

    async def create() -> None:
        found.append(await create_like(cast(Upstream, kafka), RECORD))

    run(create())
    return found[0]


def test_it_has_the_replicas_and_the_configs_of_the_old_one() -> None:
    kafka = Kafka()
    assert created(kafka) == ID
    (topic,) = kafka.asked
    assert (topic["Name"], topic["NumPartitions"], topic["ReplicationFactor"]) == ("orders-3", 3, 2)
    assert topic["Configs"] == [{"Name": "retention.ms", "Value": "9"}]


def test_one_that_was_created_before_a_crash_is_taken() -> None:
    assert created(Kafka(code=36)) == ID


@pytest.mark.parametrize("theirs", [Kafka(code=36, end=5), Kafka(code=36, partitions=2)])
def test_one_that_somebody_else_has_used_is_not(theirs: Kafka) -> None:
    with pytest.raises(InvalidOperation, match="somebody else has created"):
        created(theirs)


def test_it_waits_for_its_leaders_and_for_rights() -> None:
    with pytest.raises(StateUnavailable, match="without a leader"):
        created(Kafka(leader=-1))
    with pytest.raises(StateUnavailable, match="TOPIC_AUTHORIZATION_FAILED no"):
        created(Kafka(code=29))
