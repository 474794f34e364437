"""A Server between a scripted upstream and bare client sockets, all in one event loop."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field, fields, replace
from typing import Any

import uvloop

from gateway.core.cluster.topology import Broker, Topology
from gateway.core.forwarding.rewrite import Address
from gateway.core.wire.codec import decode_response
from gateway.core.wire.frames import parse_response_header
from gateway.listen.server import ConnectionId, Handler, Server, ServerSettings
from gateway.listen.settings import ListenerSettings
from tests.rig.fake_broker import Answer, FakeBroker, ReceivedRequest
from tests.rig.patience import patient_s

WITHIN_S = 30.0


def run(main: Coroutine[Any, Any, None]) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(patient_s(3 * WITHIN_S)):
            await main

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(bounded())


async def until(met: Callable[[], bool], *, within_s: float = WITHIN_S) -> None:
    """Polls; raises TimeoutError."""
    async with asyncio.timeout(patient_s(within_s)):
        while not met():  # noqa: ASYNC110  the condition has no event
            await asyncio.sleep(0.002)


def answers(message: Mapping[str, Any]) -> Answer:
    async def answer(asked: ReceivedRequest) -> bytes:
        return asked.response(dict(message))

    return answer


@dataclass(slots=True)
class Rig:
    upstream: FakeBroker
    server: Server
    gone: list[ConnectionId] = field(default_factory=list)
    clients: list[Client] = field(default_factory=list)

    async def client(self, broker_id: int | None = 1) -> Client:
        address = self.server.bootstrap if broker_id is None else self.server.addresses[broker_id]
        assert address is not None
        client = Client(*await asyncio.open_connection(*address))
        self.clients.append(client)
        return client

    async def close(self) -> None:
        for client in self.clients:
            client.writer.close()
            with suppress(OSError):  # of TLS, too: the alert that a test has seen
                await client.writer.wait_closed()


@dataclass(slots=True)
class Client:
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    async def ask(self, data: bytes) -> bytes:
        """The next response frame, with its size prefix."""
        self.writer.write(data)
        return await self.frame()

    async def frame(self) -> bytes:
        async with asyncio.timeout(patient_s(WITHIN_S)):
            size = await self.reader.readexactly(4)
            return size + await self.reader.readexactly(int.from_bytes(size, "big"))

    async def ended(self) -> bytes:
        """The bytes that still came before the end."""
        async with asyncio.timeout(patient_s(WITHIN_S)):
            return await self.reader.read()


ANY_PORTS = ListenerSettings(bootstrap_port=0, port_base=0)
_OF_LISTENER = {setting.name for setting in fields(ListenerSettings)}


@asynccontextmanager
async def rig(handlers: Mapping[int, Handler] | None = None, **settings: Any) -> AsyncIterator[Rig]:
    """One upstream broker, number 1. `settings`: of the server, or of its one listener."""
    listener = {name: settings.pop(name) for name in _OF_LISTENER & settings.keys()}
    async with FakeBroker().running() as upstream:
        gone: list[ConnectionId] = []
        broker = Broker(1, upstream.host, upstream.port)
        address = Address(upstream.host, upstream.port)
        server = Server(
            ServerSettings(
                **{
                    "bootstrap_servers": (address,),
                    "listeners": (replace(ANY_PORTS, **listener),),
                    "drain_s": 1.0,
                    **settings,
                }
            ),
            Topology(brokers={1: broker}),
            handlers or {},
        )
        server.on_disconnect(gone.append)
        opened = Rig(upstream, server, gone)
        try:
            async with server.running():
                yield opened
        finally:
            await opened.close()


def body_of(frame: bytes, key: int, version: int) -> dict[str, Any]:
    header = parse_response_header(key, version, frame[4:])
    return decode_response(key, version, frame[4:], header.body_at)


def warnings(logs: list[Any]) -> list[str]:
    """The events of warnings and errors among captured log lines."""
    return [line["event"] for line in logs if line["log_level"] in ("warning", "error")]


async def slow_client(address: tuple[str, int]) -> socket.socket:
    """A socket with a small window that is read by hand only."""
    client = socket.socket()
    client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 32_768)
    client.setblocking(False)
    await asyncio.get_running_loop().sock_connect(client, address)
    return client


async def read_exactly(client: socket.socket, count: int) -> bytes:
    got = bytearray()
    while len(got) < count:
        data = await asyncio.get_running_loop().sock_recv(client, 1_000_000)
        assert data, "the connection ended early"
        got += data
    return bytes(got)
