"""A real node whose clients send damaged frames: others notice nothing, and no bug is logged."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random

import pytest

from gateway.core.wire.apis import ApiKey
from gateway.embedded.kafka import KafkaCluster
from tests.fuzz.corpus import Exchange, read
from tests.fuzz.mutate import chunks, framed, mutated
from tests.rig.clients.wire_client import ShareSession, WireClient
from tests.rig.gateway_process import GatewayProcess
from tests.rig.kafka import produce

pytestmark = pytest.mark.integration

ACCEPT = 1
ROUNDS = 40
HOSTILE = 8  # connections of a round
HEAD_BYTES = 8  # API, version, correlation id: kept, so that no other API is asked
# Kafka is shared with other tests: only APIs that change nothing there.
ASKED = frozenset(
    {
        ApiKey.FETCH,
        ApiKey.METADATA,
        ApiKey.FIND_COORDINATOR,
        ApiKey.API_VERSIONS,
        ApiKey.DESCRIBE_CONFIGS,
        ApiKey.LIST_GROUPS,
        ApiKey.SHARE_GROUP_HEARTBEAT,
        ApiKey.SHARE_GROUP_DESCRIBE,
        ApiKey.SHARE_FETCH,
        ApiKey.SHARE_ACKNOWLEDGE,
        ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS,
    }
)


@pytest.fixture
def gateway(kafka: KafkaCluster, tmp_path: Path) -> Iterator[GatewayProcess]:
    # The member sends no heartbeat after its join.
    groups = [{"match": "*", "auto_offset_reset": "earliest", "session_timeout_ms": 600_000}]
    with GatewayProcess(tmp_path, kafka.bootstrap_servers, groups=groups) as process:
        yield process


def send_garbage(address: str, corpus: list[Exchange], random: Random) -> None:
    host, _, port = address.rpartition(":")
    with contextlib.suppress(OSError), socket.create_connection((host, int(port)), 10) as line:
        line.settimeout(0.05)
        for _ in range(3):
            exchange, other = random.choice(corpus), random.choice(corpus)
            request = exchange.request
            request = request[:HEAD_BYTES] + mutated(request[HEAD_BYTES:], other.request, random)
            for piece in chunks(framed(request, random), random):
                line.sendall(piece)
            with contextlib.suppress(TimeoutError):
                line.recv(65_536)


def test_damaged_frames_cost_other_clients_nothing(
    kafka: KafkaCluster,
    gateway: GatewayProcess,
    topic: Callable[..., str],
    fresh_name: Callable[[str], str],
) -> None:
    corpus = [exchange for exchange in read() if exchange.key in ASKED]
    random = Random("a node")
    name, group = topic(), fresh_name("group")
    with (
        WireClient(gateway.bootstrap) as probe,
        ShareSession(gateway.bootstrap, group, name) as session,
    ):
        session.join()
        served = probe.call(ApiKey.API_VERSIONS, 3, {"ClientSoftwareName": "probe"})
        for at in range(ROUNDS):
            produce(kafka.bootstrap_servers, name, [(b"key", b"%d" % at)])
            address = gateway.bootstrap if at % 2 else gateway.address_of(1)
            for _ in range(HOSTILE):
                send_garbage(address, corpus, random)
            again = probe.call(ApiKey.API_VERSIONS, 3, {"ClientSoftwareName": "probe"})
            assert again == served
            taken = session.fetch_count(1)
            assert taken.acquired == [(at, 1)], "each record comes once, in order"
            assert session.acknowledge({0: [(at, at, [ACCEPT])]}) == {0: 0}
    log = gateway.log_text()
    assert "Traceback" not in log
    assert "handler_failed" not in log
    assert gateway.stop() == 0
