"""REST of the clients' side: `GET /v1/connections`, `GET /v1/brokers`."""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import get_args

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from gateway.admin.access import caller_of
from gateway.admin.limits import CONNECTION_APIS_SHOWN, CONNECTION_MEMBERS_SHOWN, ID_MAX
from gateway.admin.node_rows import (
    BrokerList,
    BrokerRow,
    BrokerState,
    ConnectionList,
    ConnectionRow,
)
from gateway.admin.pages import limit_of, number, one_of, page_of
from gateway.admin.problems import answered
from gateway.admin.tokens import Caller
from gateway.core.cluster.topology import Broker, Topology
from gateway.core.wire.apis import ApiKey
from gateway.listen.answering import ConnectionId
from gateway.listen.connection import ClientConnection
from gateway.listen.server import Server
from gateway.members.groups import Groups
from gateway.upstream.build import Brokers

ANY = -1  # no broker has this id
BOOTSTRAP = "bootstrap"


def connection_routes(server: Server, upstream: Brokers, groups: Groups) -> list[Route]:
    async def list_connections(request: Request) -> Response:
        limit = limit_of(request)
        after = number(request, "after", 0, ID_MAX, default=0)
        client = request.query_params.get("client_id", "")
        host = request.query_params.get("host")
        bootstrap = request.query_params.get("broker") == BOOTSTRAP
        broker = ANY if bootstrap else number(request, "broker", 0, 2**31 - 1, default=ANY)
        caller = caller_of(request)

        def kept(connection_id: ConnectionId) -> bool:
            found = server.connections.get(connection_id)
            return (
                found is not None
                and client in (found.facts.client_id or "")
                and host in (None, found.facts.host)
                and (found.broker_id is None if bootstrap else broker in (ANY, found.broker_id))
                and _carries_seen(caller, groups, connection_id)
            )

        known = sorted(server.connections)
        page, more = await page_of(known, bisect_right(known, after), limit, kept)
        rows = [
            _row(found, _members(caller, groups, found.id))
            for connection_id in page
            if (found := server.connections.get(connection_id)) is not None
        ]
        following = str(page[-1]) if more else None
        seen = [each for each in known if _carries_seen(caller, groups, each)]
        return answered(ConnectionList(connections=rows, total=len(seen), next=following))

    async def list_brokers(request: Request) -> Response:
        limit = limit_of(request)
        after = number(request, "after", 0, 2**31 - 1, default=ANY)
        state = one_of(request, "state", get_args(BrokerState))
        topology, silent = upstream.topology, upstream.silent_brokers()
        known = sorted(topology.brokers)

        def kept(broker_id: int) -> bool:
            return state in (None, _state(broker_id, silent))

        page, more = await page_of(known, bisect_right(known, after), limit, kept)
        brokers = [topology.brokers[broker_id] for broker_id in page]
        following = str(page[-1]) if more else None
        return answered(_brokers(server, topology, silent, brokers, following))

    return [
        Route("/v1/connections", list_connections, methods=["GET"]),
        Route("/v1/brokers", list_brokers, methods=["GET"]),
    ]


def _carries_seen(caller: Caller, groups: Groups, connection: ConnectionId) -> bool:
    """A token for some groups sees the connections that carry members of those."""
    return caller.sees_all or any(caller.sees(group) for group, _ in groups.carried.of(connection))


def _members(caller: Caller, groups: Groups, connection: ConnectionId) -> list[str]:
    carried = sorted(
        membership for membership in groups.carried.of(connection) if caller.sees(membership[0])
    )
    return [f"{group}/{member}" for group, member in carried[:CONNECTION_MEMBERS_SHOWN]]


def _row(connection: ClientConnection, members: list[str]) -> ConnectionRow:
    facts, open_apis = connection.facts, connection.open_apis
    return ConnectionRow(
        id=connection.id,
        client_id=facts.client_id,
        principal=facts.principal,
        host=facts.host,
        port=facts.port,
        broker=connection.broker_id,
        since_ms=facts.since_ms,
        in_flight=[ApiKey(key).name for key in open_apis[:CONNECTION_APIS_SHOWN]],
        in_flight_requests=len(open_apis),
        bytes_in=facts.bytes_in,
        bytes_out=facts.bytes_out,
        members=members,
    )


def _brokers(
    server: Server,
    topology: Topology,
    silent: Mapping[int, str],
    page: Sequence[Broker],
    following: str | None,
) -> BrokerList:
    upstream_id = server.settings.slots.upstream
    clients = Counter(
        None if client.broker_id is None else upstream_id(client.broker_id)
        for client in server.connections.values()
    )
    leads = Counter(
        info.leader for topic in topology.topics.values() for info in topic.partitions.values()
    )

    def row(broker: Broker) -> BrokerRow:
        address = server.addresses.get(broker.id)
        return BrokerRow(
            broker=broker.id,
            address=None if address is None else f"{address.host}:{address.port}",
            upstream=f"{broker.host}:{broker.port}",
            state=_state(broker.id, silent),
            reason=silent.get(broker.id),
            connections=clients[broker.id],
            partitions=leads[broker.id],
        )

    first = server.bootstrap
    return BrokerList(
        bootstrap=None if first is None else f"{first.host}:{first.port}",
        bootstrap_connections=clients[None],
        brokers=[row(broker) for broker in page],
        next=following,
    )


def _state(broker_id: int, silent: Mapping[int, str]) -> BrokerState:
    return "silent" if broker_id in silent else "up"
