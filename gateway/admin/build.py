"""REST, health and metrics of all parts, as an ASGI application for the node to serve."""

from __future__ import annotations

import ssl
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from prometheus_client import CollectorRegistry
from starlette.applications import Starlette

from gateway.admin.access import Access
from gateway.admin.audit import Audit
from gateway.admin.configuration import Configuration
from gateway.admin.dashboard.rows import TrafficRow
from gateway.admin.distribution import Distribution
from gateway.admin.failed_logins import FailedLogins
from gateway.admin.health import look
from gateway.admin.peers import Peers
from gateway.admin.rest import RestParts, rest_app
from gateway.admin.tokens import LoginSessions, Tokens
from gateway.admin.value_decoder import ValueDecoder
from gateway.config.admin import AdminSection, is_loopback
from gateway.config.file import Config, ConfigError, ConfigSource
from gateway.core.forwarding.api_counts import BOUNDS_MS
from gateway.core.wire.apis import ApiKey
from gateway.listen.build import ListenRoom
from gateway.members.build import MembersRoom
from gateway.metric_rows import RowCollector
from gateway.operations.build import OperationsRoom
from gateway.part import Part
from gateway.repartition.repartitions import Repartitions
from gateway.routing.build import RoutingRoom
from gateway.upstream.build import UpstreamRoom
from gateway.windows.build import WindowsRoom


def build(
    config: Config,
    source: ConfigSource,
    upstream: UpstreamRoom,
    listen: ListenRoom,
    routing: RoutingRoom,
    members: MembersRoom,
    windows: WindowsRoom,
    operations: OperationsRoom,
    repartitions: Repartitions,
    parts: Sequence[Part[Any]],
    now_ms: Callable[[], int],
) -> Part[Starlette]:
    """`source`: of `config`; `parts`: those whose health and metrics are shown. Raises
    ConfigError.
    """
    section = config.admin
    access = _access(section, now_ms)
    registry = CollectorRegistry()
    rows: list[RowCollector] = []
    for part in parts:
        for collector in part.collectors:
            if isinstance(collector, RowCollector):
                rows.append(collector)
            else:
                registry.register(collector)
    peers = None if routing.shared is None else Peers(routing.shared, _trust(section))
    rest = RestParts(
        server=listen.server,
        upstream=upstream.cluster,
        offsets=operations.offsets,
        groups=members.groups,
        windows=windows.windows.table,
        parked=operations.parked,
        unreadable=operations.unreadable,
        administration=operations.administration,
        filters=members.key_filters,
        registry=registry,
        rows=rows,
        lags=operations.lags,
        histories=operations.histories,
        repartitions=repartitions,
        health=partial(look, parts),
        access=access,
        configuration=Configuration(
            config,
            source,
            access.tokens,
            members.settings,
            members.key_filters,
            members.groups,
            listen.server.limit,
        ),
        distribution=Distribution(section.clusters_file, now_ms),
        metrics_open=section.metrics_open,
        decoder=ValueDecoder.of(config.registry_view),
        traffic=partial(traffic, listen),
        outcomes=windows.outcomes.of,
        nodes=routing.shared,
        peers=peers,
    )
    registry.register(rest.refusals)
    registry.register(rest.health_seen)
    return Part(
        name="admin",
        room=rest_app(rest, loopback=is_loopback(section.host)),
        background=(rest.access.audit.write_due_forever, rest.distribution.run),
        drain=rest.viewers.end,
        stop=rest.access.audit.write_rest,
    )


def _trust(section: AdminSection) -> Callable[[], ssl.SSLContext]:
    """The TLS context that judges the certificates of other nodes. Raises ConfigError for a file
    that cannot be used.
    """
    if section.nodes_ca_file is None:
        return ssl.create_default_context
    try:
        known = ssl.create_default_context(cafile=str(section.nodes_ca_file))
    except (OSError, ssl.SSLError) as error:
        reason = error.strerror or "no PEM certificates"
        raise ConfigError(f"admin.nodes_ca_file: {section.nodes_ca_file}: {reason}") from error
    return lambda: known


def traffic(listen: ListenRoom) -> TrafficRow:
    counters = listen.server.counters
    apis = counters.apis
    return TrafficRow(
        connections=len(listen.server.connections),
        connections_opened=counters.connections_opened,
        connections_failed=counters.connections_failed,
        refused=sum(counters.refused.values()),
        bytes_from_clients=counters.bytes_from_clients,
        bytes_to_clients=counters.bytes_to_clients,
        requests={ApiKey(key).name.lower(): count for key, count in apis.requests.items()},
        answered={
            ApiKey(key).name.lower(): list(histogram.buckets)
            for key, histogram in apis.times.items()
        },
        waited={
            ApiKey(key).name.lower(): list(histogram.buckets)
            for key, histogram in apis.waits.items()
        },
        bounds_ms=list(BOUNDS_MS),
        throttled_ms=sum(apis.throttled_ms.values()),
    )


def _access(section: AdminSection, now_ms: Callable[[], int]) -> Access:
    tokens = Tokens(section.tokens)
    return Access(
        tokens,
        LoginSessions(tokens, now_ms),
        FailedLogins(now_ms),
        Audit(now_ms),
        cookie=f"keyway_{section.port}",
    )
