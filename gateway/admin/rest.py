"""The operator's REST: groups and their windows, parked records, key filters, metrics, health.

`/v1/groups/{group}` takes any name, slashes included, plain or quoted; everything else about a
group has a path of its own and the group as a parameter, so that no name can be mistaken for it.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from dispatcher.core.hashes import key_hash32
from dispatcher.core.model import Key
from dispatcher.core.stats import FullSpan, WindowStats
from gateway.admin.filters import filter_routes
from gateway.admin.health import Health
from gateway.admin.parked import parked_routes
from gateway.admin.problems import LoopbackHosts, group_problem, http_problem
from gateway.core.cluster.topology import TopicPartition
from gateway.core.share.membership import ShareGroup
from gateway.members.groups import Groups
from gateway.members.key_filters import KeyFilters
from gateway.operations.errors import OperationError
from gateway.operations.lag import Lag, Lags
from gateway.operations.parked_records import ParkedRecords
from gateway.windows.window import Window
from gateway.windows.windows import Windows

READY = "/health/ready"


@dataclass(frozen=True, slots=True)
class RestParts:
    groups: Groups
    windows: Windows
    parked: ParkedRecords
    filters: KeyFilters
    registry: CollectorRegistry
    lags: Lags
    health: Callable[[], Awaitable[Health]]


def rest_app(parts: RestParts, *, loopback: bool) -> Starlette:
    """`loopback`: it is bound to loopback, so every Host must be there."""
    groups, windows = parts.groups, parts.windows

    async def list_groups(_: Request) -> Response:
        lags = _by_group(parts.lags)
        return JSONResponse(
            {"groups": [_summary(g, windows, lags.get(g.name, [])) for g in groups.all()]}
        )

    async def describe_group(request: Request) -> Response:
        name = request.path_params["group"]
        group = groups.get(name)
        if group is None:
            raise HTTPException(404, f"no group {name!r} on this node")
        await parts.lags.refresh_group(name)
        if groups.get(name) is not group:
            raise HTTPException(404, f"group {name!r} was deleted just now")
        text = await _description(group, windows, _by_group(parts.lags).get(name, []))
        return Response(text, media_type="application/json")

    async def show_metrics(_: Request) -> Response:
        return Response(generate_latest(parts.registry), media_type=CONTENT_TYPE_LATEST)

    async def show_health(request: Request) -> Response:
        health = await parts.health()
        fine = health.ready if request.url.path == READY else not health.reasons
        return JSONResponse(health.shown(), status_code=200 if fine else 503)

    async def show_alive(_: Request) -> Response:
        return JSONResponse({"status": "alive"})

    return Starlette(
        routes=[
            Route("/v1/groups", list_groups),
            Route("/v1/groups/{group:path}", describe_group),
            *parked_routes(parts.parked),
            *filter_routes(parts.filters, groups),
            Route("/metrics", show_metrics),
            Route("/health", show_health),
            Route(READY, show_health),
            Route("/health/live", show_alive),
        ],
        middleware=[Middleware(LoopbackHosts)] if loopback else [],
        exception_handlers={HTTPException: http_problem, OperationError: group_problem},
    )


def _by_group(lags: Lags) -> dict[str, list[Lag]]:
    found: dict[str, list[Lag]] = {}
    for lag in lags.all():
        found.setdefault(lag.group, []).append(lag)
    return found


def _summary(group: ShareGroup, windows: Windows, lags: list[Lag]) -> dict[str, Any]:
    known = [lag.records for lag in lags if lag.records is not None]
    return {
        "group": group.name,
        "state": group.state,
        "members": len(group.members),
        "topics": group.topics(),
        "windows": windows.count_of(group.name),
        "lag": sum(known) if known else None,
    }


async def _description(group: ShareGroup, windows: Windows, lags: list[Lag]) -> bytes:
    """As JSON, made a window at a time: each takes a millisecond or two, and who polls a group of
    many must not hold up the others.
    """
    lag_of = {lag.tp: lag for lag in lags}
    partitions: dict[TopicPartition, bytes] = {}
    for window in windows.of_group(group.name):
        row = _window(window, group)
        lag = lag_of.pop(window.partition, None)
        if lag is not None:
            row.update(log_end=lag.log_end, lag=lag.records)
        partitions[window.partition] = _json(row)
        await asyncio.sleep(0)
    for tp, lag in lag_of.items():
        # Nobody reads there, so the window is not in memory.
        row = {"topic": tp.topic, "partition": tp.partition, "state": "idle", "cursor": lag.cursor}
        partitions[tp] = _json({**row, "log_end": lag.log_end, "lag": lag.records})
    rows = b",".join([partitions[tp] for tp in sorted(partitions)])
    head = _json(_group_row(group, windows, lags))
    return b'%b,"partitions":[%b]}' % (head.removesuffix(b"}"), rows)


def _json(row: dict[str, Any]) -> bytes:
    return json.dumps(row, ensure_ascii=False, separators=(",", ":")).encode()


def _group_row(group: ShareGroup, windows: Windows, lags: list[Lag]) -> dict[str, Any]:
    return {
        **_summary(group, windows, lags),
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
    }


def _window(window: Window, group: ShareGroup) -> dict[str, Any]:
    row: dict[str, Any] = {
        "topic": window.partition.topic,
        "partition": window.partition.partition,
        "state": "loading" if window.dispatcher is None else "up",
        "trouble": window.trouble or None,
    }
    if window.dispatcher is not None:
        row["cursor"] = window.dispatcher.cursor
        row["read_position"] = window.dispatcher.read_position
        stats = window.dispatcher.stats()
        row.update(_stats(stats))
        row["consumers_after_mark_delete_position"] = _joined_behind(stats, group)
        waiting = row["dead_lettering"] > 0
        row["dead_letter_trouble"] = window.dead_letter_trouble if waiting else None
        row["read_trouble"] = window.read_trouble
    return row


def _stats(stats: WindowStats) -> dict[str, Any]:
    """Keys are shown as a hash: a key may be personal data, and this surface has no roles yet."""
    return {
        "unsettled": stats.unsettled,
        "keys": stats.keys,
        "in_flight": stats.in_flight,
        "backing_off": stats.backing_off,
        "dead_lettering": stats.dead_lettering,
        "dropped": stats.dropped,
        "parked": [
            {
                "offset": record.offset,
                "key_hash": _hash(record.key),
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
                "draining_in_flight": member.draining_in_flight,
                "draining_blocked": member.draining_blocked,
                "draining_attempts": member.draining_attempts,
                "draining_cleared": member.draining_cleared,
                "last_sent_position_when_joining": member.last_sent_when_joining,
                "dropped": member.dropped,
            }
            for member in stats.members
        ],
        "draining": [
            {
                "key_hash": _hash(key.key),
                "member_id": key.member_id,
                "in_flight": key.in_flight,
                "blocked": key.blocked,
                "attempts": key.attempts,
            }
            for key in stats.draining
        ],
        "draining_cleared": stats.draining_cleared,
        "last_sent_position": stats.last_sent,
        "individually_sent_positions": [list(sent) for sent in stats.individually_sent],
        "span_max": stats.span_max,
        "full_span": None if stats.full_span is None else _full_span(stats.full_span),
    }


def _joined_behind(stats: WindowStats, group: ShareGroup) -> list[dict[str, Any]]:
    """Members that joined when records were out which are not settled yet (PIP-282's name). Under
    `join_policy: last_sent` they wait for those.
    """
    rows: list[dict[str, Any]] = []
    for member in stats.members:
        known = group.members.get(member.member_id)
        position = member.last_sent_when_joining
        if known is not None and position is not None and position >= stats.cursor:
            row = {"name": known.client_id, "id": known.member_id, "address": known.client_host}
            rows.append({**row, "last_sent_position_when_joining": position})
    return rows


def _full_span(full: FullSpan) -> dict[str, Any]:
    return {
        "limit": "span_max" if full.by_span else "window_records",
        "offset": full.offset,
        "key_hash": _hash(full.key),
        "records": full.records,
        "member_id": full.member_id,
    }


def _hash(key: Key) -> str | None:
    return None if key is None else f"{key_hash32(key):08x}"
