"""REST of the listeners: `GET /v1/listeners`. Nothing of it is a secret: no user, no identity."""

from __future__ import annotations

from collections import Counter

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from gateway.admin.listener_rows import ListenerList, ListenerRow, LoginRow
from gateway.admin.problems import answered
from gateway.listen.authentication import Authentication
from gateway.listen.server import Server
from gateway.listen.settings import ListenerSettings

BY_GATEWAY, BY_UPSTREAM = "gateway", "upstream"
CERTIFICATE = "CERTIFICATE"


def listener_routes(server: Server) -> list[Route]:
    async def list_listeners(_: Request) -> Response:
        connections = Counter(client.listener for client in server.connections.values())
        rows = [
            _row(server, settings, connections[settings.name])
            for settings in server.settings.listeners
        ]
        return answered(ListenerList(listeners=rows))

    return [Route("/v1/listeners", list_listeners, methods=["GET"])]


def _row(server: Server, settings: ListenerSettings, connections: int) -> ListenerRow:
    name = settings.name
    open_ = server.listening.all.get(name)
    first = None if open_ is None else open_.bootstrap
    certificates = next((port for port in server.certificates.ports if port.port == name), None)
    shakes = server.handshakes.counts.get(name)
    own = server.authentications.get(name)
    problems = [] if own is None else list(own.warnings())
    if certificates is not None and certificates.problem is not None:
        problems.append(certificates.problem)
    return ListenerRow(
        listener=name,
        bootstrap=None if first is None else f"{first.host}:{first.port}",
        connections=connections,
        tls=settings.tls is not None,
        expires_ms=None
        if certificates is None
        else min(file.expires_s for file in certificates.expiring) * 1000,
        handshakes=0 if shakes is None else shakes.done,
        handshakes_failed=0 if shakes is None else sum(shakes.failed.values()),
        authenticated_by=BY_UPSTREAM if own is None else BY_GATEWAY,
        mechanisms=[] if own is None else _mechanisms(own),
        logins=[] if own is None else _logins(own),
        sessions_ended={}
        if own is None
        else {why.value: count for why, count in own.ended.items() if count},
        problems=problems,
    )


def _mechanisms(own: Authentication) -> list[str]:
    return list(own.settings.mechanisms) or [CERTIFICATE]


def _logins(own: Authentication) -> list[LoginRow]:
    return [
        LoginRow(mechanism=mechanism, outcome=outcome, count=count)
        for (mechanism, outcome), count in sorted(own.logins.items())
    ]
