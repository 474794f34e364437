"""Answers of a real node to probes and operators: its health, and the lag of groups."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from gateway.embedded.kafka import KafkaCluster
from gateway.embedded.process import free_ports, wait_until
from gateway.embedded.redis import EmbeddedRedis
from tests.rig.clients.share_members import ShareHost, consume_all
from tests.rig.gateway_process import GatewayProcess
from tests.rig.kafka import produce
from tests.rig.operating import keyway, windows_of

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


def health(gateway: GatewayProcess, path: str = "/health") -> tuple[int, dict[str, Any]]:
    try:
        with urllib.request.urlopen(f"http://{gateway.admin}{path}", timeout=20) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as refusal:
        return refusal.code, json.load(refusal)


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
    assert lags() == [("idle", 7, 10, 3), ("idle", 0, 0, 0)], "nobody has come, nothing is loaded"
    code, out, _ = keyway(gateway, "group", "describe", group)
    rows = [line.split() for line in out.splitlines()]
    assert code == 0
    assert [name, "0", "idle", "7", "-", "10", "3", "-", "-", "-", "-", "0"] in rows


def test_a_redis_that_is_away(
    gateway: GatewayProcess, redis: EmbeddedRedis, fresh_name: Names
) -> None:
    assert health(gateway)[0] == health(gateway, "/health/ready")[0] == 200
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
