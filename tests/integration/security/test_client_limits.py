"""Limits of clients before a real broker: stock clients that listen, and one that does not."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pytest
import yaml
from confluent_kafka import Producer

from gateway.core.wire.apis import ApiKey
from gateway.core.wire.frames import request_frame
from gateway.embedded.kafka import KafkaCluster
from tests.rig.clients.wire_client import WireClient
from tests.rig.gateway_process import GatewayProcess
from tests.rig.kafka import create_topic
from tests.rig.patience import patient_s, wait_until

pytestmark = pytest.mark.integration

RATE = 100_000  # bytes a second
LIMITS: list[dict[str, Any]] = [
    {"name": "slow", "client_id": "slow-*", "bytes_in_per_s": RATE, "per": "client_id"},
    {"name": "few", "client_id": "wire-client", "connections": 2, "requests_per_s": 50},
]


@pytest.fixture(scope="module")
def node(kafka: KafkaCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[GatewayProcess]:
    directory = tmp_path_factory.mktemp("limits")
    with GatewayProcess(directory, kafka.bootstrap_servers, limits=LIMITS) as gateway:
        yield gateway


def limits(node: GatewayProcess) -> dict[str, dict[str, Any]]:
    return {
        row["rule"]: row for row in httpx.get(f"http://{node.admin}/v1/limits").json()["limits"]
    }


def test_a_producer_is_slowed_down_and_another_is_not(
    node: GatewayProcess, kafka: KafkaCluster, fresh_name: Callable[[str], str]
) -> None:
    topic = fresh_name("limited")
    create_topic(kafka.bootstrap_servers, topic, partitions=1)
    told: list[float] = []
    times = {}
    for client_id in ("free", "slow-1"):
        config: dict[str, Any] = {
            "bootstrap.servers": node.bootstrap,
            "client.id": client_id,
            "linger.ms": 0,
            "batch.num.messages": 1,
            "throttle_cb": lambda event: told.append(event.throttle_time),
        }
        producer = Producer(config)
        began = time.monotonic()
        for _ in range(20):
            producer.produce(topic, bytes(RATE // 5))
        assert producer.flush(patient_s(60)) == 0, "every record is written"
        times[client_id] = time.monotonic() - began
        assert bool(told) == (client_id == "slow-1")
    # Four seconds' worth: one is free, and what follows the last record waits for nobody.
    assert times["slow-1"] > 2.5, times
    row = limits(node)["slow"]
    assert row["who"] == "slow-1"
    assert row["throttled_ms"] > 0


def test_who_ignores_it_is_held_and_one_connection_too_many_is_closed(
    node: GatewayProcess,
) -> None:
    frame = request_frame(ApiKey.LIST_GROUPS, 4, 1, "wire-client", b"\1\0")
    with WireClient(node.bootstrap) as one, WireClient(node.bootstrap) as two:
        one.send_bytes(frame * 150)
        began = time.monotonic()
        for _ in range(150):
            one.receive_frame()
        assert time.monotonic() - began > 1.5, (
            "a second's worth was free, two have to be waited for"
        )
        two.send_bytes(frame)
        two.receive_frame()
        with WireClient(node.bootstrap) as three:
            three.send_bytes(frame)
            assert three.closed_within(patient_s(10))
        row = limits(node)["few"]
        assert (row["connections"], row["refused"]) == (2, 1)
        assert row["muted"] > 0
        assert node.log_text().count("connections_refused") == 1
        settings = yaml.safe_load(node.config.read_text())
        settings["limits"][1]["connections"] = 3
        node.config.write_text(yaml.safe_dump(settings))
        reloaded = httpx.post(f"http://{node.admin}/v1/config/reload").json()["reloaded"]
        assert reloaded == ["limits.1.connections"]
        with WireClient(node.bootstrap) as three:
            three.send_bytes(frame)
            three.receive_frame()
    wait_until(
        lambda: limits(node)["few"]["connections"] == 0,
        what="the last of them is gone",
        deadline_s=10.0,
    )
