"""The gateway authenticates stock clients, and gives each its own identity at upstream."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from aiokafka import AIOKafkaProducer
from confluent_kafka import Consumer, KafkaError, Producer
from confluent_kafka.admin import AdminClient

from tests.rig.identified_node import (
    CLIENTS,
    WITHOUT_IDENTITY,
    IdentifiedNode,
    gate_password,
    identified_node,
    kafka_password,
    kafka_user,
)
from tests.rig.patience import patient_s

pytestmark = pytest.mark.integration

WAYS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER", "CERTIFICATE")
REAUTHENTICATED_S = 6.0  # upstream asks for it after 4 s


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[IdentifiedNode]:
    with identified_node(tmp_path_factory.mktemp("identities")) as node:
        yield node


def librdkafka(node: IdentifiedNode, way: str, client: str) -> dict[str, Any]:
    if way == "CERTIFICATE":
        certificate = node.certificates[client]
        return {
            "bootstrap.servers": node.mutual,
            "security.protocol": "SSL",
            "ssl.ca.location": str(node.authority.ca_file),
            "ssl.certificate.location": str(certificate.cert_file),
            "ssl.key.location": str(certificate.key_file),
        }
    config: dict[str, Any] = {
        "bootstrap.servers": node.sasl,
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": way,
    }
    if way == "OAUTHBEARER":
        config["oauth_cb"] = lambda _: node.issuer.for_librdkafka(client)
        return config
    return {**config, "sasl.username": client, "sasl.password": gate_password(client)}


def direct(node: IdentifiedNode, client: str) -> dict[str, Any]:
    """As the identity that the client has, at the broker itself."""
    return {
        "bootstrap.servers": node.guarded,
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.username": kafka_user(client),
        "sasl.password": kafka_password(client),
    }


def produced(config: dict[str, Any], topic: str, values: list[bytes]) -> list[str]:
    """Names of the errors."""
    producer = Producer({**config, "message.timeout.ms": 30_000})
    errors: list[str] = []
    for value in values:
        producer.produce(
            topic, value, on_delivery=lambda error, _: errors.append(error.name() if error else "")
        )
        producer.flush(patient_s(60))
    return errors


@pytest.mark.parametrize("way", WAYS)
def test_each_client_gets_what_its_identity_may(
    node: IdentifiedNode, way: str, fresh_name: Callable[[str], str]
) -> None:
    marks = {client: fresh_name(f"{way}-{client}").encode() for client in CLIENTS}
    for client, mark in marks.items():
        assert produced(librdkafka(node, way, client), client, [mark]) == [""]
    for client, other in zip(CLIENTS, reversed(CLIENTS), strict=True):
        refused = produced(librdkafka(node, way, client), other, [b"not mine"])
        assert refused == ["TOPIC_AUTHORIZATION_FAILED"]
        consumer = Consumer(
            {
                **librdkafka(node, way, client),
                "group.id": client,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
            }
        )
        consumer.subscribe([client])
        got: list[bytes | None] = []
        deadline = time.monotonic() + patient_s(60)
        while marks[client] not in got:
            assert time.monotonic() < deadline, (got, node.gateway.log_tail())
            got += [it.value() for it in consumer.consume(100, 0.2)]
        consumer.close()
        assert b"not mine" not in got


def test_a_connection_outlives_the_session_at_upstream(node: IdentifiedNode) -> None:
    """Upstream asks its users to authenticate again every four seconds; the clients do not hear of
    it.
    """
    errors: list[object] = []
    producers = [Producer(librdkafka(node, way, "anna")) for way in ("PLAIN", "CERTIFICATE")]
    until = time.monotonic() + REAUTHENTICATED_S
    while time.monotonic() < until:
        for producer in producers:
            producer.produce(
                "anna", b"x", on_delivery=lambda error, _: errors.append(error) if error else None
            )
            producer.flush(patient_s(30))
    assert not errors
    assert "identity_not_renewed" not in node.gateway.log_text()
    assert "upstream_closed_connection" not in node.gateway.log_text()


@pytest.mark.parametrize(
    ("way", "user", "password"),
    [
        ("PLAIN", "anna", "wrong"),
        ("PLAIN", "nobody", "wrong"),
        ("PLAIN", kafka_user("anna"), kafka_password("anna")),
        ("SCRAM-SHA-256", "anna", "wrong"),
        ("SCRAM-SHA-512", "nobody", "wrong"),
        ("SCRAM-SHA-512", WITHOUT_IDENTITY, gate_password(WITHOUT_IDENTITY)),
    ],
)
def test_others_are_told_that_they_are_not_let_in(
    node: IdentifiedNode, way: str, user: str, password: str
) -> None:
    errors: list[KafkaError] = []
    config = {**librdkafka(node, way, "anna"), "sasl.username": user, "sasl.password": password}
    config["error_cb"] = errors.append
    admin = AdminClient(config)
    deadline = time.monotonic() + patient_s(30)
    while not (said := [it.str() for it in errors if it.code() == KafkaError._AUTHENTICATION]):
        assert time.monotonic() < deadline, errors
        admin.poll(0.1)
    assert "Authentication failed" in said[0]


def test_aiokafka(node: IdentifiedNode) -> None:
    async def main(mechanism: str) -> None:
        producer = AIOKafkaProducer(
            bootstrap_servers=node.sasl,
            security_protocol="SASL_PLAINTEXT",
            sasl_mechanism=mechanism,
            sasl_plain_username="bert",
            sasl_plain_password=gate_password("bert"),
        )
        await producer.start()
        try:
            await producer.send_and_wait("bert", b"from aiokafka")
        finally:
            await producer.stop()

    for mechanism in ("PLAIN", "SCRAM-SHA-512"):
        asyncio.run(main(mechanism))
