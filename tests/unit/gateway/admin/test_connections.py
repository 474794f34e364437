"""Connections and virtual brokers over REST."""

from __future__ import annotations

import httpx

from gateway.config.admin import Role
from gateway.core.wire.apis import ApiKey
from gateway.core.wire.frames import request_frame
from gateway.listen.answering import ConnectionId
from gateway.listen.connection import ClientConnection
from gateway.listen.server import Server, ServerSettings
from tests.rig.admin_parts import Admin
from tests.rig.node_parts import GROUP
from tests.rig.rest_client import pages, rows, story
from tests.rig.rest_parts import access, token
from tests.rig.virtual_time import now_ms


def connected(server: Server, number: int, broker: int | None) -> ClientConnection:
    """A connection that has asked for ApiVersions, as `client-NUMBER`, and has no answer yet."""
    connection = ClientConnection(ConnectionId(number), broker, server, listener="clients")
    connection.facts.host, connection.facts.port = f"10.0.0.{number}", 1_000 + number
    server.opened(connection)
    connection.facts.received(request_frame(ApiKey.API_VERSIONS, 0, 1, f"client-{number}", b""))
    return connection


def test_connections() -> None:
    server = Server(ServerSettings(()), Admin().node.topology, {}, now_ms=now_ms)

    async def tell(client: httpx.AsyncClient, _: Admin) -> None:
        connections = [connected(server, at, None if at == 3 else 1) for at in range(1, 5)]
        connections[1].facts.answering = ApiKey.SHARE_FETCH
        found = await pages(client, "/v1/connections", "connections")
        assert [row["id"] for row in found] == [1, 2, 3, 4]
        size = len(request_frame(ApiKey.API_VERSIONS, 0, 1, "client-1", b""))
        assert found[0] == {
            "id": 1,
            "client_id": "client-1",
            "host": "10.0.0.1",
            "port": 1_001,
            "broker": 1,
            "since_ms": found[0]["since_ms"],
            "in_flight": [],
            "in_flight_requests": 0,
            "bytes_in": size,
            "bytes_out": 0,
            "members": [f"{GROUP}/m1"],
            "principal": None,
        }
        assert (found[1]["in_flight"], found[1]["in_flight_requests"]) == (["SHARE_FETCH"], 1)
        assert found[2]["broker"] is None
        for wanted, ids in (
            ("client_id=nt-4", [4]),
            ("host=10.0.0.2", [2]),
            ("broker=bootstrap", [3]),
            ("broker=1", [1, 2, 4]),
        ):
            shown = await rows(client, f"/v1/connections?{wanted}", "connections")
            assert [row["id"] for row in shown] == ids
        assert (await client.get("/v1/connections?broker=x")).status_code == 400

    story(tell, server=server)


def test_connections_that_carry_members_of_other_groups_are_not_shown() -> None:
    server = Server(ServerSettings(()), Admin().node.topology, {}, now_ms=now_ms)

    async def tell(client: httpx.AsyncClient, _: Admin) -> None:
        for at in (1, 2):
            connected(server, at, 1)
        for who, ids in (("orders", [1]), ("payments", []), ("all", [1, 2])):
            client.headers["authorization"] = f"Bearer {who}"
            shown = await rows(client, "/v1/connections", "connections")
            assert [row["id"] for row in shown] == ids
            assert (await client.get("/v1/connections")).json()["total"] == len(ids)

    globs = {"orders": ["orders-*"], "payments": ["payments"], "all": ["*"]}
    guard = access(*(token(name, Role.VIEWER, glob) for name, glob in globs.items()))
    story(tell, server=server, access=guard)


def test_virtual_brokers() -> None:
    async def tell(client: httpx.AsyncClient, admin: Admin) -> None:
        answer = (await client.get("/v1/brokers")).json()
        brokers = admin.node.topology.brokers
        assert [row["broker"] for row in answer["brokers"]] == sorted(brokers)
        assert {row["state"] for row in answer["brokers"]} == {"up"}
        assert sum(row["partitions"] for row in answer["brokers"]) == 2
        first = answer["brokers"][0]
        assert first["upstream"] == f"{brokers[1].host}:{brokers[1].port}"
        admin.view.silent.add(1)
        answer = (await client.get("/v1/brokers")).json()
        assert (answer["brokers"][0]["state"], answer["brokers"][0]["reason"]) == ("silent", "away")
        assert await pages(client, "/v1/brokers", "brokers") == answer["brokers"]
        for state, ids in (("silent", [1]), ("up", sorted(brokers)[1:])):
            shown = await pages(client, f"/v1/brokers?state={state}", "brokers")
            assert [row["broker"] for row in shown] == ids
        last = (await client.get("/v1/brokers?after=2147483647")).json()
        assert last == {**answer, "brokers": []}
        for wrong in ("state=away", "after=x", "after=2147483648", "limit=0"):
            assert (await client.get(f"/v1/brokers?{wrong}")).status_code == 400, wrong

    story(tell)
