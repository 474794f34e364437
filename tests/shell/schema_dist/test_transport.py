"""Requests over real sockets to servers that answer wrongly, late or never."""

from __future__ import annotations

import asyncio
import socket
from pathlib import Path

import aiohttp
import pytest

from keyway.clusters.config import ConfigError
from schema_dist import transport
from schema_dist.errors import AwayError
from schema_dist.rest_client import RestClient
from schema_dist.transport import Connections
from tests.rig.schema_registry.sockets import Serve, listening

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n[]"


def asked(serve: Serve, *paths: str) -> list[object]:
    """The JSON answers of a server to requests, one after the other."""

    async def run() -> list[object]:
        async with listening(serve) as url, Connections() as http:
            client = RestClient(url, http)
            return [await client.ask("GET", path) for path in paths]

    return asyncio.run(run())


def test_a_connection_is_used_again_and_paths_arrive_as_they_are_sent() -> None:
    heads: list[list[bytes]] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        heads.append([])
        while True:
            heads[-1].append((await reader.readuntil(b"\r\n\r\n")).split(b"\r\n")[0])
            writer.write(OK)

    assert asked(serve, "/subjects/:.eu:a%2Fb%3Ac%20d", "/subjects") == [[], []]
    assert heads == [
        [b"GET /subjects/:.eu:a%2Fb%3Ac%20d HTTP/1.1", b"GET /subjects HTTP/1.1"],
    ]


def test_user_and_password_go_with_every_request() -> None:
    heads: list[bytes] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        heads.append(await reader.readuntil(b"\r\n\r\n"))
        writer.write(OK)

    async def run() -> None:
        async with listening(serve) as url, Connections(user=("Ann", "a:ü")) as http:
            await RestClient(url, http).ask("GET", "/")

    asyncio.run(run())
    (head,) = heads
    assert b"\r\nAuthorization: Basic QW5uOmE6w7w=\r\n" in head


@pytest.mark.parametrize(
    "answer",
    [
        b"",
        b"SSH-2.0-OpenSSH_9.2\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n[]",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n[]",
        b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 2\r\n\r\n[]",
        b"HTTP/1.1 200 OK\r\n" + b"X: " + b"y" * 100_000 + b"\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 999999999999\r\n\r\n[",
        b"\x15\x03\x01\x00\x02\x02\x28",
    ],
)
def test_an_answer_that_is_no_http_is_a_registry_that_is_away(answer: bytes) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(answer)

    with pytest.raises(AwayError, match=r"registry http://127\.0\.0\.1:\d+: "):
        asked(serve, "/subjects")


def test_trust_that_cannot_be_read_is_a_fault_of_the_configuration(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"ca_file .*none\.pem: No such file"):
        Connections(ca_file=str(tmp_path / "none.pem"))
    (tmp_path / "empty.pem").write_text("no certificate")
    with pytest.raises(ConfigError, match=r"ca_file .*empty\.pem"):
        Connections(ca_file=str(tmp_path / "empty.pem"))


def test_nobody_listens() -> None:
    async def run() -> None:
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))  # bound, and not listening
            async with Connections() as http:
                await RestClient(f"http://127.0.0.1:{taken.getsockname()[1]}", http).ask("GET", "/")

    with pytest.raises(AwayError, match="registry http://127"):
        asyncio.run(run())


def test_an_answer_that_never_comes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transport, "TIMEOUT", aiohttp.ClientTimeout(sock_read=0.05))

    async def serve(reader: asyncio.StreamReader, _writer: asyncio.StreamWriter) -> None:
        await reader.read()

    with pytest.raises(AwayError, match="GET /subjects: no answer in time"):
        asked(serve, "/subjects")


def test_an_answer_in_drops_has_an_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each drop comes in time; the answer does not."""
    monkeypatch.setattr(transport, "TIMEOUT", aiohttp.ClientTimeout(total=0.1))

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n")
        while True:
            writer.write(b" ")
            await writer.drain()
            await asyncio.sleep(0.01)

    with pytest.raises(AwayError, match="GET /subjects: no answer in time"):
        asked(serve, "/subjects")
