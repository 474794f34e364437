"""Answers of a real node to probes and operators: its health, and the lag of groups."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from gateway.embedded.kafka import KafkaCluster
from gateway.embedded.process import free_ports
from gateway.embedded.redis import EmbeddedRedis
from tests.rig.clients.kafka_tools import CONFIGS, KafkaTools
from tests.rig.clients.share_members import ShareHost, consume_all
from tests.rig.gateway_process import GatewayProcess
from tests.rig.kafka import produce
from tests.rig.operating import health, keyway, metrics, windows_of
from tests.rig.patience import wait_until

pytestmark = pytest.mark.integration

Topic = Callable[..., str]
Names = Callable[[str], str]
SEEN_S_MAX = 30.0


@pytest.fixture(scope="module")
def redis(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedRedis]:
    directory: Path = tmp_path_factory.mktemp("health-redis")
    with EmbeddedRedis(directory, port=free_ports(1)) as server:
        yield server


@pytest.fixture(scope="module")
def gateway(
    kafka: KafkaCluster, redis: EmbeddedRedis, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[GatewayProcess]:
    with GatewayProcess(
        tmp_path_factory.mktemp("health-gateway"),
        kafka.bootstrap_servers,
        groups=[{"match": "*", "auto_offset_reset": "earliest"}],
        redis_url=redis.tcp_url,
        state={"commit_interval_ms": 500},
    ) as process:
        yield process


def test_the_lag_of_a_group_that_stopped(
    gateway: GatewayProcess,
    kafka: KafkaCluster,
    topic: Topic,
    fresh_name: Names,
    librdkafka_host: ShareHost,
) -> None:
    name, group = topic(partitions=2), fresh_name("lag")
    produce(kafka.bootstrap_servers, name, [(b"k", b"%d" % at) for at in range(7)], partition=0)
    member = librdkafka_host.member(gateway.bootstrap, group, [name])
    consume_all([member], {(name, 0, offset) for offset in range(7)})

    def lags() -> list[tuple[str, int, int, int]]:
        rows = windows_of(gateway, group)
        return [(row["state"], row["cursor"], row["log_end"], row["lag"]) for row in rows]

    wait_until(
        lambda: lags() == [("up", 7, 7, 0), ("up", 0, 0, 0)],
        what="everything settled",
        deadline_s=SEEN_S_MAX,
    )
    member.close()
    gateway.restart()
    produce(kafka.bootstrap_servers, name, [(b"k", b"later")] * 3, partition=0)
    wait_until(
        lambda: lags() == [("idle", 7, 10, 3), ("idle", 0, 0, 0)],
        what="nobody has come, nothing is loaded",
        deadline_s=SEEN_S_MAX,
    )
    code, out, _ = keyway(gateway, "group", "describe", group)
    rows = [line.split() for line in out.splitlines()]
    assert code == 0
    (row,) = [row for row in rows if row[:3] == [group, name, "0"]]
    assert row[3:6] == ["7", "10", "3"]
    assert row[7:] == ["idle", *"-----", "0"]


def test_the_lag_in_seconds_is_that_of_the_oldest_record(
    gateway: GatewayProcess,
    kafka: KafkaCluster,
    topic: Topic,
    fresh_name: Names,
    librdkafka_host: ShareHost,
) -> None:
    """Also of a group that stopped before a record came, where only upstream has the record; behind
    an aborted transaction; and of records that retention took.
    """
    name, group = topic(partitions=2), fresh_name("late")
    produce(kafka.bootstrap_servers, name, [(b"k", b"%d" % at) for at in range(3)], partition=0)
    member = librdkafka_host.member(gateway.bootstrap, group, [name])
    consume_all([member], {(name, 0, offset) for offset in range(3)})
    wait_until(
        lambda: ages(gateway, group) == {0: 0.0, 1: 0.0},
        what="everything settled",
        deadline_s=SEEN_S_MAX,
    )
    for direction in ("read", "delivered"):
        assert bytes_of(gateway, f"keyway_topic_{direction}_bytes_total", name) > 0
    member.close()
    gateway.restart()
    aborted(kafka.bootstrap_servers, name, partition=0)
    wait_until(
        lambda: windows_of(gateway, group)[0]["log_end"] == 5,
        what="the marker of the transaction",
        deadline_s=SEEN_S_MAX,
    )
    wait_until(
        lambda: ages(gateway, group) == {0: 0.0, 1: 0.0},
        what="an aborted transaction is no lag",
        deadline_s=SEEN_S_MAX,
    )
    made_s = {0: now_s() - 7_200, 1: now_s() - 60}
    for partition, at in made_s.items():
        produced_at(kafka.bootstrap_servers, name, partition, [at, at + 30])

    def expected() -> object:
        found = {partition: now_s() - at for partition, at in made_s.items()}
        return pytest.approx(found, abs=5.0)

    for _ in range(2):
        wait_until(
            lambda: bool(ages(gateway, group) == expected()),
            what="the ages of the oldest",
            deadline_s=SEEN_S_MAX,
        )
    labels = f'{{group="{group}",partition="0",topic="{name}"}}'
    wait_until(
        lambda: metrics(gateway).get("kafka_consumergroup_group_lag_seconds" + labels, 0) > 7_200,
        what="the scrape has it",
        deadline_s=SEEN_S_MAX,
    )
    worst = f'kafka_consumergroup_group_max_lag_seconds{{group="{group}"}}'
    wait_until(
        lambda: bool(metrics(gateway)[worst] == pytest.approx(now_s() - made_s[0], abs=5.0)),
        what="the worst of the group",
        deadline_s=SEEN_S_MAX,
    )
    delete_records(kafka.bootstrap_servers, name, 0, before=6)  # 3, 4: aborted and its marker
    wait_until(
        lambda: bool(ages(gateway, group)[0] == pytest.approx(now_s() - made_s[0] - 30, abs=5.0)),
        what="the age of the next record",
        deadline_s=SEEN_S_MAX,
    )


def bytes_of(gateway: GatewayProcess, metric: str, topic: str) -> float:
    """Of the topic and, from before it was shown by itself, of all others."""
    seen = metrics(gateway)
    return seen.get(f'{metric}{{topic="{topic}"}}', 0) + seen[f'{metric}{{topic="other"}}']


def now_s() -> float:
    return time.time_ns() / 1e9


def ages(gateway: GatewayProcess, group: str) -> dict[int, float | None]:
    """The lag in seconds by partition, of one look."""
    return {row["partition"]: row["lag_seconds"] for row in windows_of(gateway, group)}


def produced_at(bootstrap: str, topic: str, partition: int, times_s: list[float]) -> None:
    producer = Producer({"bootstrap.servers": bootstrap})
    for at in times_s:
        producer.produce(topic, b"v", b"k", partition, timestamp=int(at * 1000))
    assert producer.flush(30) == 0


def aborted(bootstrap: str, topic: str, partition: int) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": f"aborts-{topic}"})
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce(topic, b"never", b"k", partition)
    assert producer.flush(30) == 0
    producer.abort_transaction(30)


def delete_records(bootstrap: str, topic: str, partition: int, *, before: int) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for done in admin.delete_records([TopicPartition(topic, partition, before)]).values():
        done.result(30)


def test_requests_are_timed_by_api(gateway: GatewayProcess, topic: Topic) -> None:
    """A producer that the broker's quota holds up sees it, and so does the operator."""
    name = topic()
    produce(gateway.bootstrap, name, [(b"k", b"v")] * 10)
    seen = metrics(gateway)
    count = seen['keyway_server_request_seconds_count{api="produce"}']
    assert count >= 1
    assert count == seen['keyway_server_requests_total{api="produce"}']
    assert seen['keyway_server_request_seconds_bucket{api="produce",le="+Inf"}'] == count
    assert 0 < seen['keyway_server_request_seconds_sum{api="produce"}'] < 60 * count


def test_a_quota_of_the_broker_shows_as_throttled(
    gateway: GatewayProcess,
    kafka: KafkaCluster,
    topic: Topic,
    fresh_name: Names,
    kafka_tools: KafkaTools,
) -> None:
    client = fresh_name("slow")
    entity = ("--alter", "--entity-type", "clients", "--entity-name", client)
    limit = ("--add-config", "producer_byte_rate=20000")
    kafka_tools.run(CONFIGS, kafka.bootstrap_servers, *entity, *limit)
    name = topic()
    producer = Producer({"bootstrap.servers": gateway.bootstrap, "client.id": client})

    def throttled() -> bool:
        for _ in range(10):
            producer.produce(name, bytes(10_000), b"k")
        producer.flush(30)
        return metrics(gateway).get(THROTTLED, 0) > 0

    wait_until(throttled, what="the quota holds the producer up", deadline_s=SEEN_S_MAX)


THROTTLED = 'keyway_server_throttled_seconds_total{api="produce"}'


def test_a_redis_that_is_away(
    gateway: GatewayProcess, redis: EmbeddedRedis, fresh_name: Names
) -> None:
    wait_until(
        lambda: health(gateway)[0] == health(gateway, "/health/ready")[0] == 200,
        what="all is well",
        deadline_s=SEEN_S_MAX,
    )
    redis.kill()
    try:
        status, said = health(gateway)
        assert (status, said["status"]) == (503, "not ready")
        assert said["reasons"][0].startswith("Redis does not answer: ")
        assert health(gateway, "/health/ready")[0] == 503
        assert health(gateway, "/health/live") == (200, {"status": "alive"})
        assert keyway(gateway, "group", "describe", fresh_name("none"))[0] == 1, (
            "unknown, and said so"
        )
    finally:
        redis.start()
    wait_until(
        lambda: health(gateway)[0] == health(gateway, "/health/ready")[0] == 200,
        what="health after Redis is back",
        deadline_s=SEEN_S_MAX,
    )
