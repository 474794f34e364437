"""The operator's REST: groups and their windows, parked records, key filters, metrics, health; each
route behind the guard of access.py.

`/v1/groups/{group}` takes any name, slashes and newlines included, quoted (%XX); all else about a
group has a path of its own and the group as a parameter, so that no name can be mistaken for it.
The models of all rows are in rows.py, their description for other programs in docs/openapi.json.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field, replace

from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from gateway.admin import openapi
from gateway.admin.access import Access
from gateway.admin.administration import administration_routes
from gateway.admin.api import OPERATIONS
from gateway.admin.client_limits import limit_routes
from gateway.admin.cluster import about_all
from gateway.admin.configuration import Configuration
from gateway.admin.connections import connection_routes
from gateway.admin.dashboard.events import Viewers
from gateway.admin.dashboard.overview import Outcomes, Overviews
from gateway.admin.dashboard.overview_of_nodes import OverviewsOfNodes
from gateway.admin.dashboard.routes import dashboard_routes
from gateway.admin.dashboard.rows import TrafficRow
from gateway.admin.distribution import Distribution, distribution_routes
from gateway.admin.exposition import exposition
from gateway.admin.filters import filter_routes
from gateway.admin.groups import group_routes
from gateway.admin.health import Health, HealthCollector
from gateway.admin.history import history_routes
from gateway.admin.key_lookup import key_routes
from gateway.admin.listeners import listener_routes
from gateway.admin.login import login_routes
from gateway.admin.members import member_routes
from gateway.admin.nodes import node_routes
from gateway.admin.parked import parked_routes
from gateway.admin.peers import Peers
from gateway.admin.positions import position_routes
from gateway.admin.problems import (
    DESCRIPTION,
    CountedRefusals,
    LoopbackHosts,
    Refusals,
    TextTargets,
    answered,
    group_problem,
    http_problem,
)
from gateway.admin.repartitions import repartition_routes
from gateway.admin.rows import Alive
from gateway.admin.supervision import supervision_routes
from gateway.admin.tokens import Caller
from gateway.admin.topics import topic_routes
from gateway.admin.unreadable import unreadable_routes
from gateway.admin.value_decoder import ValueDecoder
from gateway.admin.windows import window_routes
from gateway.listen.server import Server
from gateway.members.groups import Groups
from gateway.members.key_filters import KeyFilters
from gateway.metric_rows import RowCollector
from gateway.operations.errors import OperationError
from gateway.operations.filter_effect import FilterEffects
from gateway.operations.group_administration import GroupAdministration
from gateway.operations.group_histories import GroupHistories
from gateway.operations.group_offsets import GroupOffsets
from gateway.operations.lag import Lags
from gateway.operations.parked_records import ParkedRecords
from gateway.operations.unreadable_records import UnreadableRecords
from gateway.repartition.repartitions import Repartitions
from gateway.routing.owners import SharedOwners
from gateway.upstream.build import Brokers
from gateway.windows.table import WindowTable

READY = "/health/ready"
METRICS = "/metrics"

_OPERATIONS = {(operation.method, operation.path): operation for operation in OPERATIONS}


@dataclass(frozen=True, slots=True)
class RestParts:
    server: Server
    upstream: Brokers
    offsets: GroupOffsets
    groups: Groups
    windows: WindowTable
    parked: ParkedRecords
    unreadable: UnreadableRecords
    administration: GroupAdministration
    filters: KeyFilters
    registry: CollectorRegistry
    lags: Lags
    histories: GroupHistories
    repartitions: Repartitions
    health: Callable[[], Awaitable[Health]]
    access: Access
    configuration: Configuration
    distribution: Distribution
    rows: Sequence[RowCollector] = ()  # metrics that are not in `registry`
    metrics_open: bool = False
    decoder: ValueDecoder = field(default_factory=ValueDecoder)
    refusals: Refusals = field(default_factory=Refusals)
    health_seen: HealthCollector = field(default_factory=HealthCollector)
    traffic: Callable[[], TrafficRow] = TrafficRow
    outcomes: Outcomes = lambda _: {}
    nodes: SharedOwners | None = None  # None: it stands alone
    peers: Peers | None = None  # as well
    viewers: Viewers = field(default_factory=Viewers)


def rest_app(parts: RestParts, *, loopback: bool) -> Starlette:
    """`loopback`: it is bound to loopback, so every Host must be there."""
    description = openapi.text()

    async def show_metrics(_: Request) -> Response:
        parts.health_seen.seen = await parts.health()
        text = [portion async for portion in exposition(parts.registry, parts.rows)]
        return Response(b"".join(text), media_type=CONTENT_TYPE_LATEST)

    async def show_health(request: Request) -> Response:
        health = await parts.health()
        fine = health.ready if request.url.path == READY else not health.reasons
        caller: Caller | None = request.state.caller
        every = caller is not None and caller.sees_all
        return JSONResponse(
            health.shown() if every else health.outlined(), status_code=200 if fine else 503
        )

    async def show_alive(_: Request) -> Response:
        return answered(Alive(status="alive"))

    async def show_openapi(_: Request) -> Response:
        return Response(description, media_type="application/json")

    return Starlette(
        routes=[
            _guarded(route, parts)
            for route in (
                *group_routes(parts.groups, parts.windows, parts.lags),
                *member_routes(parts.groups, parts.windows),
                *window_routes(parts.offsets, parts.lags),
                *key_routes(parts.offsets),
                *history_routes(parts.offsets, parts.histories),
                *position_routes(parts.offsets, parts.lags),
                *topic_routes(parts.offsets, parts.lags),
                *repartition_routes(parts.repartitions),
                *connection_routes(parts.server, parts.upstream, parts.groups),
                *limit_routes(parts.server, parts.groups),
                *listener_routes(parts.server),
                *node_routes(parts.nodes, parts.access.tokens),
                *parked_routes(parts.parked, parts.configuration, parts.decoder),
                *administration_routes(parts.administration),
                *unreadable_routes(parts.unreadable),
                *filter_routes(parts.filters, parts.groups, _effects(parts)),
                *dashboard_routes(OverviewsOfNodes(_overviews(parts), parts.peers), parts.viewers),
                Route(METRICS, show_metrics, methods=["GET"]),
                Route("/health", show_health, methods=["GET"]),
                Route(READY, show_health, methods=["GET"]),
                Route("/health/live", show_alive, methods=["GET"]),
                Route(DESCRIPTION, show_openapi, methods=["GET"]),
                *login_routes(parts.access),
                *distribution_routes(parts.distribution),
                *supervision_routes(
                    parts.configuration, parts.access.audit, parts.server.certificates
                ),
            )
        ],
        middleware=[
            Middleware(CountedRefusals, parts.refusals),
            *([Middleware(LoopbackHosts)] if loopback else []),
            Middleware(TextTargets),
        ],
        exception_handlers={HTTPException: http_problem, OperationError: group_problem},
    )


def _guarded(route: Route, parts: RestParts) -> Route:
    """The route behind the guard, as its one row in the table says. A route without a row is a page
    that has nothing of the node in it, and says so (`include_in_schema=False`).
    """
    if not route.include_in_schema:
        return route
    (method,) = (route.methods or set()) - {"HEAD"}
    operation = _OPERATIONS[method, route.path.replace(":name}", "}")]
    if operation.path == METRICS and parts.metrics_open:
        operation = replace(operation, role=None, whole=False)
    endpoint = about_all(operation, route.endpoint, parts.peers, parts.offsets)
    guarded = parts.access.guarded(operation, endpoint)
    return Route(route.path, guarded, methods=[method])


def _effects(parts: RestParts) -> FilterEffects:
    return FilterEffects(parts.groups, parts.windows, parts.filters)


def _overviews(parts: RestParts) -> Overviews:
    return Overviews(
        groups=parts.groups,
        windows=parts.windows,
        lags=parts.lags,
        histories=parts.histories,
        health=parts.health,
        traffic=parts.traffic,
        outcomes=parts.outcomes,
    )
