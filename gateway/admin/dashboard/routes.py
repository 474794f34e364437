"""Routes of the dashboard: its files, and the overview for them to show."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from gateway.admin.access import caller_of
from gateway.admin.dashboard.events import EventStream, Viewers
from gateway.admin.dashboard.overview import Overviews
from gateway.admin.dashboard.page import page_routes


def dashboard_routes(overviews: Overviews, viewers: Viewers) -> list[Route]:
    async def show_overview(request: Request) -> Response:
        snapshot = await overviews.latest()
        return Response(snapshot.text(caller_of(request)), media_type="application/json")

    async def show_events(request: Request) -> Response:
        return EventStream(overviews, viewers, caller_of(request))

    return [
        *page_routes(),
        Route("/v1/overview", show_overview, methods=["GET"]),
        Route("/v1/events", show_events, methods=["GET"]),
    ]
