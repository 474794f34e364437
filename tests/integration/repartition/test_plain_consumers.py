"""Consumers of plain groups while their topic grows: in order, and nothing is lost."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import pytest
from confluent_kafka import Consumer, TopicPartition

from gateway.core.wire.apis import ApiKey
from gateway.core.wire.schema import Message
from gateway.embedded.kafka import KafkaCluster
from tests.chaos.crowd import have_all
from tests.rig.clients.java_programs import JavaPrograms
from tests.rig.clients.keyed_producers import KeyedProducer
from tests.rig.clients.plain_consumers import (
    PlainConsumer,
    assert_each_after_the_one_before,
    consumed_by,
)
from tests.rig.clients.wire_client import WireClient
from tests.rig.gateway_process import DIRECT, GatewayProcess
from tests.rig.kafka import produce
from tests.rig.patience import wait_until
from tests.rig.repartitions import MURMUR2 as OF_JAVA
from tests.rig.repartitions import key_for, repartition, status, wait_for_phase

pytestmark = [
    pytest.mark.integration,
    pytest.mark.skipif(DIRECT, reason="Kafka itself does not keep the order"),
]
MURMUR2, IDEMPOTENT = "partitioner=murmur2_random", "enable.idempotence=true"
PROTOCOLS = ("classic", "consumer")


@pytest.mark.deep
def test_librdkafka(
    node: GatewayProcess, topic: Callable[..., str], fresh_name: Callable[[str], str]
) -> None:
    name, front = topic(partitions=4), node.bootstrap
    groups = {
        (group := fresh_name(protocol)): [
            PlainConsumer.librdkafka(front, name, group, 200, f"group.protocol={protocol}")
            for _ in range(2)
        ]
        for protocol in PROTOCOLS
    }
    producers = [KeyedProducer.librdkafka(front, name, 0, 100, 100, MURMUR2, IDEMPOTENT)]
    grow_under_load(node, name, groups, producers)


@pytest.mark.deep
def test_java(
    node: GatewayProcess,
    topic: Callable[..., str],
    fresh_name: Callable[[str], str],
    java_programs: JavaPrograms,
) -> None:
    name, front = topic(partitions=4), node.bootstrap
    groups = {
        (group := fresh_name(protocol)): [
            PlainConsumer.java(java_programs, front, name, group, 200, f"group.protocol={protocol}")
            for _ in range(2)
        ]
        for protocol in PROTOCOLS
    }
    producers = [KeyedProducer.java(java_programs, front, name, 0, 100, 100)]
    grow_under_load(node, name, groups, producers)


def grow_under_load(
    node: GatewayProcess,
    name: str,
    groups: Mapping[str, Sequence[PlainConsumer]],
    producers: Sequence[KeyedProducer],
) -> None:
    """4 to 8, two members a group: a key's old and new partition may be with different ones."""
    try:
        wait_until(
            lambda: all(
                {each.partition for each in consumed_by(members)} == {0, 1, 2, 3}
                for members in groups.values()
            ),
            what="records of each partition",
            deadline_s=60,
        )
        plan = repartition(node, name, partitions=8)
        assert plan["refusals"] == []
        assert plan["ordered_groups"] == sorted(groups)
        repartition(node, name, partitions=8, execute=True)
        wait_for_phase(node, name, "open")
        wait_until(
            lambda: all(
                {each.partition for each in consumed_by(members)} == set(range(8))
                for members in groups.values()
            ),
            what="records of new partitions before the end",
            deadline_s=60,
        )
        wait_for_phase(node, name, "draining", "finished")
        sent: dict[str, int] = {}
        for producer in producers:
            sent |= producer.end()
        wait_until(
            lambda: have_all(sent, *map(consumed_by, groups.values())),
            what="all records",
            deadline_s=60,
        )
        wait_for_phase(node, name, "finished")
        assert status(node, name)["given_up"] == []
    finally:
        for producer in producers:
            producer.kill()
        for member in [member for members in groups.values() for member in members]:
            member.end()
    for members in groups.values():
        assert_each_after_the_one_before(consumed_by(members), sent)


@pytest.mark.deep
def test_a_member_that_kafka_gives_a_hidden_partition_begins_at_its_first_record(
    node: GatewayProcess,
    kafka: KafkaCluster,
    topic: Callable[..., str],
    fresh_name: Callable[[str], str],
) -> None:
    """A KIP-848 group from `latest`. It asks for its position before Keyway has committed one, as
    another group that rebalances is waited for.
    """
    name = topic(partitions=2)
    consumer = Consumer(
        {
            "bootstrap.servers": node.bootstrap,
            "group.id": fresh_name("plain"),
            "group.protocol": "consumer",
            "auto.offset.reset": "latest",
            "enable.auto.commit": False,
        }
    )
    came: list[bytes | None] = []

    def assigned(count: int) -> bool:
        message = consumer.poll(0.2)
        if message is not None and message.error() is None:
            came.append(message.value())
        return len(consumer.assignment()) == count

    join = {
        "GroupId": fresh_name("rebalancing"),
        "SessionTimeoutMs": 30_000,
        "RebalanceTimeoutMs": 120_000,
        "ProtocolType": "consumer",
        "Protocols": [{"Name": "range", "Metadata": bytes(10)}],
    }
    joining: Message = {}
    try:
        consumer.subscribe([name])
        wait_until(lambda: assigned(2), what="assigned", deadline_s=30)
        with WireClient(kafka.bootstrap_servers) as other:

            def joined() -> bool:
                joining.update(other.call(ApiKey.JOIN_GROUP, 3, join))
                return bool(joining["ErrorCode"] == 0)

            wait_until(joined, what="joined", deadline_s=30)
            repartition(node, name, partitions=4, partitioner="murmur2", execute=True)
            wait_for_phase(node, name, "created")
            wait_until(lambda: assigned(4), what="hidden partitions", deadline_s=60)
            hidden = [TopicPartition(name, 2), TopicPartition(name, 3)]
            assert [place.offset for place in consumer.committed(hidden, timeout=30)] == [0, 0]
            assert status(node, name)["phase"] == "created"
            leaving = {"GroupId": join["GroupId"], "MemberId": joining["MemberId"]}
            other.call(ApiKey.LEAVE_GROUP, 1, leaving)
        wait_for_phase(node, name, "shown", "open")
        produce(node.bootstrap, name, [(key_for(3, 4), b"new")], config=OF_JAVA)
        wait_until(lambda: assigned(4) and b"new" in came, what="the record", deadline_s=60)
    finally:
        consumer.close()
