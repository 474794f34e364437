"""The clients' side as a part of the node: ports, connections, permissions."""

from __future__ import annotations

import asyncio
import resource
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from gateway.config.file import ConfigError
from gateway.core.client_limits.rules import Rule
from gateway.core.cluster.topology import Topology
from gateway.listen.admission import Admission, clients_max
from gateway.listen.authoriser import Authoriser
from gateway.listen.client_limits import ClientLimits
from gateway.listen.login_metrics import LoginCollector
from gateway.listen.metrics import LimitsCollector, ServerCollector, TopicTrafficCollector
from gateway.listen.server import TOO_MANY, Server, ServerSettings
from gateway.listen.tls_metrics import TlsCollector
from gateway.part import Part, Trouble
from gateway.upstream.build import UpstreamRoom
from keyway.tls.certificates import UnusableFiles


@dataclass(frozen=True, slots=True)
class ListenRoom:
    server: Server
    authoriser: Authoriser


def build(
    settings: ServerSettings,
    upstream: UpstreamRoom,
    tasks: asyncio.TaskGroup,
    now_ms: Callable[[], int],
    reload: asyncio.Event,
    rules: Sequence[Rule] = (),
) -> Part[ListenRoom]:
    """`rules`: limits of clients. The server forwards everything until `server.answer(handlers)`
    says otherwise. `reload`: when it is set, certificates are read again. Raises ConfigError for
    TLS files that cannot be used.
    """
    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    limits = ClientLimits.of(rules)
    try:
        server = Server(settings, Topology(), {}, Admission(clients_max(files)), now_ms, limits)
    except UnusableFiles as unusable:
        raise ConfigError(str(unusable)) from unusable
    authoriser = Authoriser(now_ms)
    upstream.cluster.on_topology(server.on_topology)
    server.topology_doubted = upstream.cluster.request_refresh
    server.on_disconnect(authoriser.connection_lost)

    def open_connections() -> int:
        return len(server.connections)

    def figures() -> dict[str, Any]:
        return {"connections": open_connections()}

    async def troubles() -> Sequence[Trouble]:
        refused = server.admission.refused
        found = [Trouble(f"{refused} clients refused: {TOO_MANY}")] if refused else []
        return [*found, *(Trouble(line) for line in server.certificates.troubles())]

    def warnings() -> list[str]:
        logins = [
            line
            for authentication in server.authentications.values()
            for line in authentication.warnings()
        ]
        return [*server.certificates.warnings(), *logins]

    async def start() -> None:
        server.start(tasks)

    return Part(
        name="listen",
        room=ListenRoom(server, authoriser),
        collectors=(
            ServerCollector(server.counters, open_connections),
            TopicTrafficCollector(server.counters.apis.topics),
            TlsCollector(server.certificates, server.handshakes),
            LimitsCollector(limits.accounts),
            LoginCollector(server.authentications),
        ),
        troubles=troubles,
        warnings=warnings,
        figures=figures,
        start=start,
        background=(
            server.bounds.look_forever,
            server.certificates.look_forever,
            server.look_for_revoked_forever,
            *(
                authentication.tokens.fetch_forever
                for authentication in server.authentications.values()
                if authentication.tokens is not None
            ),
            partial(server.certificates.reload_at, reload),
        ),
        drain=server.drain,
    )
