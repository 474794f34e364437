"""A client's own SASL identity passes to upstream unread, here onto a TLS connection: one client
connection is one upstream connection, so SCRAM works too. The broker asks for a new authentication
every two seconds (KIP-368). The same over a listener with TLS.
"""

from __future__ import annotations

import asyncio
import base64
import json
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import uvloop
from confluent_kafka import Consumer, KafkaError, Producer
from confluent_kafka.admin import AdminClient

from gateway.core.client_limits.rules import ANONYMOUS
from gateway.core.cluster.topology import Topology
from gateway.core.forwarding.rewrite import Address
from gateway.core.wire.apis import ApiKey
from gateway.listen.server import Server, ServerSettings
from keyway.tls.certificates import TlsFiles
from tests.rig.certificates import Authority
from tests.rig.clients.wire_client import WireClient
from tests.rig.kafka import create_topic
from tests.rig.loopback import ANY_PORTS
from tests.rig.patience import patient_s
from tests.rig.secure_kafka import PASSWORD, USER, SecureKafka

pytestmark = pytest.mark.integration

WAIT_S = 30.0


def _part(fields: dict[str, object]) -> str:
    return base64.urlsafe_b64encode(json.dumps(fields).encode()).rstrip(b"=").decode()


# Kafka's own check of tokens without a signature asks for these.
CLAIMS = _part({"sub": "anna", "iat": 1, "exp": 4_000_000_000})
REAUTHENTICATED_S = 3.5


@dataclass(frozen=True)
class Front:
    """Bootstrap addresses of one server: a plain one, and one with TLS."""

    plain: str
    tls: str
    ca_file: Path
    server: Server

    def client(self, way: str, mechanism: str, password: str = PASSWORD) -> dict[str, str]:
        """Settings of librdkafka."""
        identity = {
            "sasl.mechanism": mechanism,
            "sasl.username": USER,
            "sasl.password": password,
        }
        if way == "plain":
            address = {"bootstrap.servers": self.plain, "security.protocol": "SASL_PLAINTEXT"}
            return address | identity
        address = {"bootstrap.servers": self.tls, "security.protocol": "SASL_SSL"}
        return {**address, "ssl.ca.location": str(self.ca_file), **identity}


@pytest.fixture(scope="module")
def front(secure: SecureKafka, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Front]:
    """A server with TLS to upstream, on a loop of its own."""
    authority = Authority(tmp_path_factory.mktemp("authority"))
    own = authority.issue("gateway")
    files = TlsFiles(cert_file=own.cert_file, key_file=own.key_file)
    host, port = secure.secure_servers.split(":")
    settings = ServerSettings(
        bootstrap_servers=(Address(host, int(port)),),
        listeners=(ANY_PORTS, replace(ANY_PORTS, name="tls", tls=files)),
        drain_s=1.0,
        upstream_ssl=lambda: ssl.create_default_context(cafile=str(secure.certificate)),
        upstream_sasl=True,
    )
    server = Server(settings, Topology(), {})
    ready, started = threading.Event(), list[str]()
    stop: list[Callable[[], object]] = []

    async def serve() -> None:
        ended = asyncio.Event()
        loop = asyncio.get_running_loop()
        async with server.running():
            stop.append(lambda: loop.call_soon_threadsafe(ended.set))
            places = [listener.bootstrap for listener in server.listening.all.values()]
            started.extend(f"{place.host}:{place.port}" for place in places if place is not None)
            ready.set()
            await ended.wait()

    thread = threading.Thread(target=uvloop.run, args=(serve(),))
    thread.start()
    assert ready.wait(WAIT_S)
    yield Front(started[0], started[1], authority.ca_file, server)
    stop[0]()
    thread.join(WAIT_S)
    assert not thread.is_alive()


@pytest.mark.parametrize("way", ["plain", "tls"])
@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_a_client_authenticates_at_upstream_again_and_again(
    secure: SecureKafka, front: Front, fresh_name: Callable[[str], str], mechanism: str, way: str
) -> None:
    name = fresh_name("sasl")
    create_topic(secure.cluster.bootstrap_servers, name)
    producer = Producer(front.client(way, mechanism))
    failed: list[object] = []
    sent = 0
    until = time.monotonic() + REAUTHENTICATED_S
    while time.monotonic() < until:
        producer.produce(
            name, b"%d" % sent, on_delivery=lambda error, _: failed.append(error) if error else None
        )
        sent += 1
        producer.flush(WAIT_S)
    assert not failed
    consumer = Consumer(
        {
            "group.id": name,
            "auto.offset.reset": "earliest",
            **front.client(way, mechanism),
        }
    )
    consumer.subscribe([name])
    got: list[bytes | None] = []
    deadline = time.monotonic() + patient_s(WAIT_S)
    while len(got) < sent:
        assert time.monotonic() < deadline, f"{len(got)} of {sent}"
        got += [message.value() for message in consumer.consume(1_000, 0.2)]
    consumer.close()
    assert got == [b"%d" % number for number in range(sent)]


@pytest.mark.parametrize("way", ["plain", "tls"])
@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256"])
def test_a_wrong_password_is_refused_by_upstream(front: Front, mechanism: str, way: str) -> None:
    errors: list[KafkaError] = []
    config: dict[str, Any] = front.client(way, mechanism, "wrong")
    config["error_cb"] = errors.append
    admin = AdminClient(config)
    deadline = time.monotonic() + patient_s(WAIT_S)
    while not any(error.code() == KafkaError._AUTHENTICATION for error in errors):
        assert time.monotonic() < deadline, errors
        admin.poll(0.1)


@pytest.mark.parametrize(
    ("claims", "name"), [(CLAIMS, ANONYMOUS), (_part({"sub": "anna", "iat": 1, "exp": 2}), None)]
)
def test_a_token_names_nobody_before_upstream_has_taken_it(
    front: Front, claims: str, name: str | None
) -> None:
    """Kafka refuses one that is over without an error code: its answer says why."""

    def principal() -> str | None:
        """Other clients of these tests may come back meanwhile."""
        facts = [known.facts for known in front.server.connections.values()]
        (own,) = (known for known in facts if known.client_id == "wire-client")
        return own.principal

    with WireClient(front.plain) as client:
        client.call(ApiKey.SASL_HANDSHAKE, 1, {"Mechanism": "OAUTHBEARER"})
        token = f"{_part({'alg': 'none'})}.{claims}."
        message = f"n,,\1auth=Bearer {token}\1\1".encode()
        answer = client.call(ApiKey.SASL_AUTHENTICATE, 2, {"AuthBytes": message})
        assert (answer["ErrorCode"], bool(answer["AuthBytes"])) == (0, name is None)
        assert principal() == name
