"""An upstream broker on loopback that does what a test tells it: `on_api(key, answer)`.

It cuts frames as a broker does, works on one request of a connection at a time, and keeps what it
got. An `answer` returns response bodies, or takes the connection into its own hands. Every
surprise a real broker held for us becomes a line here.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field

from gateway.core.wire.codec import encode_response
from gateway.core.wire.frames import RequestHeader, parse_request_header, response_frame


@dataclass(slots=True)
class Asked:
    """One request as it came in."""

    header: RequestHeader
    frame: bytes  # without the size prefix
    connection: Connection

    def response(self, message: dict[str, object], *, version: int | None = None) -> bytes:
        """The frame that answers it."""
        header = self.header
        version = header.api_version if version is None else version
        body = encode_response(header.api_key, version, message)
        return response_frame(header.api_key, version, header.correlation_id, body)


@dataclass(slots=True)
class Connection:
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    bytes_in: int = 0
    ended_by_peer: bool = False


# What goes back: whole frames or any bytes; None = nothing (acks=0).
Answer = Callable[[Asked], Awaitable[bytes | None]]


@dataclass(slots=True)
class FakeKafka:
    """`requests` in the order of arrival; `connections` also those that are closed."""

    host: str = "127.0.0.1"
    port: int = 0
    requests: list[Asked] = field(default_factory=list)
    connections: list[Connection] = field(default_factory=list)
    answers: dict[int, Answer] = field(default_factory=dict)

    def on_api(self, key: int, answer: Answer) -> None:
        self.answers[key] = answer

    @asynccontextmanager
    async def running(self) -> AsyncIterator[FakeKafka]:
        server = await asyncio.start_server(self._serve, self.host, self.port)
        self.port = server.sockets[0].getsockname()[1]
        try:
            yield self
        finally:
            server.close()
            for connection in self.connections:
                connection.writer.close()
                with suppress(ConnectionError):
                    await connection.writer.wait_closed()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connection = Connection(reader, writer)
        self.connections.append(connection)
        try:
            while True:
                size = int.from_bytes(await reader.readexactly(4), "big")
                frame = await reader.readexactly(size)
                connection.bytes_in += 4 + size
                asked = Asked(parse_request_header(frame), frame, connection)
                self.requests.append(asked)
                answer = await self.answers[asked.header.api_key](asked)
                if answer is not None:
                    writer.write(answer)
                    await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            connection.ended_by_peer = True
        finally:
            writer.close()
