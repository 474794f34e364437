"""A Kafka broker on loopback that obeys the test: `on_api(key, answer)`.

It cuts frames as a broker does, works on one request of a connection at a time, and keeps the
requests it got. An `answer` returns the bytes that go back, or takes the connection into its own
hands. It stands in for the brokers that no test can have on demand: old, slow, silent, broken.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field

from gateway.core.wire.apis import APIS, ApiKey
from gateway.core.wire.codec import decode_request, encode_response
from gateway.core.wire.errors import ErrorCode
from gateway.core.wire.frames import RequestHeader, parse_request_header, response_frame
from gateway.core.wire.schema import Message

Versions = dict[int, tuple[int, int]]  # API key -> lowest and highest version


@dataclass(slots=True)
class ReceivedRequest:
    """One request as it came in."""

    header: RequestHeader
    frame: bytes  # without the size prefix
    connection: Connection

    @property
    def body(self) -> Message:
        header = self.header
        return decode_request(header.api_key, header.api_version, self.frame, header.body_at)

    def response(self, message: Message, *, version: int | None = None) -> bytes:
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


# The bytes that go back: whole frames or any others; None = nothing (acks=0).
Answer = Callable[[ReceivedRequest], Awaitable[bytes | None]]


@dataclass(slots=True)
class FakeBroker:
    """`requests` in the order of arrival; `connections` also those that are closed."""

    host: str = "127.0.0.1"
    port: int = 0
    requests: list[ReceivedRequest] = field(default_factory=list)
    connections: list[Connection] = field(default_factory=list)
    answers: dict[int, Answer] = field(default_factory=dict)

    def on_api(self, key: int, answer: Answer) -> None:
        self.answers[key] = answer

    def versions_asked(self, key: int) -> list[int]:
        """The version of each request of this API, in the order of arrival."""
        headers = [request.header for request in self.requests]
        return [header.api_version for header in headers if header.api_key == key]

    def metadata(self) -> Message:
        """This broker is the whole cluster."""
        broker = {"NodeId": 1, "Host": self.host, "Port": self.port}
        return {"Brokers": [broker], "ClusterId": "fake", "ControllerId": 1}

    @asynccontextmanager
    async def running(self) -> AsyncIterator[FakeBroker]:
        server = await asyncio.start_server(self._serve, self.host, self.port)
        self.port = server.sockets[0].getsockname()[1]
        try:
            yield self
        finally:
            await stop_accepting(server)
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
                request = ReceivedRequest(parse_request_header(frame), frame, connection)
                self.requests.append(request)
                answer = await self.answers[request.header.api_key](request)
                if answer is not None:
                    writer.write(answer)
                    await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            connection.ended_by_peer = True
        finally:
            writer.close()


async def stop_accepting(server: asyncio.Server) -> None:
    """What was accepted just now has become a connection then: asyncio makes a task for it, its
    transport, its protocol and the task that serves it, in a turn each.
    """
    server.close()
    for _ in range(10):
        await asyncio.sleep(0)


def all_versions() -> Versions:
    """Every API in every version that the gateway knows."""
    return {key: (api.min_version, api.max_version) for key, api in APIS.items()}


def speaking(
    answers: Mapping[int, Answer],
    versions: Versions | None = None,
    *,
    api_versions_max: int = 3,
    port: int = 0,
) -> FakeBroker:
    """A broker for clients that begin with ApiVersions: it has these versions, or all."""
    spoken = all_versions() if versions is None else versions
    first = {int(ApiKey.API_VERSIONS): _versions(spoken, api_versions_max)}
    return FakeBroker(port=port, answers=first | dict(answers))


def _versions(versions: Versions, api_versions_max: int) -> Answer:
    """Answers ApiVersions; above `api_versions_max` with an error in version 0, as Kafka does."""
    keys = [
        {"ApiKey": key, "MinVersion": low, "MaxVersion": high}
        for key, (low, high) in versions.items()
    ]

    async def answer(request: ReceivedRequest) -> bytes:
        if request.header.api_version <= api_versions_max:
            return request.response({"ErrorCode": 0, "ApiKeys": keys})
        refused = {"ErrorCode": ErrorCode.UNSUPPORTED_VERSION, "ApiKeys": keys}
        return request.response(refused, version=0)

    return answer
