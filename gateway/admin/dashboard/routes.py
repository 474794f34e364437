"""Routes of the dashboard: its files, and the overview for them to show."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from gateway.admin.access import caller_of
from gateway.admin.cluster import alone
from gateway.admin.dashboard.events import EventStream, Viewers
from gateway.admin.dashboard.overview_of_nodes import OverviewsOfNodes
from gateway.admin.dashboard.page import page_routes


def dashboard_routes(overviews: OverviewsOfNodes, viewers: Viewers) -> list[Route]:
    async def show_overview(request: Request) -> Response:
        only = alone(request, overviews.peers)
        text = await overviews.text(caller_of(request), request.state.token, alone=only)
        return Response(text, media_type="application/json")

    async def show_events(request: Request) -> Response:
        caller, token = caller_of(request), request.state.token
        only = alone(request, overviews.peers)
        return EventStream(lambda: overviews.text(caller, token, alone=only), viewers)

    return [
        *page_routes(),
        Route("/v1/overview", show_overview, methods=["GET"]),
        Route("/v1/events", show_events, methods=["GET"]),
    ]
