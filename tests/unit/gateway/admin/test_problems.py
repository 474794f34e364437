"""Refusals of the REST: hosts other than loopback, malformed bodies."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.types import Message

from gateway.admin.limits import ADMIN_BODY_BYTES_MAX
from gateway.admin.problems import json_body, names_loopback
from gateway.config.admin import is_loopback


@pytest.mark.parametrize(
    ("hosts", "good"),
    [
        (["127.0.0.1:9180"], True),
        (["127.0.0.1"], True),
        (["127.9.9.9:1"], True),
        (["localhost:9180"], True),
        (["LOCALHOST"], True),
        (["[::1]:9180"], True),
        (["::1"], False),  # not a Host header's form of it
        (["evil.example:9180"], False),
        (["localhost.evil.example"], False),
        (["127.0.0.1.evil.example"], False),
        (["user@127.0.0.1"], True),
        (["127.0.0.1@evil.example"], False),
        (["192.168.1.1:9180"], False),
        (["[::1"], False),
        ([""], False),
        ([], False),
        (["127.0.0.1", "evil.example"], False),
    ],
)
def test_hosts(hosts: list[str], good: bool) -> None:
    assert names_loopback(hosts) is good


def test_where_it_is_bound() -> None:
    assert is_loopback("127.0.0.1")
    assert is_loopback("::1")
    assert is_loopback("localhost")
    assert not is_loopback("0.0.0.0")
    assert not is_loopback("::")
    assert not is_loopback("gateway.example")


def body_of(*chunks: bytes, content_type: str | None = "application/json") -> dict[str, Any]:
    """json_body of a request with these chunks, for the fields a and b."""
    headers = [] if content_type is None else [(b"content-type", content_type.encode())]
    messages: list[Message] = [
        {"type": "http.request", "body": chunk, "more_body": at < len(chunks) - 1}
        for at, chunk in enumerate(chunks)
    ]

    async def receive() -> Message:
        return messages.pop(0)

    request = Request({"type": "http", "method": "POST", "headers": headers}, receive)
    return asyncio.run(json_body(request, {"a", "b"}))


def test_a_body_in_pieces() -> None:
    assert body_of(b'{"a": 1,', b'"b": [2]}') == {"a": 1, "b": [2]}
    assert body_of(b'{"a":1,"b":2}', content_type="application/json; charset=utf-8") == {
        "a": 1,
        "b": 2,
    }


@pytest.mark.parametrize(
    ("body", "content_type", "status"),
    [
        (b'{"a": 1, "b": 2}', None, 415),
        (b'{"a": 1, "b": 2}', "text/plain", 415),
        (b"", "application/json", 400),
        (b"{", "application/json", 400),
        (b"\xff", "application/json", 400),
        (b'{"a": "\\ud800", "b": 2}', "application/json", 400),
        (b'{"a": 1, "b": [{"\\udfff": 0}]}', "application/json", 400),
        (b"[1, 2]", "application/json", 400),
        (b'{"a": 1}', "application/json", 400),
        (b'{"a": 1, "b": 2, "c": 3}', "application/json", 400),
        (b"[" * 200_000, "application/json", 400),
        (b" " * (ADMIN_BODY_BYTES_MAX + 1), "application/json", 413),
    ],
)
def test_bodies_that_are_refused(body: bytes, content_type: str | None, status: int) -> None:
    with pytest.raises(HTTPException) as refused:
        body_of(body, content_type=content_type)
    assert refused.value.status_code == status
