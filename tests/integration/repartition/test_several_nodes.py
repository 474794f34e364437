"""A topic grows on two nodes: windows, members, producers and consumers are on both of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from gateway.embedded.kafka import KafkaCluster
from gateway.embedded.redis import EmbeddedRedis
from tests.chaos.crowd import IDEMPOTENT, crowd_of, have_all, move, working
from tests.chaos.repartition import PACE
from tests.rig.clients.keyed_producers import KeyedProducer
from tests.rig.clients.plain_consumers import (
    PlainConsumer,
    assert_each_after_the_one_before,
    consumed_by,
)
from tests.rig.clients.share_members import ShareHost
from tests.rig.gateway_process import DIRECT, GatewayProcess
from tests.rig.kafka import create_topic
from tests.rig.patience import wait_until
from tests.rig.repartitions import repartition, status, wait_for_phase

pytestmark = [
    pytest.mark.integration,
    pytest.mark.deep,
    pytest.mark.skipif(DIRECT, reason="Kafka itself has no repartition"),
]


@pytest.fixture
def nodes(kafka_pair: KafkaCluster, tmp_path: Path) -> Iterator[list[GatewayProcess]]:
    with ExitStack() as stack:
        redis = stack.enter_context(EmbeddedRedis(tmp_path / "redis"))
        yield [
            stack.enter_context(
                GatewayProcess(
                    tmp_path / name,
                    kafka_pair.bootstrap_servers,
                    redis_url=redis.url,
                    nodes={"id": name},
                    groups=[{"match": "*", "auto_offset_reset": "earliest"}],
                    state={"commit_interval_ms": 500},
                    repartition=PACE,
                )
            )
            for name in ("a", "b")
        ]


@pytest.mark.parametrize("killed", [None, "a", "b"])
def test_two_nodes(
    nodes: list[GatewayProcess],
    kafka_pair: KafkaCluster,
    fresh_name: Callable[[str], str],
    librdkafka_host: ShareHost,
    killed: str | None,
) -> None:
    """Node a takes the steps. One that is killed is gone for good: the other one goes on."""
    name, shared, plain = (fresh_name(prefix) for prefix in ("topic", "shared", "plain"))
    create_topic(kafka_pair.bootstrap_servers, name, partitions=4)
    fronts = [node.bootstrap for node in nodes]
    both = ",".join(fronts)
    left = nodes[0] if killed == "b" else nodes[1]
    members = [librdkafka_host.member(both, shared, [name]) for _ in range(2)]
    consumers = [PlainConsumer.librdkafka(both, name, plain, 50) for _ in range(2)]
    producers = [
        KeyedProducer.librdkafka(both, name, first, 40, 60, *IDEMPOTENT) for first in (0, 40)
    ]
    try:
        with working(members) as worked:
            wait_until(
                lambda: len(worked) > 80 and len(consumed_by(consumers)) > 80,
                what="traffic",
                deadline_s=60,
            )
            repartition(left, name, partitions=8, execute=True)
            wait_for_phase(left, name, "open", "draining", "finished")
            assert [status(node, name)["leads"] for node in nodes] == [True, True], (
                "whoever is asked"
            )
            if killed is not None:
                {"a": nodes[0], "b": nodes[1]}[killed].kill()
            wait_for_phase(left, name, "draining", "finished", within_s=120)
            sent = {key: count for each in producers for key, count in each.end().items()}
            wait_until(
                lambda: have_all(sent, worked, consumed_by(consumers)),
                what="all records in both groups",
                deadline_s=120,
            )
            wait_for_phase(left, name, "finished", within_s=120)
    finally:
        for producer in producers:
            producer.kill()
        for consumer in consumers:
            consumer.kill()
        for member in members:
            member.close()
    assert status(left, name)["given_up"] == []
    for group in (worked, consumed_by(consumers)):
        assert {each.partition for each in group} == set(range(8))
        assert_each_after_the_one_before(group, sent)


@pytest.mark.parametrize("killed", [None, "a", "b"])
def test_a_move_on_two_nodes(
    nodes: list[GatewayProcess],
    kafka_pair: KafkaCluster,
    fresh_name: Callable[[str], str],
    librdkafka_host: ShareHost,
    killed: str | None,
) -> None:
    """8 to 3, as above."""
    name = fresh_name("topic")
    create_topic(kafka_pair.bootstrap_servers, name, partitions=8)
    both = ",".join(node.bootstrap for node in nodes)
    left = nodes[0] if killed == "b" else nodes[1]

    crowd = crowd_of(librdkafka_host, both, name, fresh_name, None)

    def strike(phase: str) -> None:
        if phase == "open" and killed is not None:
            wait_until(crowd.all_are_served, what="records of each consumer", deadline_s=60)
            {"a": nodes[0], "b": nodes[1]}[killed].kill()

    move(crowd, left, strike)
