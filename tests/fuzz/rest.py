"""Mutated requests to REST: paths, queries, bodies. Each gets a status below 500, or 503 for a part
that is away, and a refusal is a problem that names its cause.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from random import Random
from typing import Any
from urllib.parse import unquote

from starlette.types import ASGIApp

from gateway.admin.rest import rest_app
from tests.fuzz.mutate import chunks, mutated
from tests.rig.admin_parts import Admin
from tests.rig.node_parts import GROUP, TOPIC
from tests.rig.rest_parts import rest_parts

JSON_TYPE = b"application/json"

# As keyway's own commands and docs/ send them.
REQUESTS: tuple[tuple[str, str, object], ...] = (
    ("GET", "/v1/groups", None),
    ("GET", f"/v1/groups?after={GROUP}&limit=10", None),
    ("GET", f"/v1/groups/{GROUP}", None),
    ("GET", "/v1/groups/a%2Fb%0A", None),
    ("GET", f"/v1/parked?group={GROUP}&topic={TOPIC}", None),
    ("GET", f"/v1/parked?group={GROUP}&headers=true", None),
    (
        "POST",
        "/v1/parked/release",
        {"group": GROUP, "topic": TOPIC, "partition": 0, "offsets": "all", "action": "retry"},
    ),
    (
        "POST",
        "/v1/parked/release",
        {"group": GROUP, "topic": TOPIC, "partition": 0, "offsets": [0, 1], "action": "skip"},
    ),
    ("GET", f"/v1/parked?group={GROUP}&partition=0&limit=2&after={TOPIC}-0-1", None),
    ("GET", f"/v1/members?group={GROUP}&client_id=c&limit=5", None),
    ("GET", f"/v1/windows?group={GROUP}&topic={TOPIC}&state=up&runs=3&after={TOPIC}-0", None),
    ("GET", f"/v1/keys?group={GROUP}&key=a&after={TOPIC}-0-1", None),
    ("GET", f"/v1/keys?group={GROUP}&key_base64=YQ%3D%3D&topic={TOPIC}", None),
    ("GET", f"/v1/keys?group={GROUP}&key_hash=0123abcd", None),
    ("GET", f"/v1/keys?group={GROUP}&limit=3", None),
    ("GET", f"/v1/positions?group={GROUP}&after={TOPIC}-0", None),
    ("POST", f"/v1/positions/seek?group={GROUP}", {"to": "shift", "shift": -1, "topic": TOPIC}),
    (
        "POST",
        f"/v1/positions/seek?group={GROUP}",
        {"to": "offset", "offset": 1, "topic": TOPIC, "partitions": [0, 1], "execute": True},
    ),
    ("GET", f"/v1/topics?name={TOPIC}&limit=1", None),
    ("GET", "/v1/nodes", None),
    ("GET", "/v1/brokers?state=up&after=1&limit=1", None),
    ("GET", "/v1/connections?broker=bootstrap&after=1&host=h", None),
    ("GET", "/v1/config", None),
    ("POST", "/v1/config/reload", None),
    ("POST", "/v1/tls/reload", None),
    ("GET", "/v1/audit?who=a&limit=3&after=7", None),
    ("GET", "/v1/login", None),
    ("POST", "/v1/login", {"token": "t"}),
    ("POST", "/v1/logout", None),
    ("GET", f"/v1/filters?group={GROUP}", None),
    (
        "PUT",
        f"/v1/filters?group={GROUP}",
        {"rules": [{"client_id": "eu-*", "keys": ["eu-*", "gr\u00fcn?"]}]},
    ),
    ("DELETE", f"/v1/filters?group={GROUP}", None),
    ("GET", "/metrics", None),
    ("GET", "/health", None),
    ("GET", "/health/ready", None),
    ("GET", "/health/live", None),
)


@contextmanager
def application(admin: Admin) -> Iterator[ASGIApp]:
    yield rest_app(rest_parts(admin), loopback=True)


async def ask(app: ASGIApp, random: Random) -> None:
    """One input. Raises AssertionError, and whatever the application raises."""
    method, target, body = random.choice(REQUESTS)
    other = random.choice(REQUESTS)
    data = b"" if body is None else json.dumps(body, ensure_ascii=random.random() < 0.5).encode()
    path = target.encode()
    if random.random() < 0.6 and data:
        data = mutated(data, json.dumps(other[2]).encode(), random)
    if random.random() < 0.6:
        path = b"/" + mutated(path[1:], other[1].encode(), random)
    if random.random() < 0.1:
        method = random.choice(("GET", "PUT", "POST", "DELETE", "PATCH", "HEAD", "OPTIONS"))
    status, kind, answer = await asked(app, method, path, data, random)
    assert status < 500 or status == 503, (status, method, path, data)
    if status >= 400 and method != "HEAD":
        assert kind == "application/problem+json", (status, kind, method, path)
        assert json.loads(answer)["title"], answer


async def asked(
    app: ASGIApp, method: str, target: bytes, data: bytes, random: Random
) -> tuple[int, str, bytes]:
    """As uvicorn hands a request over: the path unquoted, with replacements, and as it came."""
    raw, _, query = target.partition(b"?")
    raw = bytes(byte if 0x20 < byte < 0x7F else 0x5F for byte in raw)  # a server takes no others
    scope: dict[str, Any] = {
        "type": "http",
        "http_version": "1.1",
        "method": method,
        "scheme": "http",
        "path": unquote(raw.decode("ascii")),
        "raw_path": raw,
        "query_string": query,
        "headers": [(b"host", b"localhost"), (b"content-type", JSON_TYPE)],
        "server": ("127.0.0.1", 9180),
        "client": ("127.0.0.1", 1),
    }
    pieces = chunks(data, random) or [b""]
    sent: list[dict[str, Any]] = []

    async def receive() -> dict[str, Any]:
        piece = pieces.pop(0) if pieces else b""
        return {"type": "http.request", "body": piece, "more_body": bool(pieces)}

    async def send(message: Any) -> None:
        sent.append(dict(message))

    await app(scope, receive, send)
    headers = {name.decode(): value.decode() for name, value in sent[0]["headers"]}
    body = b"".join(message.get("body", b"") for message in sent[1:])
    return sent[0]["status"], headers.get("content-type", ""), body
