"""Listeners over REST: TLS, who authenticates, logins; and no secret of any of them."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import httpx

from gateway.config.admin import Role
from gateway.core.identity.exchange import Denial
from gateway.listen.answering import ConnectionId
from gateway.listen.authentication import SessionEnd
from gateway.listen.connection import ClientConnection
from gateway.listen.handshakes import HandshakeCounts, HandshakeFault
from gateway.listen.server import Server, ServerSettings
from gateway.listen.settings import AuthenticationSettings, ListenerSettings
from keyway.tls.certificates import Certificates, Expiring
from tests.rig.admin_parts import Admin
from tests.rig.rest_client import rows, story
from tests.rig.rest_parts import access, token

USERS = "key: 0123456789abcdef-secret-key\nusers: {orders: {password: pizza-4-all}}\n"
IDENTITIES = """
rules: [{principal: orders, identity: shop}]
identities: {shop: {password: shop-at-kafka}}
"""


def secured(folder: Path) -> Server:
    """The listeners `clients`, plain, and `partners`, where the node authenticates."""
    users, identities = folder / "users.yaml", folder / "identities.yaml"
    users.write_text(USERS)
    identities.write_text(IDENTITIES)
    own = AuthenticationSettings(
        mechanisms=("PLAIN",), identities_file=identities, users_file=users, plain_passwords=True
    )
    partners = ListenerSettings(name="partners", authentication=own)
    settings = ServerSettings((), listeners=(ListenerSettings(), partners))
    return Server(settings, Admin().node.topology, {})


def test_who_authenticates_and_what_became_of_logins(tmp_path: Path) -> None:
    server = secured(tmp_path)
    logins = server.authentications["partners"].logins
    logins["PLAIN", "accepted"] += 2
    logins["PLAIN", Denial.CREDENTIALS.value] += 3
    logins["other", Denial.MECHANISM.value] += 1
    server.authentications["partners"].ended[SessionEnd.REVOKED] += 1

    async def tell(client: httpx.AsyncClient, _: Admin) -> None:
        server.opened(ClientConnection(ConnectionId(1), None, server, listener="clients"))
        answer = await client.get("/v1/listeners")
        clients, partners = answer.json()["listeners"]
        assert (clients["authenticated_by"], clients["connections"]) == ("upstream", 1)
        assert (clients["mechanisms"], clients["logins"]) == ([], [])
        assert partners == {
            "listener": "partners",
            "bootstrap": None,
            "connections": 0,
            "tls": False,
            "expires_ms": None,
            "handshakes": 0,
            "handshakes_failed": 0,
            "authenticated_by": "gateway",
            "mechanisms": ["PLAIN"],
            "logins": [
                {"mechanism": "PLAIN", "outcome": "accepted", "count": 2},
                {"mechanism": "PLAIN", "outcome": "wrong_credentials", "count": 3},
                {"mechanism": "other", "outcome": "mechanism", "count": 1},
            ],
            "sessions_ended": {"revoked": 1},
            "problems": [],
        }
        for secret in ("pizza-4-all", "shop-at-kafka", "shop", "orders", "0123456789abcdef"):
            assert secret not in answer.text

    story(tell, server=server)


def test_tls_and_files_that_cannot_be_used(tmp_path: Path) -> None:
    server = secured(tmp_path)
    expiring = (Expiring("cert_file", 0, 2_000), Expiring("client_ca_file", 0, 1_000))
    damaged = SimpleNamespace(port="partners", expiring=expiring, problem="cert_file: no PEM")
    server.certificates.add(cast(Certificates[Any], damaged))
    failed = {HandshakeFault.PLAIN: 2, HandshakeFault.OTHER: 1}
    server.handshakes.counts["partners"] = HandshakeCounts(done=5, failed=failed)

    async def tell(client: httpx.AsyncClient, _: Admin) -> None:
        partners = (await rows(client, "/v1/listeners", "listeners"))[1]
        assert partners["expires_ms"] == 1_000_000
        assert (partners["handshakes"], partners["handshakes_failed"]) == (5, 3)
        assert partners["problems"] == ["cert_file: no PEM"]

    story(tell, server=server)


def test_a_token_for_some_groups_does_not_see_them(tmp_path: Path) -> None:
    async def tell(client: httpx.AsyncClient, _: Admin) -> None:
        for who, status in (("some", 403), ("all", 200)):
            client.headers["authorization"] = f"Bearer {who}"
            assert (await client.get("/v1/listeners")).status_code == status

    guard = access(token("some", Role.VIEWER, ["orders-*"]), token("all", Role.VIEWER))
    story(tell, server=secured(tmp_path), access=guard)
