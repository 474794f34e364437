"""REST of keys: `GET /v1/keys?group=`, one key by `key`, `key_base64` or `key_hash`; without any of
them the hot keys of the group: a ranking, so they have no pages.

A key that somebody names may be shown to them; otherwise keys are shown as their hash, and
themselves to callers who may see keys.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import heapq
from bisect import bisect_right
from collections.abc import Iterator, Mapping
from typing import Final

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from dispatcher.core.reports.key_stats import KeyStats
from dispatcher.core.reports.picture import OffsetState
from dispatcher.core.routing.kept_keys import kept_bytes
from gateway.admin.access import caller_of
from gateway.admin.keys import shown_key
from gateway.admin.limits import HOT_KEYS_SHOWN, KEY_BYTES_MAX, KEYS_MAX
from gateway.admin.pages import number, place_text, record_after
from gateway.admin.problems import answered, query
from gateway.admin.window_rows import KeyList, KeyRow, KeyStateName
from gateway.core.cluster.topology import TopicPartition
from gateway.operations.group_offsets import GroupOffsets
from gateway.windows.window import Window

_STATES: Final[Mapping[OffsetState, KeyStateName]] = {
    OffsetState.SETTLED: "idle",
    OffsetState.READY: "ready",
    OffsetState.IN_FLIGHT: "in_flight",
    OffsetState.BACKING_OFF: "backing_off",
    OffsetState.DEAD_LETTERING: "dead_lettering",
    OffsetState.PARKED: "parked",
}
_NAMES = ("key", "key_base64", "key_hash")


def key_routes(offsets: GroupOffsets) -> list[Route]:
    async def show(request: Request) -> Response:
        group = query(request, "group")
        given = [name for name in _NAMES if name in request.query_params]
        if len(given) > 1:
            raise HTTPException(400, f"{given[0]} or {given[1]}, not both")
        if not given and "after" in request.query_params:
            raise HTTPException(400, "after: the hot keys are a ranking, which has no pages")
        shown = KEYS_MAX if given else HOT_KEYS_SHOWN
        limit, after = number(request, "limit", 1, KEYS_MAX, default=shown), record_after(request)
        text = request.query_params[given[0]] if given else ""
        named = _named(given[0], text) if given and given[0] != "key_hash" else None
        key_hash = _hash(text) if given == ["key_hash"] else None
        await offsets.require(group)
        windows = list(_up(offsets, group, request.query_params.get("topic")))
        if named is not None:
            found = await _of_key(windows, named)
        elif key_hash is not None:
            found = await _of_hash(windows, key_hash)
        else:
            found = await _hot(windows, limit)
        keys = caller_of(request).keys or named is not None
        if not given:
            return answered(KeyList(group=group, keys=_rows(found, keys=keys)))
        found.sort(key=_place)
        first = bisect_right(found, after, key=_place)
        page = found[first : first + limit]
        following = place_text(*_place(page[-1])) if first + limit < len(found) else None
        return answered(KeyList(group=group, keys=_rows(page, keys=keys), next=following))

    return [Route("/v1/keys", show, methods=["GET"])]


def _named(name: str, text: str) -> bytes:
    """As windows keep it. Raises HTTPException."""
    try:
        key = text.encode() if name == "key" else base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError) as error:
        raise HTTPException(400, f"{name} is not base64") from error
    if len(key) > KEY_BYTES_MAX:
        raise HTTPException(400, f"{name} has more than {KEY_BYTES_MAX} bytes")
    return kept_bytes(key)


def _hash(text: str) -> int:
    """Raises HTTPException."""
    try:
        if len(text) != 8 or not text.isalnum():
            raise ValueError
        return int(text, 16)
    except ValueError:
        raise HTTPException(400, "key_hash: 8 hex digits are expected") from None


def _up(offsets: GroupOffsets, group: str, topic: str | None) -> Iterator[Window]:
    for window in offsets.windows.of_group(group):
        if topic in (None, window.partition.topic):
            yield window


Found = list[tuple[TopicPartition, KeyStats]]


def _place(row: tuple[TopicPartition, KeyStats]) -> tuple[str, int, int]:
    """Orders rows by partition. Of two keys with the same hash, the one with the older record is
    first.
    """
    tp, stats = row
    return tp.topic, tp.partition, max(0, stats.first_offset)


async def _of_key(windows: list[Window], key: bytes) -> Found:
    """Where the key has unsettled records, or else, per topic, where its records would go in the
    first partition that is up: all windows of a topic have the same members.
    """
    busy: Found = []
    idle: dict[str, tuple[TopicPartition, KeyStats]] = {}
    for window in windows:
        core = window.dispatcher
        if core is not None:
            stats = core.key_stats(key)
            if stats.state is OffsetState.SETTLED:
                idle.setdefault(window.partition.topic, (window.partition, stats))
            else:
                busy.append((window.partition, stats))
        await asyncio.sleep(0)
    topics = {tp.topic for tp, _ in busy}
    return busy + [found for topic, found in idle.items() if topic not in topics]


async def _of_hash(windows: list[Window], key_hash: int) -> Found:
    found: Found = []
    for window in windows:
        core = window.dispatcher
        if core is not None:
            keys = core.keys_with_hash(key_hash)
            found += [(window.partition, core.key_stats(key)) for key in keys]
        await asyncio.sleep(0)
    return found


async def _hot(windows: list[Window], limit: int) -> Found:
    found: Found = []
    for window in windows:
        core = window.dispatcher
        if core is not None:
            found += [(window.partition, stats) for stats in core.hot_keys(limit)]
            # Of equally hot keys the first partition's comes first: the answer does not jump.
            found = heapq.nsmallest(limit, found, key=lambda hot: (-hot[1].records, hot[0]))
        await asyncio.sleep(0)
    return found


def _rows(found: Found, *, keys: bool) -> list[KeyRow]:
    return [_row(tp, stats, keys=keys) for tp, stats in found]


def _row(tp: TopicPartition, stats: KeyStats, *, keys: bool) -> KeyRow:
    return KeyRow(
        topic=tp.topic,
        partition=tp.partition,
        state=_STATES[stats.state],
        owner=stats.owner,
        holder=stats.holder,
        records=stats.records,
        in_flight=stats.in_flight,
        first_offset=stats.first_offset if stats.records else None,
        attempts=stats.deliveries,
        reason=None if stats.reason is None else stats.reason.value,
        due_ms=stats.due_ms,
        **shown_key(stats.key, keys=keys),
    )
