"""A broker on loopback that answers as a script says: for what no real broker does on demand."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from gateway.core.wire.apis import APIS, ApiKey
from gateway.core.wire.codec import decode_request, encode_response
from gateway.core.wire.frames import RequestHeader, parse_request_header, response_frame
from gateway.core.wire.schema import Message

Versions = dict[int, tuple[int, int]]


@dataclass
class FakeBroker:
    """`answer` gets each request but ApiVersions and writes what it likes; it runs in request
    order.
    """

    answer: Callable[[FakeBroker, RequestHeader, Message, asyncio.StreamWriter], Awaitable[None]]
    versions: Versions
    knows_api_versions: int = 3  # the highest; asked for more it says so in v0
    port: int = 0
    connections: int = 0
    seen: list[tuple[int, int]] = field(default_factory=list)  # API key, version

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        try:
            while True:
                size = int.from_bytes(await reader.readexactly(4), "big")
                frame = await reader.readexactly(size)
                header = parse_request_header(frame)
                self.seen.append((header.api_key, header.api_version))
                if header.api_key == ApiKey.API_VERSIONS:
                    self._api_versions(header, writer)
                    continue
                body = decode_request(header.api_key, header.api_version, frame, header.body_at)
                await self.answer(self, header, body, writer)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    def _api_versions(self, header: RequestHeader, writer: asyncio.StreamWriter) -> None:
        known = header.api_version <= self.knows_api_versions
        version = header.api_version if known else 0
        body = {
            "ErrorCode": 0 if known else 35,
            "ApiKeys": [
                {"ApiKey": key, "MinVersion": low, "MaxVersion": high}
                for key, (low, high) in self.versions.items()
            ],
        }
        encoded = encode_response(ApiKey.API_VERSIONS, version, body)
        writer.write(response_frame(ApiKey.API_VERSIONS, version, header.correlation_id, encoded))

    def reply(self, header: RequestHeader, body: Message, writer: asyncio.StreamWriter) -> None:
        encoded = encode_response(header.api_key, header.api_version, body)
        writer.write(
            response_frame(header.api_key, header.api_version, header.correlation_id, encoded)
        )

    def metadata(self) -> Message:
        """This broker is the whole cluster."""
        broker = {"NodeId": 1, "Host": "127.0.0.1", "Port": self.port}
        return {"Brokers": [broker], "ClusterId": "fake", "ControllerId": 1}


def all_versions() -> Versions:
    return {key: (api.min_version, api.max_version) for key, api in APIS.items()}


@asynccontextmanager
async def listening(broker: FakeBroker) -> AsyncIterator[FakeBroker]:
    server = await asyncio.start_server(broker.serve, "127.0.0.1", broker.port)
    broker.port = server.sockets[0].getsockname()[1]
    async with server:
        yield broker
