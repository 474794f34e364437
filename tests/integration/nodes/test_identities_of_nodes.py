"""Several nodes that authenticate clients: a client is the same at each of them, keeps its rights
when a node dies, and is let go by all of them when its user has gone.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from gateway.core.wire.apis import ApiKey
from gateway.core.wire.errors import ErrorCode
from gateway.core.wire.schema import Message
from gateway.embedded.kafka import KafkaCluster
from gateway.embedded.process import free_ports
from gateway.embedded.redis import EmbeddedRedis
from tests.rig.clients.share_members import MemberFailed, ShareHost
from tests.rig.clients.wire_client import WireClient
from tests.rig.gateway_process import GatewayProcess
from tests.rig.identified_node import (
    CLIENTS,
    OWN_IDENTITY,
    Issuer,
    gate_password,
    guarded_kafka,
    identities,
    replace,
    sasl_listener,
    write_users,
)
from tests.rig.patience import patient_s, wait_until

pytestmark = [pytest.mark.integration, pytest.mark.deep]

GONE_S = 20.0
PASSWORDS = {client: gate_password(client) for client in CLIENTS}


@dataclass
class Site:
    kafka: KafkaCluster
    nodes: dict[str, GatewayProcess]
    doors: dict[str, str]  # of the listener that authenticates, by node
    users: Path

    @property
    def bootstrap(self) -> str:
        return ",".join(self.doors.values())


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    users, rules, keys = (tmp_path / name for name in ("users.yaml", "identities.yaml", "jwks"))
    write_users(users, PASSWORDS)
    replace(rules, identities())
    keys.write_text(Issuer().key_set())
    listeners = {name: sasl_listener(users, rules, keys) for name in "ab"}
    with (
        guarded_kafka() as (kafka, guarded),
        EmbeddedRedis(tmp_path / "redis", port=free_ports(1)) as redis,
    ):
        nodes = {
            name: GatewayProcess(
                tmp_path / name,
                guarded,
                listeners=[listener],
                groups=[{"match": "*", "auto_offset_reset": "earliest"}],
                sasl=OWN_IDENTITY,
                redis_url=redis.url,
                nodes={"id": name},
                listen={"slots_per_broker": 2, "port_step": 1},
            )
            for name, listener in listeners.items()
        }
        doors = {
            name: f"127.0.0.1:{listener['bootstrap_port']}" for name, listener in listeners.items()
        }
        with nodes["a"], nodes["b"]:
            yield Site(kafka, nodes, doors, users)


def sasl(client: str) -> dict[str, str]:
    return {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.username": client,
        "sasl.password": PASSWORDS[client],
    }


def produced(site: Site, client: str, values: list[bytes]) -> None:
    config: dict[str, Any] = {"bootstrap.servers": site.bootstrap, **sasl(client)}
    producer = Producer(config)
    errors: list[object] = []
    for value in values:
        producer.produce(
            client,
            value,
            value,
            on_delivery=lambda error, _: errors.append(error) if error else None,
        )
    assert producer.flush(patient_s(60)) == 0
    assert not errors


def logged_in(door: str, client: str) -> WireClient:
    line = WireClient(door)
    assert line.call(ApiKey.SASL_HANDSHAKE, 1, {"Mechanism": "PLAIN"})["ErrorCode"] == 0
    token = f"\0{client}\0{PASSWORDS[client]}".encode()
    answer = line.call(ApiKey.SASL_AUTHENTICATE, 2, {"AuthBytes": token})
    assert answer["ErrorCode"] == 0
    return line


def errors_of(line: WireClient) -> list[int]:
    """Of the topics of both clients."""
    asked: Message = {"Topics": [{"Name": name} for name in CLIENTS]}
    answer = line.call(ApiKey.METADATA, 9, {**asked, "AllowAutoTopicCreation": False})
    found = {topic["Name"]: topic["ErrorCode"] for topic in answer["Topics"]}
    return [found[name] for name in CLIENTS]


def test_a_client_is_itself_at_each_node(site: Site, librdkafka_host: ShareHost) -> None:
    denied = int(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    for door in site.doors.values():
        with logged_in(door, "anna") as anna, logged_in(door, "bert") as bert:
            assert errors_of(anna) == [0, denied]
            assert errors_of(bert) == [denied, 0]
    member = librdkafka_host.member(
        site.bootstrap, "anna", ["anna"], name="anna", properties=sasl("anna")
    )
    stranger = librdkafka_host.member(
        site.bootstrap, "bert", ["anna"], name="bert", properties=sasl("bert")
    )
    first = [b"before-%d" % at for at in range(20)]
    produced(site, "anna", first)
    for each in (member, stranger):
        each.begin_consume(300)

    def came(values: list[bytes]) -> bool:
        return set(values) <= {delivery.value for delivery in member.deliveries}

    wait_until(lambda: came(first), what="records through two nodes", deadline_s=60)
    site.nodes["a"].kill()
    second = [b"after-%d" % at for at in range(20)]
    produced(site, "anna", second)
    wait_until(lambda: came(second), what="records of the other node", deadline_s=60)
    assert not stranger.deliveries, "the topic of somebody else"
    site.nodes["a"].start()
    with logged_in(site.doors["a"], "anna") as one, logged_in(site.doors["b"], "anna") as other:
        assert errors_of(one) == errors_of(other) == [0, denied]
        write_users(site.users, {"bert": PASSWORDS["bert"]})
        assert one.closed_within(patient_s(GONE_S))
        assert other.closed_within(patient_s(GONE_S))
    for door in site.doors.values():
        with logged_in(door, "bert") as bert:
            assert errors_of(bert) == [denied, 0]
    member.end_consume()
    with pytest.raises(MemberFailed, match="TOPIC_AUTHORIZATION_FAILED"):
        stranger.end_consume()
