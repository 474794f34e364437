"""The operator's REST: groups and their windows, metrics, health. Errors are problem+json (RFC
9457).

Read-only. It listens on loopback unless configured otherwise and has no authentication of its own
yet.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from prometheus_client import CONTENT_TYPE_LATEST, generate_latest
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from dispatcher.core.hashes import key_hash32
from dispatcher.core.stats import WindowStats
from gateway.core.group.membership import ShareGroup
from gateway.groups import Groups
from gateway.metrics import Metrics
from gateway.window import Window
from gateway.windows import Windows


def rest_app(
    groups: Groups, windows: Windows, metrics: Metrics, health: Callable[[], dict[str, Any]]
) -> Starlette:
    async def list_groups(_: Request) -> Response:
        return JSONResponse({"groups": [_summary(group, windows) for group in groups.all()]})

    async def describe_group(request: Request) -> Response:
        name = request.path_params["group"]
        group = groups.get(name)
        if group is None:
            raise HTTPException(404, f"no group {name!r} on this node")
        return JSONResponse(_description(group, windows))

    async def show_metrics(_: Request) -> Response:
        return Response(generate_latest(metrics.registry), media_type=CONTENT_TYPE_LATEST)

    async def show_health(_: Request) -> Response:
        return JSONResponse(health())

    return Starlette(
        routes=[
            Route("/v1/groups", list_groups),
            Route("/v1/groups/{group:path}", describe_group),
            Route("/metrics", show_metrics),
            Route("/health", show_health),
        ],
        exception_handlers={HTTPException: _problem},
    )


async def _problem(_: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    return JSONResponse(
        {"type": "about:blank", "title": error.detail, "status": error.status_code},
        status_code=error.status_code,
        media_type="application/problem+json",
    )


def _summary(group: ShareGroup, windows: Windows) -> dict[str, Any]:
    return {
        "group": group.name,
        "state": group.state,
        "members": len(group.members),
        "topics": group.topics(),
        "windows": len(windows.of_group(group.name)),
    }


def _description(group: ShareGroup, windows: Windows) -> dict[str, Any]:
    return {
        **_summary(group, windows),
        "epoch": group.epoch,
        "memberships": [
            {
                "member_id": member.member_id,
                "client_id": member.client_id,
                "host": member.client_host,
                "epoch": member.epoch,
                "topics": list(member.topics),
            }
            for member in group.members.values()
        ],
        "partitions": [_window(window) for window in windows.of_group(group.name)],
    }


def _window(window: Window) -> dict[str, Any]:
    row: dict[str, Any] = {
        "topic": window.partition.topic,
        "partition": window.partition.partition,
        "state": "loading" if window.dispatcher is None else "up",
    }
    if window.dispatcher is not None:
        row["cursor"] = window.dispatcher.cursor
        row["read_position"] = window.dispatcher.read_position
        row.update(_stats(window.dispatcher.stats()))
    return row


def _stats(stats: WindowStats) -> dict[str, Any]:
    """Keys are shown as a hash: a key may be personal data, and this surface has no roles yet."""
    return {
        "unsettled": stats.unsettled,
        "keys": stats.keys,
        "in_flight": stats.in_flight,
        "backing_off": stats.backing_off,
        "dead_lettering": stats.dead_lettering,
        "parked": [
            {
                "offset": record.offset,
                "key_hash": None if record.key is None else f"{key_hash32(record.key):08x}",
                "deliveries": record.deliveries,
                "reason": record.reason.value,
                "member_id": record.member_id,
            }
            for record in stats.parked
        ],
        "members": [
            {
                "member_id": member.member_id,
                "ready_keys": member.ready_keys,
                "in_flight": member.in_flight,
                "draining_keys": member.draining_keys,
                "draining_blocked": member.draining_blocked,
            }
            for member in stats.members
        ],
    }
