"""The gateway authenticates stock clients, and gives each its own identity at upstream."""

from __future__ import annotations

import asyncio
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx
import pytest
from aiokafka import AIOKafkaProducer
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, ShareConsumer
from confluent_kafka.admin import AdminClient

from tests.rig.clients.java_programs import JVM_OPTIONS, JavaPrograms
from tests.rig.clients.kafka_tools import TOPICS, KafkaTools
from tests.rig.clients.wire_client import WireClient
from tests.rig.identified_node import (
    CLIENTS,
    WITHOUT_IDENTITY,
    Guarded,
    IdentifiedNode,
    gate_password,
    identified_node,
    kafka_password,
    kafka_user,
)
from tests.rig.patience import patient_s, wait_until

pytestmark = pytest.mark.integration

WAYS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER", "CERTIFICATE")
SESSION_MS = 3_000  # clients with SASL authenticate again (KIP-368) ...
REAUTHENTICATED_S = 6.0  # ... and upstream asks for the same after 4 s


@pytest.fixture(scope="module")
def node(
    guarded_broker: Guarded, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[IdentifiedNode]:
    directory = tmp_path_factory.mktemp("identities")
    with identified_node(directory, guarded_broker, session_lifetime_ms=SESSION_MS) as node:
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
            got += [message.value() for message in consumer.consume(100, 0.2)]
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
    while not (
        said := [error.str() for error in errors if error.code() == KafkaError._AUTHENTICATION]
    ):
        assert time.monotonic() < deadline, errors
        admin.poll(0.1)
    assert "Authentication failed" in said[0]


def test_share_groups_obey_the_acls_of_the_identity(
    node: IdentifiedNode, fresh_name: Callable[[str], str]
) -> None:
    mark = fresh_name("shared").encode()
    assert produced(librdkafka(node, "SCRAM-SHA-512", "bert"), "bert", [mark]) == [""]

    def member(client: str, group: str) -> ShareConsumer:
        made = ShareConsumer({**librdkafka(node, "SCRAM-SHA-512", client), "group.id": group})
        made.subscribe(["bert"])
        return made

    stranger, owner = member("anna", "bert"), member("bert", "bert")
    got: list[bytes | None] = []
    deadline = time.monotonic() + patient_s(60)
    while mark not in got:
        assert time.monotonic() < deadline, (got, node.gateway.log_tail())
        got += [message.value() for message in owner.poll(0.5) if message.error() is None]
        with suppress(KafkaException):  # she may not read the group
            assert all(message.error() is not None for message in stranger.poll(0.1))
    for each in (stranger, owner):
        with suppress(KafkaException):
            each.close()


def javas(node: IdentifiedNode, directory: Path, way: str, client: str) -> tuple[str, Path]:
    """A bootstrap address, and the properties of a client of Java's."""
    if way == "CERTIFICATE":
        shown, store = node.certificates[client], directory / f"{client}.pem"
        store.write_text(shown.key_file.read_text() + shown.cert_file.read_text())
        servers, lines = node.mutual, ["security.protocol=SSL"]
        lines += ["ssl.truststore.type=PEM", "ssl.keystore.type=PEM"]
        lines += [f"ssl.truststore.location={node.authority.ca_file}"]
        lines += [f"ssl.keystore.location={store}"]
    else:
        kind = "plain.Plain" if way == "PLAIN" else "scram.Scram"
        login = f'username="{client}" password="{gate_password(client)}"'
        module = f"org.apache.kafka.common.security.{kind}LoginModule"
        servers, lines = node.sasl, ["security.protocol=SASL_PLAINTEXT", f"sasl.mechanism={way}"]
        lines += [f"sasl.jaas.config={module} required {login};"]
    properties = directory / f"{client}-{way}.properties"
    properties.write_text("\n".join(lines) + "\n")
    return servers, properties


@pytest.mark.deep
@pytest.mark.parametrize("way", ["CERTIFICATE", "PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_javas_tools(
    node: IdentifiedNode, kafka_tools: KafkaTools, tmp_path: Path, way: str
) -> None:
    for client, other in zip(CLIENTS, reversed(CLIENTS), strict=True):
        servers, properties = javas(node, tmp_path, way, client)
        said = kafka_tools.run(TOPICS, servers, "--command-config", str(properties), "--list")
        assert (client in said.split(), other in said.split()) == (True, False), said


def test_javas_tools_with_tokens(
    node: IdentifiedNode, java_programs: JavaPrograms, tmp_path: Path
) -> None:
    """Java's own OAUTHBEARER client. It takes the token of a file that its JVM allows it to read,
    and asks the issuer for none.
    """
    package = "org.apache.kafka.common.security.oauthbearer"
    for client, other in zip(CLIENTS, reversed(CLIENTS), strict=True):
        token, properties = tmp_path / f"{client}.jwt", tmp_path / f"{client}.properties"
        token.write_text(node.issuer.token(client))
        lines = (
            "security.protocol=SASL_PLAINTEXT",
            "sasl.mechanism=OAUTHBEARER",
            f"sasl.jaas.config={package}.OAuthBearerLoginModule required;",
            f"sasl.login.callback.handler.class={package}.OAuthBearerLoginCallbackHandler",
            f"sasl.oauthbearer.token.endpoint.url=file://{token}",
        )
        properties.write_text("\n".join(lines) + "\n")
        allowed = "-Dorg.apache.kafka.sasl.oauthbearer.allowed."
        command = java_programs.command(
            *(TOPICS, "--bootstrap-server", node.sasl, "--command-config", str(properties)),
            "--list",
            options=(*JVM_OPTIONS, f"{allowed}urls=file://{token}", f"{allowed}files={token}"),
        )
        done = subprocess.run(command, capture_output=True, text=True, timeout=patient_s(120))
        said = done.stdout + done.stderr
        assert (client in said.split(), other in said.split()) == (True, False), said


def test_a_session_without_another_login_ends(node: IdentifiedNode) -> None:
    with WireClient(node.sasl) as line:
        assert line.call(17, 1, {"Mechanism": "PLAIN"})["ErrorCode"] == 0
        login = b"\0anna\0" + gate_password("anna").encode()
        answer = line.call(36, 2, {"AuthBytes": login})
        assert (answer["ErrorCode"], answer["SessionLifetimeMs"]) == (0, SESSION_MS)
        assert not line.closed_within(SESSION_MS / 2_000)
        assert line.closed_within(patient_s(10))


def test_limits_see_the_client_and_not_its_identity(node: IdentifiedNode) -> None:
    producer = Producer(librdkafka(node, "CERTIFICATE", "anna"))
    producer.list_topics(timeout=patient_s(30))

    def principals_shown() -> set[str]:
        shown = httpx.get(f"http://{node.gateway.admin}/v1/connections").json()["connections"]
        return {row["principal"] for row in shown}

    # librdkafka may be between two connections.
    wait_until(
        lambda: "CN=anna,OU=shop,C=DE" in principals_shown(), what="the client", deadline_s=30
    )
    principals = principals_shown()
    assert not principals & {kafka_user(client) for client in CLIENTS}


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
