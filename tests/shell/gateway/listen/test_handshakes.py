"""Listeners with TLS on real sockets: who gets in, who does not, and who is not disturbed."""

from __future__ import annotations

import asyncio
import socket
import ssl
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from gateway.core.tls.server_names import ServerNames
from gateway.core.wire.apis import ApiKey
from gateway.listen import handshakes
from gateway.listen.handshakes import Handshake, HandshakeFault
from gateway.listen.limits import FIRST_WORDS_BYTES_MAX, HANDSHAKES_MAX
from gateway.listen.settings import ListenerSettings
from keyway.tls.certificates import TlsFiles
from tests.rig.certificates import Authority, Issued
from tests.rig.loopback import Client, Rig, answers, body_of, rig, run, until
from tests.rig.patience import patient_s
from tests.rig.wire_frames import request, response

HEARTBEAT = int(ApiKey.HEARTBEAT)
METADATA = int(ApiKey.METADATA)


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("tls"))


@pytest.fixture(scope="module")
def own(authority: Authority) -> Issued:
    return authority.issue("gateway", alternatives="DNS:localhost,DNS:*.kafka.example,IP:127.0.0.1")


def files(own: Issued, **more: Any) -> TlsFiles:
    return TlsFiles(cert_file=own.cert_file, key_file=own.key_file, **more)


async def tls_client(
    gateway: Rig, context: ssl.SSLContext, *, name: str = "localhost", listener: str | None = None
) -> Client:
    addresses = gateway.server.listening.addresses(listener)
    port = addresses[1].port
    client = Client(
        *await asyncio.open_connection("127.0.0.1", port, ssl=context, server_hostname=name)
    )
    gateway.clients.append(client)
    return client


def test_a_client_that_breaks_off_behind_its_hello_does_not_end_the_node(own: Issued) -> None:
    """What came before the layer of TLS was there was given to it in the middle of a read."""
    module = "tests.rig.hasty_tls_clients"
    command = [sys.executable, "-m", module, str(own.cert_file), str(own.key_file), "300"]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=patient_s(60))
    assert ended.returncode == 0, ended.stderr


def failures(logs: list[Any]) -> list[str]:
    return [line["reason"] for line in logs if line["event"] == "tls_handshake_failed"]


def test_a_request_over_tls(authority: Authority, own: Issued) -> None:
    async def main() -> None:
        async with rig(tls=files(own)) as gateway:
            gateway.upstream.on_api(HEARTBEAT, answers({}))
            client = await tls_client(gateway, authority.trusting())
            assert await client.ask(request(HEARTBEAT)) == response(HEARTBEAT)
            (connection,) = gateway.server.connections.values()
            facts = connection.facts.tls
            assert facts is not None
            assert (facts.version, facts.peer, facts.server_name) == ("TLSv1.3", None, "localhost")
            assert connection.facts.host == "127.0.0.1"

    run(main())


def test_certificates_that_come_in_the_middle_of_a_start(
    authority: Authority, own: Issued, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A handshake keeps those that it began with, and the name that its client asks for is heard:
    without it a client of a virtual broker would be taken for one of first contact.
    """
    prepare = Handshake._prepare

    def reloading(handshake: Handshake, *args: Any) -> None:
        assert handshake._certificates.reload()
        prepare(handshake, *args)

    monkeypatch.setattr(Handshake, "_prepare", reloading)

    async def main() -> None:
        async with rig(tls=files(own)) as gateway:
            gateway.upstream.on_api(HEARTBEAT, answers({}))
            client = await tls_client(gateway, authority.trusting())
            assert await client.ask(request(HEARTBEAT)) == response(HEARTBEAT)
            (connection,) = gateway.server.connections.values()
            assert connection.facts.tls is not None
            assert connection.facts.tls.server_name == "localhost"

    run(main())


def test_who_the_client_is(authority: Authority, own: Issued) -> None:
    mutual = files(own, client_ca_file=authority.ca_file, client_auth=ssl.CERT_REQUIRED)
    orders = authority.issue(
        "orders",
        subject="/C=DE/O=Shop, Ltd/CN=orders",
        alternatives="DNS:orders.example,URI:spiffe://shop/orders,email:o@shop.example",
    )

    async def main() -> None:
        async with rig(tls=mutual) as gateway:
            gateway.upstream.on_api(HEARTBEAT, answers({}))
            client = await tls_client(gateway, authority.trusting(orders))
            await client.ask(request(HEARTBEAT))
            (connection,) = gateway.server.connections.values()
            assert connection.facts.tls is not None
            peer = connection.facts.tls.peer
            assert peer is not None
            assert peer.subject == "CN=orders,O=Shop\\, Ltd,C=DE", "as a principal of Kafka"
            assert peer.dns_names == ("orders.example",)
            assert peer.uris == ("spiffe://shop/orders",)
            assert peer.emails == ("o@shop.example",)
            assert peer.issuer == "CN=authority"
            assert int(peer.serial, 16) > 0

    run(main())


def test_no_certificate_or_a_strangers(authority: Authority, own: Issued, tmp_path: Path) -> None:
    mutual = files(own, client_ca_file=authority.ca_file, client_auth=ssl.CERT_REQUIRED)
    stranger = Authority(tmp_path, "strangers").issue("stranger")

    async def main() -> None:
        async with rig(tls=mutual) as gateway:
            for shown, alert in ((None, "certificate required"), (stranger, "unknown ca")):
                context = authority.trusting(shown)
                client = await tls_client(gateway, context)  # TLS 1.3: the answer comes later
                with pytest.raises(ssl.SSLError, match=alert):
                    await client.reader.read(1)
            counts = gateway.server.handshakes.counts["clients"]
            assert counts.failed == {
                HandshakeFault.NO_CERTIFICATE: 1,
                HandshakeFault.NOT_TRUSTED: 1,
            }
            assert not gateway.server.connections

    with capture_logs() as logs:
        run(main())
    assert failures(logs) == [
        "the client showed no certificate",
        "the client's certificate is not trusted",
    ]


def test_names_in_a_certificate_that_are_no_text(authority: Authority, own: Issued) -> None:
    """An authority that copies the names of a request signs them."""
    mutual = files(own, client_ca_file=authority.ca_file, client_auth=ssl.CERT_REQUIRED)
    not_utf8 = authority.issue("no-text", alternatives="DER:30:06:82:04:FF:FE:FF:FE")
    orders = authority.issue("orders")

    async def main() -> None:
        async with rig(tls=mutual) as gateway:
            gateway.upstream.on_api(HEARTBEAT, answers({}))
            for _ in range(3):
                client = await tls_client(gateway, authority.trusting(not_utf8))
                with pytest.raises((ConnectionError, asyncio.IncompleteReadError)):
                    await client.ask(request(HEARTBEAT))
            assert gateway.server.handshakes.counts["clients"].failed == {HandshakeFault.OTHER: 3}
            client = await tls_client(gateway, authority.trusting(orders))
            assert await client.ask(request(HEARTBEAT)) == response(HEARTBEAT)

    with capture_logs() as logs:
        run(main())
    (line,) = [line for line in logs if "failed" in line["event"]]
    assert line["detail"] == "names of the client's certificate are no text"


def test_a_requested_certificate_may_be_missing(authority: Authority, own: Issued) -> None:
    mutual = files(own, client_ca_file=authority.ca_file, client_auth=ssl.CERT_OPTIONAL)

    async def main() -> None:
        async with rig(tls=mutual) as gateway:
            gateway.upstream.on_api(HEARTBEAT, answers({}))
            client = await tls_client(gateway, authority.trusting())
            assert await client.ask(request(HEARTBEAT)) == response(HEARTBEAT)

    run(main())


def test_an_old_version_is_refused(authority: Authority, own: Issued) -> None:
    newest = files(own, version_min=ssl.TLSVersion.TLSv1_3)

    async def main() -> None:
        async with rig(tls=newest) as gateway:
            context = authority.trusting()
            context.maximum_version = ssl.TLSVersion.TLSv1_2
            with pytest.raises(ssl.SSLError, match="protocol version"):
                await tls_client(gateway, context)

    with capture_logs() as logs:
        run(main())
    assert failures(logs) == ["no TLS version or cipher in common"]


def test_each_listener_shows_its_own_addresses(authority: Authority, own: Issued) -> None:
    listeners = (
        ListenerSettings(name="inside", bootstrap_port=0, port_base=0),
        ListenerSettings(
            name="outside",
            advertised_host="localhost",
            bootstrap_port=0,
            port_base=0,
            tls=files(own),
        ),
    )

    async def main() -> None:
        async with rig(listeners=listeners) as gateway:
            broker = {"NodeId": 1, "Host": gateway.upstream.host, "Port": gateway.upstream.port}
            gateway.upstream.on_api(METADATA, answers({"Brokers": [broker]}))
            plain = await gateway.client()
            secure = await tls_client(gateway, authority.trusting(), listener="outside")
            for client, name in ((plain, "inside"), (secure, "outside")):
                frame = await client.ask(request(METADATA, 12))
                (shown,) = body_of(frame, METADATA, 12)["Brokers"]
                address = (shown["Host"], shown["Port"])
                assert address == gateway.server.listening.addresses(name)[1]
            assert gateway.server.listening.addresses("outside")[1].host == "localhost"

    run(main())


# ------------------------------------------------------------------------------------- server names


NAMES = ServerNames("kafka.example", "broker-{id}.kafka.example")


def test_one_port_and_a_name_for_each_broker(authority: Authority) -> None:
    own = authority.issue("named", alternatives="DNS:kafka.example,DNS:*.kafka.example")

    async def main() -> None:
        async with rig(tls=files(own), server_names=NAMES) as gateway:
            broker = {"NodeId": 1, "Host": gateway.upstream.host, "Port": gateway.upstream.port}
            gateway.upstream.on_api(METADATA, answers({"Brokers": [broker]}))
            assert gateway.server.bootstrap is not None
            port = gateway.server.bootstrap.port
            assert gateway.server.addresses == {1: ("broker-1.kafka.example", port)}
            for name, expected in (("kafka.example", None), ("BROKER-1.kafka.example", 1)):
                client = await tls_client(gateway, authority.trusting(), name=name)
                frame = await client.ask(request(METADATA, 12))
                (shown,) = body_of(frame, METADATA, 12)["Brokers"]
                assert (shown["Host"], shown["Port"]) == ("broker-1.kafka.example", port)
                last = max(gateway.server.connections)
                assert gateway.server.connections[last].broker_id == expected

    run(main())


@pytest.mark.parametrize(
    "name", ["broker-2.kafka.example", "broker-01.kafka.example", "other.example", None]
)
def test_a_name_that_nothing_is_behind(authority: Authority, own: Issued, name: str | None) -> None:
    async def main() -> None:
        async with rig(tls=files(own), server_names=NAMES) as gateway:
            assert gateway.server.bootstrap is not None
            context = authority.trusting()
            context.check_hostname = False
            with pytest.raises(ssl.SSLError, match="unrecognized name"):
                await asyncio.open_connection(
                    "127.0.0.1",
                    gateway.server.bootstrap.port,
                    ssl=context,
                    server_hostname=name or "",
                )
            assert not gateway.server.connections
            await until(lambda: not gateway.server.handshakes.open)

    with capture_logs() as logs:
        run(main())
    (line,) = [line for line in logs if line["event"] == "tls_handshake_failed"]
    assert line["reason"] == "unknown server name"
    assert (name or "no server name") in line["detail"]
    assert line["client"].startswith("127.0.0.1:")


# --------------------------------------------------------------------------------- clients' faults


def test_plain_bytes_on_a_tls_port(authority: Authority, own: Issued) -> None:
    """One line for all of them; a client with TLS is served meanwhile."""

    async def main() -> None:
        async with rig(tls=files(own)) as gateway:
            gateway.upstream.on_api(HEARTBEAT, answers({}))
            port = gateway.server.addresses[1].port
            for first in (request(ApiKey.API_VERSIONS, 3), b"GET / HTTP/1.1\r\n\r\n") * 10:
                reader, writer = await asyncio.open_connection("127.0.0.1", port)
                writer.write(first)
                async with asyncio.timeout(60):
                    while await reader.read(1_000):
                        pass
                writer.close()
            client = await tls_client(gateway, authority.trusting())
            assert await client.ask(request(HEARTBEAT)) == response(HEARTBEAT)
            assert gateway.server.handshakes.counts["clients"].failed == {HandshakeFault.PLAIN: 20}

    with capture_logs() as logs:
        run(main())
    assert failures(logs) == ["plain bytes on a TLS port"]


def test_tls_bytes_on_a_plain_port(authority: Authority) -> None:
    async def main() -> None:
        async with rig() as gateway:
            gateway.upstream.on_api(HEARTBEAT, answers({}))
            for _ in range(20):
                with pytest.raises((ssl.SSLError, OSError)):
                    await tls_client(gateway, authority.trusting())
            client = await gateway.client()
            assert await client.ask(request(HEARTBEAT)) == response(HEARTBEAT)

    with capture_logs() as logs:
        run(main())
    lines = [line["event"] for line in logs if line["log_level"] == "warning"]
    assert lines == ["TLS bytes on a plain port"]


def test_a_slow_handshake_is_given_up(
    authority: Authority, own: Issued, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(handshakes, "HANDSHAKE_S_MAX", 0.2)

    async def main() -> None:
        async with rig(tls=files(own)) as gateway:
            gateway.upstream.on_api(HEARTBEAT, answers({}))
            port = gateway.server.addresses[1].port
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(b"\x16\x03\x01\x02")  # the rest never comes
            async with asyncio.timeout(60):
                assert await reader.read() == b""
            writer.close()
            client = await tls_client(gateway, authority.trusting())
            assert await client.ask(request(HEARTBEAT)) == response(HEARTBEAT)

    with capture_logs() as logs:
        run(main())
    assert failures(logs) == ["not done in time"]


@pytest.fixture
def half_open() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


def test_a_herd_gets_in_whole(
    authority: Authority, own: Issued, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Many more clients than there are places, all at once, as after a restart of the node."""
    monkeypatch.setattr(handshakes, "HANDSHAKES_MAX", 4)
    monkeypatch.setattr(handshakes, "HANDSHAKE_LOOKS", 1_000)
    monkeypatch.setattr(handshakes, "HANDSHAKE_WAIT_LOOKS", 1_000)

    async def main() -> None:
        async with rig(tls=files(own)) as gateway:
            gateway.upstream.on_api(HEARTBEAT, answers({}))
            herd = await asyncio.gather(
                *(tls_client(gateway, authority.trusting()) for _ in range(60))
            )
            for client in herd:
                assert await client.ask(request(HEARTBEAT)) == response(HEARTBEAT)
            assert gateway.server.handshakes.counts["clients"].failed == {}
            assert gateway.server.handshakes.open == 0

    run(main())


def test_who_leaves_while_it_waits_makes_room(
    own: Issued, half_open: ExitStack, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(handshakes, "HANDSHAKES_MAX", 1)
    monkeypatch.setattr(handshakes, "HANDSHAKE_LOOKS", 1_000)

    async def main() -> None:
        loop = asyncio.get_running_loop()
        async with rig(tls=files(own)) as gateway:
            handshakes_ = gateway.server.handshakes
            sockets = [half_open.enter_context(socket.socket()) for _ in range(4)]
            for at, client in enumerate(sockets):
                client.setblocking(False)
                await loop.sock_connect(client, ("127.0.0.1", gateway.server.addresses[1].port))
                await until(lambda at=at: handshakes_.open == at + 1)  # type: ignore[misc]
            sockets[1].close()
            await until(lambda: handshakes_.open == 3)
            assert handshakes_.counts["clients"].failed == {HandshakeFault.CUT_OFF: 1}
            await loop.sock_sendall(sockets[2], b"\x16\x03\x01" + bytes(FIRST_WORDS_BYTES_MAX))
            await until(lambda: handshakes_.open == 2)  # what comes before a place would be kept
            sockets[0].close()
            sockets[3].close()
            await until(lambda: handshakes_.open == 0)

    run(main())


def test_in_a_flood_whoever_comes_begins_at_once(
    authority: Authority, own: Issued, half_open: ExitStack, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Half handshakes have all places, and more of them wait than may."""
    monkeypatch.setattr(handshakes, "HANDSHAKES_MAX", 4)
    monkeypatch.setattr(handshakes, "HANDSHAKES_WAITING_MAX", 4)
    monkeypatch.setattr(handshakes, "HANDSHAKE_LOOKS", 1_000)

    async def main() -> None:
        loop = asyncio.get_running_loop()
        async with rig(tls=files(own)) as gateway:
            gateway.upstream.on_api(HEARTBEAT, answers({}))
            for _ in range(8):
                client = half_open.enter_context(socket.socket())
                client.setblocking(False)
                await loop.sock_connect(client, ("127.0.0.1", gateway.server.addresses[1].port))
                await loop.sock_sendall(client, b"\x16\x03\x01\x02")
            await until(lambda: gateway.server.handshakes.open == 8)
            after = await tls_client(gateway, authority.trusting())
            assert await after.ask(request(HEARTBEAT)) == response(HEARTBEAT)
            failed = gateway.server.handshakes.counts["clients"].failed
            assert failed == {HandshakeFault.TOO_MANY: 1}

    run(main())


def test_a_thousand_half_handshakes(
    authority: Authority, own: Issued, half_open: ExitStack, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those that stand still go, as far as others wait; whoever comes gets in."""
    monkeypatch.setattr(handshakes, "HANDSHAKE_S_MAX", 3_600)

    async def main() -> None:
        loop = asyncio.get_running_loop()
        async with rig(tls=files(own)) as gateway:
            gateway.upstream.on_api(HEARTBEAT, answers({}))
            before = await tls_client(gateway, authority.trusting())
            for _ in range(1_000):
                client = half_open.enter_context(socket.socket())
                client.setblocking(False)
                await loop.sock_connect(client, ("127.0.0.1", gateway.server.addresses[1].port))
                await loop.sock_sendall(client, b"\x16\x03\x01\x02")
            await until(lambda: gateway.server.handshakes.open == HANDSHAKES_MAX)
            after = await tls_client(gateway, authority.trusting())
            for client_ in (before, after):
                assert await client_.ask(request(HEARTBEAT)) == response(HEARTBEAT)
            failed = gateway.server.handshakes.counts["clients"].failed
            assert failed == {HandshakeFault.TOO_MANY: 1_001 - HANDSHAKES_MAX}
        assert gateway.server.handshakes.open == 0

    with capture_logs() as logs:
        run(main())
    assert failures(logs) == [HandshakeFault.TOO_MANY.value, HandshakeFault.CUT_OFF.value]
