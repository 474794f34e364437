"""The bounds of a connection hold under TLS, too, and nothing is lost at them."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from gateway.core.wire.apis import ApiKey
from gateway.listen.limits import HELD_BYTES_MAX
from keyway.tls.certificates import TlsFiles
from tests.rig.certificates import Authority
from tests.rig.fake_broker import ReceivedRequest
from tests.rig.loopback import Rig, answers, rig, run, until
from tests.rig.wire_frames import request, response

FETCH = int(ApiKey.FETCH)
HEARTBEAT = int(ApiKey.HEARTBEAT)
PRODUCE = int(ApiKey.PRODUCE)
BYTES = bytes(range(256)) * 40_000  # 10 MB


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("tls"))


@pytest.fixture(scope="module")
def files(authority: Authority) -> TlsFiles:
    own = authority.issue("gateway")
    return TlsFiles(cert_file=own.cert_file, key_file=own.key_file)


async def connected(
    gateway: Rig, authority: Authority
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """A client that reads no further than it is asked to."""
    port = gateway.server.addresses[1].port
    return await asyncio.open_connection(
        "127.0.0.1", port, ssl=authority.trusting(), server_hostname="localhost", limit=1_024
    )


def only(gateway: Rig) -> Any:
    (connection,) = gateway.server.connections.values()
    return connection


def test_a_slow_reader_holds_little_and_loses_nothing(
    authority: Authority, files: TlsFiles
) -> None:
    """Upstream offers 40 MB, the client reads none of it at first."""
    sent = response(FETCH, message={"Responses": [{"Partitions": [{"Records": BYTES}]}]})

    async def main() -> None:
        async with rig(tls=files) as gateway:

            async def fetch(asked: ReceivedRequest) -> bytes:
                return sent[:4] + asked.header.correlation_id.to_bytes(4, "big") + sent[8:]

            gateway.upstream.on_api(FETCH, fetch)
            reader, writer = await connected(gateway, authority)
            writer.write(b"".join(request(FETCH, correlation_id=n) for n in range(4)))
            await until(
                lambda: bool(gateway.server.connections) and not only(gateway).sockets.client_takes
            )
            connection, most = only(gateway), 0
            for _ in range(2_000):
                await asyncio.sleep(0)
                most = max(most, connection.sockets.client.get_write_buffer_size())
                if not connection.sockets.client_takes:
                    assert not connection.sockets.upstream.is_reading()
            assert 0 < most <= HELD_BYTES_MAX
            assert connection._state.held_bytes == 0
            for n in range(4):
                frame = await reader.readexactly(len(sent))
                assert frame == sent[:4] + n.to_bytes(4, "big") + sent[8:]
            writer.close()

    run(main())


def test_a_slow_broker_holds_little_and_loses_nothing(
    authority: Authority, files: TlsFiles
) -> None:
    """The client offers 40 MB, the broker takes none of it at first."""
    topics = [{"TopicId": b"t" * 16, "PartitionData": [{"Index": 0, "Records": BYTES}]}]
    sent = request(PRODUCE, message={"Acks": -1, "TopicData": topics})

    async def main() -> None:
        go_on = asyncio.Event()
        async with rig(tls=files) as gateway:

            async def wait(asked: ReceivedRequest) -> bytes:
                await go_on.wait()
                return asked.response({})

            gateway.upstream.on_api(HEARTBEAT, wait)
            gateway.upstream.on_api(PRODUCE, answers({}))
            reader, writer = await connected(gateway, authority)
            writer.write(request(HEARTBEAT) + sent * 4)
            await until(
                lambda: (
                    bool(gateway.server.connections)
                    and only(gateway).sockets.upstream is not None
                    and not only(gateway).sockets.client_read
                )
            )
            connection, most = only(gateway), 0
            upstream = connection.sockets.upstream
            for _ in range(2_000):
                await asyncio.sleep(0)
                most = max(most, upstream.get_write_buffer_size())
            assert 0 < most <= HELD_BYTES_MAX
            assert not connection.sockets.client.is_reading()
            go_on.set()
            for expected in (response(HEARTBEAT), *[response(PRODUCE)] * 4):
                assert await reader.readexactly(len(expected)) == expected
            writer.close()

    run(main())


@pytest.mark.parametrize("full", [False, True])
@pytest.mark.parametrize("size", [16_000, 100_000])
@pytest.mark.parametrize("waits", [False, True])
def test_the_last_bytes_of_a_client_that_leaves_reach_upstream(
    authority: Authority, files: TlsFiles, size: int, *, full: bool, waits: bool
) -> None:
    """Requests without an answer (acks=0), and goodbye in the same breath. `full`: the node has
    read as much as it may, and reads in small pieces. `waits`: for the node's end of the handshake.
    """
    topics = [{"TopicId": b"t" * 16, "PartitionData": [{"Index": 0, "Records": BYTES[:size]}]}]
    sent = request(PRODUCE, message={"Acks": 0, "TopicData": topics})

    async def main() -> None:
        async with rig(tls=files) as gateway:
            came = 0

            async def take(_: ReceivedRequest) -> bytes:
                nonlocal came
                came += 1
                return b""

            gateway.upstream.on_api(PRODUCE, take)
            if full:
                gateway.server.bounds.unsent.bytes_max = -1
                gateway.server.bounds.unsent.add(0)
            count = 20 if size == 100_000 else 1
            _, writer = await connected(gateway, authority)
            if waits:
                await until(lambda: len(gateway.server.connections) == 1)
            writer.write(sent * count)
            writer.close()
            await until(lambda: came == count)

    run(main())
