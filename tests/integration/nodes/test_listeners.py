"""Two nodes with two listeners each: clients are told the owners' addresses of the listener that
they came to, plain or TLS with server names.
"""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient

from gateway.core.wire.apis import ApiKey
from gateway.embedded.kafka import KafkaCluster
from gateway.embedded.process import free_ports
from gateway.embedded.redis import EmbeddedRedis
from tests.rig.certificates import Authority
from tests.rig.gateway_process import GatewayProcess
from tests.rig.loopback import body_of
from tests.rig.patience import wait_until
from tests.rig.wire_frames import request

pytestmark = pytest.mark.integration


class Node:
    """A plain listener, one with TLS and ports, one with TLS and names."""

    def __init__(
        self, name: str, directory: Path, kafka: KafkaCluster, redis: str, own: dict[str, str]
    ) -> None:
        self.tls, self.names = free_ports(4), free_ports(1)
        names = {"bootstrap": "kafka.test", "broker": f"broker-{{id}}.{name}.kafka.test"}
        listeners: list[dict[str, Any]] = [
            {"name": "tls", "bootstrap_port": self.tls, "port_base": self.tls + 1, "tls": own},
            {"name": "names", "bootstrap_port": self.names, "tls": own, "sni": names},
        ]
        self.name = name
        self.process = GatewayProcess(
            directory / name,
            kafka.bootstrap_servers,
            redis_url=redis,
            nodes={"id": name},
            listeners=listeners,
        )

    def address(self, listener: str, broker: int) -> tuple[str, int]:
        if listener == "names":
            return f"broker-{broker}.{self.name}.kafka.test", self.names
        base = self.tls + 1 if listener == "tls" else self.process.port_base
        return "127.0.0.1", base + broker

    def bootstrap(self, listener: str) -> str:
        return f"127.0.0.1:{self.tls}" if listener == "tls" else self.process.bootstrap


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture(scope="module")
def nodes(
    kafka_pair: KafkaCluster, authority: Authority, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[list[Node]]:
    directory = tmp_path_factory.mktemp("nodes")
    own = authority.issue(
        "gateway", alternatives="IP:127.0.0.1,DNS:kafka.test,DNS:*.kafka.test"
    ).as_options()
    with EmbeddedRedis(directory / "redis") as redis, ExitStack() as running:
        both = [Node(name, directory, kafka_pair, redis.url, own) for name in ("a", "b")]
        for node in both:
            running.enter_context(node.process)
        yield both


def shown(address: str, authority: Authority, *, secure: bool) -> dict[int, tuple[str, int]]:
    tls = {"security.protocol": "ssl", "ssl.ca.location": str(authority.ca_file)}
    admin = AdminClient({"bootstrap.servers": address, **(tls if secure else {})})
    brokers = admin.list_topics(timeout=60).brokers
    return {broker.id: (str(broker.host), broker.port) for broker in brokers.values()}


def shown_by_name(node: Node, authority: Authority) -> dict[int, tuple[str, int]]:
    """Over the one port: no stock client finds these names without a DNS of its own."""
    with (
        socket.create_connection(("127.0.0.1", node.names), timeout=60) as plain,
        authority.trusting().wrap_socket(plain, server_hostname="kafka.test") as client,
        client.makefile("rb") as reader,
    ):
        client.sendall(request(ApiKey.METADATA, 12))
        size = reader.read(4)
        frame = size + reader.read(int.from_bytes(size, "big"))
    brokers = body_of(frame, ApiKey.METADATA, 12)["Brokers"]
    return {broker["NodeId"]: (broker["Host"], broker["Port"]) for broker in brokers}


@pytest.mark.parametrize("listener", ["plain", "tls", "names"])
def test_every_node_shows_the_owners_of_the_listener(
    nodes: list[Node], authority: Authority, listener: str
) -> None:
    """Each node owns one of the two brokers."""
    ways = [
        {1: nodes[at].address(listener, 1), 2: nodes[1 - at].address(listener, 2)} for at in (0, 1)
    ]

    def divided() -> bool:
        found = [
            shown_by_name(node, authority)
            if listener == "names"
            else shown(node.bootstrap(listener), authority, secure=listener == "tls")
            for node in nodes
        ]
        return found[0] == found[1] and found[0] in ways

    wait_until(divided, what="each node to own a broker", deadline_s=60)
