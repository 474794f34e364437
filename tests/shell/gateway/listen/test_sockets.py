"""What the system keeps for a client's connection to upstream, on real sockets."""

from __future__ import annotations

import asyncio
import os
import socket

import pytest

from gateway.core.wire.apis import ApiKey
from gateway.listen.sockets import bound_receiving
from tests.rig.loopback import answers, rig, run
from tests.rig.wire_frames import request, response

HEARTBEAT = int(ApiKey.HEARTBEAT)


def receive_buffer(transport: asyncio.BaseTransport) -> int:
    taken = transport.get_extra_info("socket")
    with socket.socket(fileno=os.dup(taken.fileno())) as same:
        return same.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF)


@pytest.mark.parametrize("bytes_max", [0, 40_000])
def test_the_system_keeps_a_bounded_part_of_a_broker_s_answers(bytes_max: int) -> None:
    async def main() -> None:
        with socket.socket() as fresh:
            own = fresh.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF)
        async with rig(upstream_receive_bytes=bytes_max) as gateway:
            gateway.upstream.on_api(HEARTBEAT, answers({}))
            client = await gateway.client()
            assert await client.ask(request(HEARTBEAT)) == response(HEARTBEAT)
            (connection,) = gateway.server.connections.values()
            upstream = connection.sockets.upstream
            assert upstream is not None
            kept = receive_buffer(upstream)
            assert kept == 2 * bytes_max if bytes_max else kept >= own

    run(main())


def test_a_connection_that_has_just_ended_is_left_alone() -> None:
    async def main() -> None:
        async with rig() as gateway:
            transport, _ = await asyncio.get_running_loop().create_connection(
                asyncio.Protocol, gateway.upstream.host, gateway.upstream.port
            )
            transport.abort()
            await asyncio.sleep(0)
            bound_receiving(transport, 40_000)

    run(main())
