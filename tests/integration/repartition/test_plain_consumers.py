"""Consumers of plain groups while their topic grows: in order, and nothing is lost."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import pytest

from tests.chaos.crowd import have_all
from tests.rig.clients.java_programs import JavaPrograms
from tests.rig.clients.keyed_producers import KeyedProducer
from tests.rig.clients.plain_consumers import (
    PlainConsumer,
    assert_each_after_the_one_before,
    consumed_by,
)
from tests.rig.gateway_process import DIRECT, GatewayProcess
from tests.rig.patience import wait_until
from tests.rig.repartitions import repartition, status, wait_for_phase

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
