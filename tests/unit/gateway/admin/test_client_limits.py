"""Limits of clients over REST: what each account has used, and which of them are at a limit."""

from __future__ import annotations

import time

import httpx

from gateway.config.admin import Role
from gateway.core.client_limits.account import Account
from gateway.core.client_limits.rules import Per, Rule, Who
from gateway.listen.server import Server, ServerSettings
from tests.rig.admin_parts import Admin
from tests.rig.rest_client import pages, rows, story
from tests.rig.rest_parts import access, token

PRODUCE = 0
RULES = (
    Rule(name="tenants", principal="t-*", per=Per.PRINCIPAL, bytes_in_per_s=1_000, connections=2),
    Rule(name="sessions", principal="s", share_sessions=0, requests_per_s=5),
    Rule(name="others", connections=3),
)


def limited() -> Server:
    """t-1 owes a minute, t-2 has two connections, s may have no share session; one other client."""
    server = Server(ServerSettings(()), Admin().node.topology, {})
    server.limit(RULES)
    accounts = {name: account(server, name) for name in ("t-1", "t-2", "t-3", "s", "else")}
    accounts["t-1"].asked(PRODUCE, 61_000, time.monotonic_ns())
    accounts["t-2"].connections.update((7, 8))
    accounts["else"].connections.add(9)
    return server


def account(server: Server, principal: str) -> Account:
    found = server.limits.account(0, Who(address="10.0.0.1", client_id="c", principal=principal))
    assert found is not None
    return found


def test_accounts_in_the_order_of_their_rules() -> None:
    async def tell(client: httpx.AsyncClient, _: Admin) -> None:
        found = await rows(client, "/v1/limits", "limits")
        assert [(row["rule"], row["who"]) for row in found] == [
            ("tenants", "t-1"),
            ("tenants", "t-2"),
            ("tenants", "t-3"),
            ("sessions", None),
            ("others", None),
        ]
        first = found[0]
        assert 50_000 < first.pop("wait_ms") <= 60_000, "a second's worth was free"
        assert first == {
            "rule": "tenants",
            "per": "principal",
            "who": "t-1",
            "connections": 0,
            "connections_max": 2,
            "requests": 1,
            "requests_per_s": None,
            "bytes_in": 61_000,
            "bytes_in_per_s": 1_000,
            "bytes_out": 0,
            "bytes_out_per_s": None,
            "share_sessions": 0,
            "share_sessions_max": None,
            "throttled_ms": 0,
            "muted": 0,
            "refused": 0,
            "reached": ["bytes_in_per_s"],
        }
        assert [row["reached"] for row in found[1:]] == [
            ["connections"],
            [],
            ["share_sessions"],
            [],
        ]
        singly = await pages(client, "/v1/limits", "limits")
        assert [(row["rule"], row["who"]) for row in singly] == [
            (row["rule"], row["who"]) for row in found
        ]

    story(tell, server=limited())


def test_only_accounts_at_a_limit() -> None:
    async def tell(client: httpx.AsyncClient, _: Admin) -> None:
        for found in (
            await rows(client, "/v1/limits?reached=true", "limits"),
            await pages(client, "/v1/limits?reached=true", "limits"),
        ):
            assert [row["who"] for row in found] == ["t-1", "t-2", None]
        shown = (await client.get("/v1/limits?reached=true&limit=2")).json()
        assert (shown["total"], shown["next"]) == (5, "2")
        assert (await client.get("/v1/limits?reached=yes")).status_code == 400
        assert (await client.get("/v1/limits?after=99")).json()["limits"] == []

    story(tell, server=limited())


def test_a_token_for_some_groups_does_not_see_whom_others_limit() -> None:
    async def tell(client: httpx.AsyncClient, _: Admin) -> None:
        for who, status in (("some", 403), ("all", 200)):
            client.headers["authorization"] = f"Bearer {who}"
            assert (await client.get("/v1/limits")).status_code == status

    guard = access(token("some", Role.VIEWER, ["orders-*"]), token("all", Role.VIEWER))
    story(tell, server=limited(), access=guard)
