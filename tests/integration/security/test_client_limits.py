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
from gateway.core.wire.errors import ErrorCode
from gateway.core.wire.frames import request_frame
from gateway.embedded.kafka import KafkaCluster
from tests.rig.clients.share_members import ShareHost
from tests.rig.clients.wire_client import ShareSession, WireClient
from tests.rig.gateway_process import GatewayProcess
from tests.rig.kafka import create_topic, produce
from tests.rig.operating import metrics
from tests.rig.patience import patient_s, wait_until

pytestmark = pytest.mark.integration

RATE = 100_000  # bytes a second
MANY = 1_000_000
GROUP = {"match": "*", "auto_offset_reset": "earliest"}
LIMITS: list[dict[str, Any]] = [
    {"name": "slow", "client_id": "slow-*", "bytes_in_per_s": RATE, "per": "client_id"},
    {"name": "few", "client_id": "wire-client", "connections": 2, "requests_per_s": 50},
    {"name": "one", "client_id": "sharing-*", "share_sessions": 1},
]


@pytest.fixture(scope="module")
def node(kafka: KafkaCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[GatewayProcess]:
    directory = tmp_path_factory.mktemp("limits")
    upstream = kafka.bootstrap_servers
    with GatewayProcess(directory, upstream, limits=LIMITS, groups=[GROUP]) as gateway:
        yield gateway


def reload(node: GatewayProcess, rule: int, **changes: Any) -> None:
    settings = yaml.safe_load(node.config.read_text())
    settings["limits"][rule] |= changes
    node.config.write_text(yaml.safe_dump(settings))
    answer = httpx.post(f"http://{node.admin}/v1/config/reload").json()
    assert set(answer["reloaded"]) <= {f"limits.{rule}.{name}" for name in changes}
    assert answer["restart"] == []


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
        reload(node, 1, connections=3)
        with WireClient(node.bootstrap) as three:
            three.send_bytes(frame)
            three.receive_frame()
    wait_until(
        lambda: limits(node)["few"]["connections"] == 0,
        what="the last of them is gone",
        deadline_s=10.0,
    )


def test_a_faster_rule_holds_at_once_for_an_open_connection(node: GatewayProcess) -> None:
    """What would take half an hour is answered: the connection stays, and nothing restarts."""
    frame = request_frame(ApiKey.LIST_GROUPS, 4, 1, "wire-client", b"\1\0")
    reload(node, 1, requests_per_s=1)
    with WireClient(node.bootstrap) as client:
        muted = limits(node)["few"]["muted"]
        client.send_bytes(frame * 2_000)
        client.receive_frame()
        wait_until(
            lambda: limits(node)["few"]["muted"] > muted,
            what="a request that waits",
            deadline_s=30,
        )
        reload(node, 1, requests_per_s=MANY)
        for _ in range(1_999):
            client.receive_frame()


def test_a_session_too_many_is_refused_and_opens_once_there_is_room(
    node: GatewayProcess, kafka: KafkaCluster, fresh_name: Callable[[str], str]
) -> None:
    """Two stock share consumers: the second gets nothing, and later all that the first left."""
    topic, group = fresh_name("sessions"), fresh_name("sharing")
    create_topic(kafka.bootstrap_servers, topic, partitions=1)
    labels = 'api="share_fetch",error="share_session_limit_reached"'
    refused = f"keyway_server_requests_refused_total{{{labels}}}"
    with ShareHost.librdkafka() as host:
        first = host.member(node.bootstrap, group, [topic], name="sharing")
        produce(kafka.bootstrap_servers, topic, [(b"k%d" % at, b"1") for at in range(10)])
        first.poll_count(10)
        assert limits(node)["one"]["share_sessions"] == 1
        second = host.member(node.bootstrap, group, [topic], name="sharing")
        second.begin_consume()
        wait_until(
            lambda: metrics(node).get(refused, 0) > 0, what="the second is refused", deadline_s=60
        )
        row = limits(node)["one"]
        assert (row["share_sessions"], row["share_sessions_max"]) == (1, 1)
        assert row["reached"] == ["share_sessions"]
        assert row["refused"] > 0
        produce(kafka.bootstrap_servers, topic, [(b"k%d" % at, b"2") for at in range(10)])
        first.close()
        later = {b"k%d" % at for at in range(10)}
        wait_until(
            lambda: later <= {record.key for record in second.deliveries if record.value == b"2"},
            what="its records",
            deadline_s=60,
        )
        second.end_consume()
        second.close()


def test_sessions_of_one_connection_and_of_a_reload(
    node: GatewayProcess, kafka: KafkaCluster, fresh_name: Callable[[str], str]
) -> None:
    """On the wire: the refusal has its Kafka code, and the connection goes on."""
    topic, group = fresh_name("sessions"), fresh_name("wire")
    create_topic(kafka.bootstrap_servers, topic, partitions=1)
    reload(node, 1, share_sessions=1, connections=20, requests_per_s=MANY)
    with (
        ShareSession(node.bootstrap, group, topic).join() as one,
        ShareSession(node.bootstrap, group, topic).join() as two,
    ):
        one.fetch(max_wait_ms=0)
        for _ in range(2):
            answer = two.fetch_message(max_wait_ms=0)
            assert answer["ErrorCode"] == ErrorCode.SHARE_SESSION_LIMIT_REACHED
        one.fetch(max_wait_ms=0)
        reload(node, 1, share_sessions=2)
        two.fetch(max_wait_ms=0)
        reload(node, 1, share_sessions=0)
        two.fetch(max_wait_ms=0)  # one that is open stays
        two.acknowledge({}, epoch=-1)
        two.epoch = 0
        answer = two.fetch_message(max_wait_ms=0)
        assert answer["ErrorCode"] == ErrorCode.SHARE_SESSION_LIMIT_REACHED
