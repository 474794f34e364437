"""The operator's REST: groups and their windows, parked records, key filters, metrics, health.

`/v1/groups/{group}` takes any name, slashes and newlines included, quoted (%XX); all else about a
group has a path of its own and the group as a parameter, so that no name can be mistaken for it.
The models of all rows are in rows.py, their description for other programs in docs/openapi.json.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from gateway.admin.filters import filter_routes
from gateway.admin.groups import group_routes
from gateway.admin.health import Health, HealthCollector
from gateway.admin.parked import parked_routes
from gateway.admin.problems import (
    CountedRefusals,
    LoopbackHosts,
    Refusals,
    TextTargets,
    answered,
    group_problem,
    http_problem,
)
from gateway.admin.rows import Alive
from gateway.admin.unreadable import unreadable_routes
from gateway.members.groups import Groups
from gateway.members.key_filters import KeyFilters
from gateway.operations.errors import OperationError
from gateway.operations.lag import Lags
from gateway.operations.parked_records import ParkedRecords
from gateway.operations.unreadable_records import UnreadableRecords
from gateway.windows.windows import Windows

READY = "/health/ready"


@dataclass(frozen=True, slots=True)
class RestParts:
    groups: Groups
    windows: Windows
    parked: ParkedRecords
    unreadable: UnreadableRecords
    filters: KeyFilters
    registry: CollectorRegistry
    lags: Lags
    health: Callable[[], Awaitable[Health]]
    refusals: Refusals = field(default_factory=Refusals)
    health_seen: HealthCollector = field(default_factory=HealthCollector)


def rest_app(parts: RestParts, *, loopback: bool) -> Starlette:
    """`loopback`: it is bound to loopback, so every Host must be there."""

    async def show_metrics(_: Request) -> Response:
        parts.health_seen.seen = await parts.health()
        return Response(generate_latest(parts.registry), media_type=CONTENT_TYPE_LATEST)

    async def show_health(request: Request) -> Response:
        health = await parts.health()
        fine = health.ready if request.url.path == READY else not health.reasons
        return JSONResponse(health.shown(), status_code=200 if fine else 503)

    async def show_alive(_: Request) -> Response:
        return answered(Alive(status="alive"))

    return Starlette(
        routes=[
            *group_routes(parts.groups, parts.windows, parts.lags),
            *parked_routes(parts.parked),
            *unreadable_routes(parts.unreadable),
            *filter_routes(parts.filters, parts.groups),
            Route("/metrics", show_metrics, methods=["GET"]),
            Route("/health", show_health, methods=["GET"]),
            Route(READY, show_health, methods=["GET"]),
            Route("/health/live", show_alive, methods=["GET"]),
        ],
        middleware=[
            Middleware(CountedRefusals, parts.refusals),
            *([Middleware(LoopbackHosts)] if loopback else []),
            Middleware(TextTargets),
        ],
        exception_handlers={HTTPException: http_problem, OperationError: group_problem},
    )
