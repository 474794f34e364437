"""Bytes no Kafka client sends: a Kafka error or a clean close, one log line, nothing else
disturbed.
"""

from __future__ import annotations

import struct
import time
from collections.abc import Callable, Iterator
from functools import partial

import pytest

from gateway.core.wire.apis import ApiKey
from gateway.core.wire.codec import decode_response
from gateway.core.wire.errors import ErrorCode
from tests.rig.clients.wire_client import WireClient
from tests.rig.gateway_process import GatewayProcess, answers_api_versions
from tests.rig.operating import metrics
from tests.rig.patience import wait_until

pytestmark = pytest.mark.integration

Topic = Callable[..., str]
CLOSE_S_MAX = 20.0
TLS_CLIENT_HELLO = bytes.fromhex("16030100f5010000f10303") + bytes(240)
STRANGERS = 'keyway_server_refused_total{reason="not_kafka"}'
FAILED = "keyway_server_connections_failed_total"
HTTP = b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"


def frame(key: int, version: int, body: bytes = b"", *, client_id: bytes = b"bad") -> bytes:
    header = struct.pack(">hhih", key, version, 77, len(client_id)) + client_id
    return struct.pack(">i", len(header) + len(body)) + header + body


@pytest.fixture
def watched(gateway: GatewayProcess) -> Iterator[Callable[[], list[str]]]:
    """Lines about connections since the test began; afterwards the gateway still serves,
    untroubled.
    """
    bystander = WireClient(gateway.bootstrap)
    start = len(gateway.log_text())
    yield lambda: [
        line for line in gateway.log_text()[start:].splitlines() if "connection=" in line
    ]
    assert gateway.running
    assert bystander.call(ApiKey.API_VERSIONS, 0, {})["ErrorCode"] == 0, "other clients go on"
    bystander.close()
    wait_until(
        lambda: answers_api_versions(gateway.bootstrap), what="it still serves", deadline_s=20
    )
    assert "Traceback" not in gateway.log_text()[start:], gateway.log_tail()


@pytest.mark.parametrize("port", ["bootstrap", "broker"])
@pytest.mark.parametrize(
    "data",
    [
        pytest.param(TLS_CLIENT_HELLO, id="tls"),
        pytest.param(HTTP, id="http"),
        pytest.param(b"POST /v1/x HTTP/1.1\r\n\r\n{}", id="http-post"),
        pytest.param(b"SSH-2.0-OpenSSH_9.2\r\n", id="ssh"),
        pytest.param(b"\xff" * 64, id="ff"),
        pytest.param(struct.pack(">i", -1) + b"x" * 8, id="negative-size"),
        pytest.param(struct.pack(">i", 0), id="size-0"),
        pytest.param(struct.pack(">i", 4) + b"abcd", id="shorter-than-a-header"),
        pytest.param(struct.pack(">i", 2_000_000_000), id="frame-of-2-GB"),
        pytest.param(struct.pack(">i", 101 << 20), id="frame-over-the-limit"),
    ],
)
def test_not_kafka(
    gateway: GatewayProcess, watched: Callable[[], list[str]], data: bytes, port: str
) -> None:
    address = gateway.bootstrap if port == "bootstrap" else gateway.address_of(1)
    counter = STRANGERS if data == TLS_CLIENT_HELLO or b"HTTP" in data else FAILED
    before = metrics(gateway)[counter]
    with WireClient(address) as client:
        client.send_bytes(data)
        assert client.closed_within(CLOSE_S_MAX)
    # All are counted; of each kind there is one line in ten seconds.
    assert metrics(gateway)[counter] == before + 1
    assert len(watched()) <= 1, watched()


def ends(gateway: GatewayProcess, address: str, data: bytes) -> None:
    """The connection is closed and counted."""
    before = metrics(gateway)[FAILED]
    with WireClient(address) as client:
        client.send_bytes(data)
        assert client.closed_within(CLOSE_S_MAX)
    assert metrics(gateway)[FAILED] == before + 1


def test_a_fault_is_told_in_a_line(
    gateway: GatewayProcess, watched: Callable[[], list[str]]
) -> None:
    """A line of each kind is due every ten seconds."""

    def told() -> bool:
        ends(gateway, gateway.bootstrap, b"\xff" * 64)
        return bool(watched())

    wait_until(told, what="a log line", deadline_s=20)


def test_tls_and_http_are_called_by_their_names(
    gateway: GatewayProcess, watched: Callable[[], list[str]]
) -> None:
    """A line of each kind is due every ten seconds."""

    def named(name: str, data: bytes) -> bool:
        with WireClient(gateway.bootstrap) as client:
            client.send_bytes(data)
            assert client.closed_within(CLOSE_S_MAX)
        return any(name in line.lower() for line in watched())

    for name, data in (("tls", TLS_CLIENT_HELLO), ("http", HTTP)):
        wait_until(partial(named, name, data), what=f"a line that names {name}", deadline_s=20)


def test_a_frame_cut_off_in_the_middle(
    gateway: GatewayProcess, watched: Callable[[], list[str]]
) -> None:
    whole = frame(ApiKey.METADATA, 1, struct.pack(">i", 0))
    for cut in (1, 3, 4, 9, len(whole) - 1):
        with WireClient(gateway.bootstrap) as client:
            client.send_bytes(whole[:cut])
            client.finish_sending()
            assert client.closed_within(CLOSE_S_MAX), f"cut after {cut} bytes"
    assert len(watched()) <= 5


def test_a_frame_that_comes_byte_by_byte(gateway: GatewayProcess) -> None:
    """No fault at all: frames may arrive in any pieces."""
    with WireClient(gateway.bootstrap) as client:
        for at, byte in enumerate(frame(ApiKey.API_VERSIONS, 0)):
            client.send_bytes(bytes([byte]))
            if at % 8 == 0:
                time.sleep(0.005)
        answer = client.receive_frame()
    assert decode_response(ApiKey.API_VERSIONS, 0, answer, 4)["ErrorCode"] == 0


@pytest.mark.parametrize("key", [-1, 5_000, 32_767])
def test_unknown_api_key(
    gateway: GatewayProcess, watched: Callable[[], list[str]], key: int
) -> None:
    ends(gateway, gateway.bootstrap, frame(key, 0))
    assert len(watched()) <= 1


@pytest.mark.parametrize("version", [-1, 3, 99])
@pytest.mark.parametrize("key", [ApiKey.SHARE_FETCH, ApiKey.SHARE_ACKNOWLEDGE])
def test_unsupported_share_version(
    gateway: GatewayProcess, watched: Callable[[], list[str]], key: int, version: int
) -> None:
    """As Kafka does for a version it never offered: the connection closes."""
    ends(gateway, gateway.bootstrap, frame(key, version, b"\x00" * 20))
    assert len(watched()) <= 1


def test_unsupported_api_versions_version(gateway: GatewayProcess) -> None:
    """Answered in version 0 with UNSUPPORTED_VERSION and the range, so that the client can
    go on.
    """
    with WireClient(gateway.bootstrap) as client:
        client.send_bytes(frame(ApiKey.API_VERSIONS, 99))
        answer = decode_response(ApiKey.API_VERSIONS, 0, client.receive_frame(), 4)
        assert answer["ErrorCode"] == ErrorCode.UNSUPPORTED_VERSION
        offered = {api["ApiKey"]: api["MaxVersion"] for api in answer["ApiKeys"]}
        assert ApiKey.API_VERSIONS in offered
        assert client.call(ApiKey.API_VERSIONS, 0, {})["ErrorCode"] == 0, "the same connection"


@pytest.mark.parametrize(
    "key", [ApiKey.SHARE_GROUP_HEARTBEAT, ApiKey.SHARE_FETCH, ApiKey.SHARE_GROUP_DESCRIBE]
)
@pytest.mark.parametrize(
    "body",
    [
        pytest.param(b"", id="empty"),
        pytest.param(b"\xff" * 40, id="lengths-past-the-end"),
        pytest.param(b"\x00\xff\xff\xff\xff\x07" + b"a" * 30, id="array-of-2-billion"),
    ],
)
def test_bodies_that_cannot_be_read(
    gateway: GatewayProcess, watched: Callable[[], list[str]], key: int, body: bytes
) -> None:
    ends(gateway, gateway.address_of(1), frame(key, 1, b"\x00" + body))
    assert len(watched()) <= 1


def test_requests_in_a_burst_are_answered_in_order(gateway: GatewayProcess) -> None:
    """Local answers and forwarded ones mixed on one connection keep their order."""
    with WireClient(gateway.address_of(1)) as client:
        sent = []
        for at in range(60):
            if at % 3 == 0:
                sent.append((client.send(ApiKey.METADATA, 9, {"Topics": []}), "metadata"))
            elif at % 3 == 1:
                sent.append((client.send(ApiKey.API_VERSIONS, 0, {}), "versions"))
            else:
                body = {"GroupIds": ["nobody"], "IncludeAuthorizedOperations": False}
                sent.append((client.send(ApiKey.SHARE_GROUP_DESCRIBE, 1, body), "describe"))
        for correlation_id, what in sent:
            answer = client.receive_frame()
            assert int.from_bytes(answer[:4], "big") == correlation_id, what


def test_a_thousand_connections_come_and_go(
    gateway: GatewayProcess, watched: Callable[[], list[str]]
) -> None:
    """Opened and closed without a byte: no log noise, no leak of descriptors."""
    import psutil

    process = psutil.Process(gateway.pid)
    before = process.num_fds()
    for _ in range(1_000):
        WireClient(gateway.bootstrap).close()
    wait_until(lambda: process.num_fds() <= before + 5, what="closed again", deadline_s=20)
    assert watched() == []
