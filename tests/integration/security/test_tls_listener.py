"""A node with a plain listener and one with TLS, before two brokers: whoever came to one is never
sent to the other, and SIGHUP reads certificates again.
"""

from __future__ import annotations

import os
import shutil
import signal
import socket
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest

from gateway.core.wire.apis import ApiKey
from gateway.core.wire.errors import ErrorCode
from gateway.core.wire.records import Record, build
from gateway.embedded.kafka import KafkaCluster
from gateway.embedded.process import free_ports
from tests.rig.certificates import Authority
from tests.rig.clients.wire_client import WireClient
from tests.rig.gateway_process import GatewayProcess
from tests.rig.kafka import create_topic
from tests.rig.patience import wait_until

pytestmark = pytest.mark.integration

RELOADS = "keyway_tls_certificate_reloads_total"


@dataclass(frozen=True)
class Node:
    process: GatewayProcess
    authority: Authority
    directory: Path  # of the certificate in use
    tls: int  # its bootstrap port

    def client(self, listener: str, broker: int) -> WireClient:
        address = self.address(listener, broker)
        trusting = self.authority.trusting() if listener == "tls" else None
        return WireClient(address, tls=trusting)

    def address(self, listener: str, broker: int) -> str:
        if listener == "plain":
            return self.process.address_of(broker)
        return f"127.0.0.1:{self.tls + 1 + broker}"

    def put(self, name: str) -> None:
        """A new certificate in the place of the one before."""
        made = self.authority.issue(name)
        for source, place in ((made.key_file, "own.key"), (made.cert_file, "own.pem")):
            new = self.directory / f"{place}.new"
            shutil.copy(source, new)
            new.replace(self.directory / place)

    def name_shown(self) -> str:
        with (
            socket.create_connection(("127.0.0.1", self.tls), timeout=60) as plain,
            self.authority.trusting().wrap_socket(plain, server_hostname="127.0.0.1") as client,
        ):
            shown = client.getpeercert()
        assert shown is not None
        names: Any = shown["subject"]
        return str(names[0][0][1])

    def reloads(self) -> float:
        text = httpx.get(f"http://{self.process.admin}/metrics", timeout=60).text
        return sum(
            float(line.split()[-1]) for line in text.splitlines() if line.startswith(RELOADS)
        )


@pytest.fixture(scope="module")
def node(kafka_pair: KafkaCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    directory = tmp_path_factory.mktemp("tls-listener")
    authority, port = Authority(directory / "authority"), free_ports(5)
    files = {"cert_file": str(directory / "own.pem"), "key_file": str(directory / "own.key")}
    tls = {"name": "tls", "bootstrap_port": port, "port_base": port + 1, "tls": files}
    process = GatewayProcess(
        directory / "gateway", kafka_pair.bootstrap_servers, listeners=[tls], afresh=True
    )
    made = Node(process, authority, directory, port)
    made.put("first")
    with process:
        yield made


@pytest.mark.parametrize("listener", ["plain", "tls"])
def test_a_coordinator_is_told_with_the_address_of_the_clients_listener(
    node: Node, fresh_name: Callable[[str], str], listener: str
) -> None:
    keys = [fresh_name("group") for _ in range(8)]  # some on either broker
    asked = {"KeyType": 0, "CoordinatorKeys": keys}
    with node.client(listener, 1) as client:

        def known() -> list[tuple[int, str]]:
            found = client.call(ApiKey.FIND_COORDINATOR, 6, asked)["Coordinators"]
            return [
                (coordinator["NodeId"], f"{coordinator['Host']}:{coordinator['Port']}")
                for coordinator in found
                if not coordinator["ErrorCode"]
            ]

        wait_until(lambda: len(known()) == len(keys), what="coordinators", deadline_s=60)
        for broker, address in known():
            assert address == node.address(listener, broker)


@pytest.mark.parametrize("listener", ["plain", "tls"])
def test_a_new_leader_is_told_with_the_address_of_the_clients_listener(
    node: Node, kafka_pair: KafkaCluster, fresh_name: Callable[[str], str], listener: str
) -> None:
    """KIP-951: who writes to a broker that does not lead is told who does."""
    topic = fresh_name("led")
    create_topic(kafka_pair.bootstrap_servers, topic, assignment=[[1]])
    records = build([Record(0, 1_760_000_000_000, b"k", b"v")], base_offset=0)
    part = {"Index": 0, "Records": records}
    topics = [{"Name": topic, "PartitionData": [part]}]
    body = {"Acks": -1, "TimeoutMs": 30_000, "TopicData": topics}
    with node.client(listener, 2) as client:
        said = client.call(ApiKey.PRODUCE, 12, body)
    (answer,) = said["Responses"][0]["PartitionResponses"]
    assert answer["ErrorCode"] == ErrorCode.NOT_LEADER_OR_FOLLOWER
    (leader,) = said["NodeEndpoints"]
    assert leader["NodeId"] == answer["CurrentLeader"]["LeaderId"] == 1
    assert f"{leader['Host']}:{leader['Port']}" == node.address(listener, 1)


def test_sighup_reads_certificates_again_and_ends_nothing(node: Node) -> None:
    assert node.name_shown() == "first"
    client = node.client("tls", 1)
    before = node.reloads()
    os.kill(node.process.pid, signal.SIGHUP)
    # Files as before are read again by an order alone, not by the look each few seconds.
    wait_until(lambda: node.reloads() > before, what="certificates read again", deadline_s=30)
    node.put("second")
    os.kill(node.process.pid, signal.SIGHUP)
    wait_until(lambda: node.name_shown() == "second", what="the new one", deadline_s=30)
    assert client.call(ApiKey.METADATA, 12, {"Topics": []})["Brokers"]
    client.close()
    assert node.process.running
