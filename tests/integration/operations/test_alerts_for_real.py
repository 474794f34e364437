"""Alerts of docs/monitoring, fired by a real Prometheus that scrapes a real node: each condition
happens with real Kafka, Redis and clients. The rules are as they are, 30 times quicker.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer

from gateway.embedded.kafka import KafkaCluster
from gateway.embedded.process import free_ports
from gateway.embedded.redis import EmbeddedRedis
from tests.rig.alerts import MONITORING
from tests.rig.clients.share_members import ShareHost
from tests.rig.gateway_process import GatewayProcess
from tests.rig.kafka import QUICK_TURNS, create_topic, produce
from tests.rig.operating import poll_until_up
from tests.rig.patience import wait_until
from tests.rig.prometheus import SERVER, TOOL, Prometheus, watching

pytestmark = [
    pytest.mark.integration,
    pytest.mark.skipif(not SERVER.exists(), reason="no Prometheus: make setup says why"),
]

FIRES_S_MAX = 120.0
TOPIC = "alerts"
OLD_MS = 1_700_000_000_000  # a record that was made long ago
BLOCK = {"match": "parks", "auto_offset_reset": "earliest", "rejected": "block"}


@pytest.fixture(scope="module")
def broker() -> Iterator[KafkaCluster]:
    """A broker of this file alone: it is killed."""
    with KafkaCluster(1, properties=QUICK_TURNS) as cluster:
        create_topic(cluster.bootstrap_servers, TOPIC)
        yield cluster


@pytest.fixture(scope="module")
def redis(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedRedis]:
    directory: Path = tmp_path_factory.mktemp("alerts-redis")
    with EmbeddedRedis(directory, port=free_ports(1)) as server:
        yield server


@pytest.fixture(scope="module")
def node(
    broker: KafkaCluster, redis: EmbeddedRedis, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[GatewayProcess]:
    with GatewayProcess(
        tmp_path_factory.mktemp("alerts-gateway"),
        broker.bootstrap_servers,
        groups=[BLOCK, {"match": "*", "auto_offset_reset": "earliest"}],
        redis_url=redis.tcp_url,
        state={"commit_interval_ms": 500},
    ) as process:
        yield process


@pytest.fixture(scope="module")
def prometheus(
    node: GatewayProcess, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Prometheus]:
    with watching(tmp_path_factory.mktemp("prometheus") / "home", node.admin) as server:
        yield server


def test_the_files_are_valid_for_prometheus_itself() -> None:
    done = subprocess.run(
        [str(TOOL), "check", "rules", str(MONITORING / "keyway-alerts.yaml")],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr


def fires(prometheus: Prometheus, alert: str, **labels: str) -> None:
    """Waits until it fires with these labels."""

    def fired() -> bool:
        found = prometheus.firing().get(alert, [])
        return any(labels.items() <= one.items() for one in found)

    wait_until(fired, what=f"{alert} fires", deadline_s=FIRES_S_MAX)


def ends(prometheus: Prometheus, *alerts: str) -> None:
    wait_until(
        lambda: not prometheus.firing().keys() & set(alerts),
        what=f"{alerts} end",
        deadline_s=FIRES_S_MAX,
    )


def is_silent(prometheus: Prometheus, *alerts: str) -> None:
    """In the end: on a machine that stands still for a while some fire."""
    ends(prometheus, *alerts)
    assert prometheus.faults() == []


@pytest.mark.deep
def test_a_record_is_parked(
    broker: KafkaCluster,
    node: GatewayProcess,
    prometheus: Prometheus,
    librdkafka_host: ShareHost,
) -> None:
    is_silent(prometheus, "KeywayParkedRecords")
    produce(broker.bootstrap_servers, TOPIC, [(b"k", b"v")])
    member = librdkafka_host.member(node.bootstrap, "parks", [TOPIC], explicit=True)
    seen = poll_until_up(node, "parks", member) or member.poll_some()
    member.settle("REJECT", seen)
    fires(prometheus, "KeywayParkedRecords", group="parks")
    member.close()


@pytest.mark.deep
def test_a_group_falls_behind_and_stands(
    broker: KafkaCluster,
    node: GatewayProcess,
    prometheus: Prometheus,
    librdkafka_host: ShareHost,
) -> None:
    is_silent(prometheus, "KeywayGroupLate")  # the group of the test before may stand by now
    member = librdkafka_host.member(node.bootstrap, "late", [TOPIC], explicit=True)
    seen = poll_until_up(node, "late", member) or member.poll_some()
    member.settle("ACCEPT", seen)
    member.close()
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers})
    producer.produce(TOPIC, b"v", b"k", timestamp=OLD_MS)
    assert producer.flush(30) == 0
    fires(prometheus, "KeywayGroupLate", group="late")
    fires(prometheus, "KeywayGroupStands", group="late")


@pytest.mark.deep
def test_commits_of_a_group_fail(
    node: GatewayProcess, broker: KafkaCluster, prometheus: Prometheus, librdkafka_host: ShareHost
) -> None:
    """A consumer group of the same name is in use: Kafka refuses the positions."""
    is_silent(prometheus, "KeywayUnhealthy")
    member = librdkafka_host.member(node.bootstrap, "taken", [TOPIC], explicit=True)
    seen = poll_until_up(node, "taken", member) or member.poll_some()
    consumer = Consumer({"bootstrap.servers": broker.bootstrap_servers, "group.id": "taken"})
    consumer.subscribe([TOPIC])

    def joined() -> bool:
        consumer.poll(0.5)
        return bool(consumer.assignment())

    wait_until(joined, what="it joins", deadline_s=FIRES_S_MAX)
    try:
        member.settle("ACCEPT", seen)
        fires(prometheus, "KeywayUnhealthy", part="windows")
    finally:
        consumer.close()
    ends(prometheus, "KeywayUnhealthy")
    member.close()


@pytest.mark.deep
def test_redis_goes_and_comes_back(redis: EmbeddedRedis, prometheus: Prometheus) -> None:
    is_silent(prometheus, "KeywayRedisAway", "KeywayNotReady")
    redis.kill()
    try:
        fires(prometheus, "KeywayRedisAway", part="redis")
        fires(prometheus, "KeywayNotReady")
    finally:
        redis.start()
    ends(prometheus, "KeywayRedisAway", "KeywayNotReady")


@pytest.mark.deep
def test_a_broker_goes(broker: KafkaCluster, prometheus: Prometheus) -> None:
    is_silent(prometheus, "KeywayUpstreamAway")
    broker.kill()
    fires(prometheus, "KeywayUpstreamAway", part="upstream")


@pytest.mark.deep
def test_the_node_goes(node: GatewayProcess, prometheus: Prometheus) -> None:
    is_silent(prometheus, "KeywayDown")
    node.kill()
    fires(prometheus, "KeywayDown", job="keyway")
