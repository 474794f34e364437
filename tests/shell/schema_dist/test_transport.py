"""Requests over real sockets to servers that answer wrongly, late or never."""

from __future__ import annotations

import asyncio
import socket

import pytest

from schema_dist import rest_client
from schema_dist.errors import AwayError
from schema_dist.rest_client import RestClient, http_client
from tests.rig.schema_registry.sockets import Serve, listening

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n[]"


def asked(serve: Serve, *paths: str) -> list[object]:
    """The JSON answers of a server to requests, one after the other."""

    async def run() -> list[object]:
        async with listening(serve) as url, http_client() as http:
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


def test_nobody_listens() -> None:
    async def run() -> None:
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))  # bound, and not listening
            async with http_client() as http:
                await RestClient(f"http://127.0.0.1:{taken.getsockname()[1]}", http).ask("GET", "/")

    with pytest.raises(AwayError, match="registry http://127"):
        asyncio.run(run())


def test_an_answer_that_never_comes(monkeypatch: pytest.MonkeyPatch) -> None:
    limits = {"timeout": {"connect": 5.0, "read": 0.05, "write": 5.0, "pool": None}}
    monkeypatch.setattr(rest_client, "_TIMEOUT", limits)

    async def serve(reader: asyncio.StreamReader, _writer: asyncio.StreamWriter) -> None:
        await reader.read()

    with pytest.raises(AwayError, match="GET /subjects: no answer in time"):
        asked(serve, "/subjects")


def test_an_answer_in_drops_has_an_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each drop comes in time; the answer does not."""
    monkeypatch.setattr(rest_client, "WHOLE_ANSWER_S_MAX", 0.1)

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n")
        while True:
            writer.write(b" ")
            await writer.drain()
            await asyncio.sleep(0.01)

    with pytest.raises(AwayError, match="GET /subjects: no answer in time"):
        asked(serve, "/subjects")
