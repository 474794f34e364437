"""The end of a client's connection, on real sockets."""

from __future__ import annotations

import asyncio

from gateway.core.wire.apis import ApiKey
from gateway.listen.server import Request
from tests.rig.loopback import rig, run, slow_client, until
from tests.rig.wire_frames import request

HEARTBEAT = int(ApiKey.HEARTBEAT)
SHARE_FETCH = int(ApiKey.SHARE_FETCH)
LARGE = 8 * 1024 * 1024


def test_an_answer_that_is_under_way_arrives_though_more_requests_came() -> None:
    """Closed with requests that nobody had read, the socket dropped the rest of the answer."""

    async def answer_large(_: Request) -> bytes:
        return bytes(LARGE)

    async def main() -> None:
        async with rig({SHARE_FETCH: answer_large}) as gateway:
            loop = asyncio.get_running_loop()
            client = await slow_client(gateway.server.addresses[1])
            await loop.sock_sendall(client, request(SHARE_FETCH))
            await until(lambda: gateway.server.bounds.answers.total > 0)
            await loop.sock_sendall(client, request(HEARTBEAT) * 500)
            (connection,) = gateway.server.connections.values()
            connection.drain()
            got = bytearray()
            while data := await loop.sock_recv(client, 1_000_000):
                got += data
            assert len(got) == 4 + int.from_bytes(got[:4], "big") > LARGE
            client.close()
            await until(lambda: not gateway.server.connections)

    run(main())
