"""REST among strangers: connections that send nothing, half a request, or take no answer."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.routing import Route

from gateway.listen.listeners import listening_socket
from keyway.rest.connections import CallerSide, RestConnections
from tests.rig.certificates import Authority
from tests.rig.loopback import run, until
from tests.rig.patience import patient_s

AT_MOST = 8
WHOLE = b"GET /said HTTP/1.1\r\nHost: x\r\n\r\n"
LATE = WHOLE.replace(b"said", b"late")
HALVES = (
    b"",
    b"GET /said HTTP/1.1\r\nHost:",
    b"POST /read HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\nhalf",
    WHOLE,  # and nothing after its answer
    WHOLE + b"GET /said",
)
LONG = b"x" * 32 * 1024 * 1024


class Caller:
    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    async def answer(self) -> bytes:
        async with asyncio.timeout(patient_s(20)):
            return await self.reader.readuntil(b"said")

    async def ended(self) -> bytes:
        """What came before it was closed."""
        came = b""
        async with asyncio.timeout(patient_s(20)):
            with contextlib.suppress(ConnectionError):
                while data := await self.reader.read(65_536):
                    came += data
        return came


class Rest:
    def __init__(
        self, connections: RestConnections, port: int, slow: asyncio.Event, asked: asyncio.Event
    ) -> None:
        self.connections = connections
        self.port, self.slow, self.asked = port, slow, asked
        self.callers: list[Caller] = []

    async def caller(self, sent: bytes = b"", tls: ssl.SSLContext | None = None) -> Caller:
        name = None if tls is None else "localhost"
        caller = Caller(
            *await asyncio.open_connection("127.0.0.1", self.port, ssl=tls, server_hostname=name)
        )
        self.callers.append(caller)
        caller.writer.write(sent)
        return caller


@asynccontextmanager
async def rest(context: ssl.SSLContext | None = None) -> AsyncIterator[Rest]:
    slow, asked = asyncio.Event(), asyncio.Event()

    async def said(_request: Request) -> PlainTextResponse:
        return PlainTextResponse("said")

    async def read(request: Request) -> PlainTextResponse:
        return PlainTextResponse(await request.body())

    async def answer_late(_request: Request) -> PlainTextResponse:
        asked.set()
        await slow.wait()
        return PlainTextResponse("said")

    async def long(_request: Request) -> PlainTextResponse:
        return PlainTextResponse(LONG)

    app = Starlette(
        routes=[
            Route("/said", said),
            Route("/read", read, methods=["POST"]),
            Route("/late", answer_late),
            Route("/long", long),
        ]
    )
    config = uvicorn.Config(app, http=CallerSide, log_config=None, lifespan="off")
    config.load()
    server = uvicorn.Server(config)
    connections = RestConnections(
        AT_MOST, lambda: CallerSide(config, server.server_state, {}), context
    )
    listening = listening_socket("127.0.0.1", 0, "")
    it = Rest(connections, listening.getsockname()[1], slow, asked)
    async with asyncio.TaskGroup() as tasks:
        accepting = tasks.create_task(connections.accept_forever(listening))
        try:
            yield it
        finally:
            accepting.cancel()
            listening.close()
            for caller in it.callers:
                caller.writer.transport.abort()


def test_connections_that_only_wait_make_room() -> None:
    """A stranger with 238 of them took the last open file of the node."""

    async def main() -> None:
        async with rest() as it:
            late = await it.caller(LATE)
            await it.asked.wait()
            strangers = [await it.caller(HALVES[at % len(HALVES)]) for at in range(3 * AT_MOST)]
            assert b"200 OK" in await (await it.caller(WHOLE)).answer()
            for stranger in strangers[: -AT_MOST + 1]:
                await stranger.ended()
            it.slow.set()
            assert b"200 OK" in await late.answer(), "its request was under way"

    run(main())


def test_one_more_is_closed_while_all_are_being_answered() -> None:
    async def main() -> None:
        async with rest() as it:
            callers = []
            for _ in range(AT_MOST):
                it.asked.clear()
                callers.append(await it.caller(LATE))
                await it.asked.wait()
            assert await (await it.caller(WHOLE)).ended() == b""
            it.slow.set()
            for caller in callers:
                await caller.answer()
            assert b"200 OK" in await (await it.caller(WHOLE)).answer()

    run(main())


@pytest.mark.parametrize("sent", [*HALVES, b"GET /long HTTP/1.1\r\nHost: x\r\n\r\n"])
def test_a_connection_waits_for_its_client_for_a_while(
    monkeypatch: pytest.MonkeyPatch, sent: bytes
) -> None:
    """The answer to /long is more than a socket holds, and nobody takes it."""

    async def main() -> None:
        async with rest() as it:
            late = await it.caller(LATE)
            await it.asked.wait()
            monkeypatch.setattr("keyway.rest.connections.REST_WAIT_S_MAX", 0.2)
            await it.caller(sent)
            await until(lambda: it.connections.open == 2)
            await until(lambda: it.connections.open == 1)
            it.slow.set()
            assert b"200 OK" in await late.answer(), "an answer may take longer"

    run(main())


def test_an_answer_that_is_taken_slowly_comes_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("keyway.rest.connections.REST_WAIT_S_MAX", 0.8)

    async def main() -> None:
        async with rest() as it:
            slow = await it.caller(b"GET /long HTTP/1.1\r\nHost: x\r\n\r\n")
            await slow.reader.readuntil(b"\r\n\r\n")
            left = len(LONG)
            while left:
                left -= len(await slow.reader.readexactly(min(left, 2 * 1024 * 1024)))
                await asyncio.sleep(0.1)  # a slow network

    run(main())


@pytest.fixture(scope="module")
def tls(tmp_path_factory: pytest.TempPathFactory) -> tuple[ssl.SSLContext, ssl.SSLContext]:
    """The server's and the client's."""
    authority = Authority(tmp_path_factory.mktemp("certificates"))
    own = authority.issue("localhost")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(own.cert_file, own.key_file)
    return context, authority.trusting()


def test_handshakes_that_never_come_make_room(tls: tuple[ssl.SSLContext, ssl.SSLContext]) -> None:
    async def main() -> None:
        async with rest(tls[0]) as it:
            strangers = [await it.caller() for _ in range(2 * AT_MOST)]
            said = await it.caller(WHOLE, tls[1])
            assert b"200 OK" in await said.answer()
            for stranger in strangers[: -AT_MOST + 1]:
                await stranger.ended()

    run(main())


def test_a_handshake_has_its_time(
    monkeypatch: pytest.MonkeyPatch, tls: tuple[ssl.SSLContext, ssl.SSLContext]
) -> None:
    monkeypatch.setattr("keyway.rest.connections.REST_HANDSHAKE_S_MAX", 0.1)

    async def main() -> None:
        async with rest(tls[0]) as it:
            for sent in (b"", b"\x16\x03\x01", WHOLE):
                await (await it.caller(sent)).ended()
            await until(lambda: it.connections.open == 0)

    run(main())
