"""REST of positions: `GET /v1/positions?group=`, `POST /v1/positions/seek?group=`.

A seek shows old, new and delta of each partition, and changes nothing unless it says `execute`. One
with the `shown` of its dry run is refused if the positions are other ones now. A `shift` must have
it: whoever lost the answer and asks again would shift twice. A token for some groups moves them in
their own topics only.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from gateway.admin.access import caller_of, concerns
from gateway.admin.audit import shown_first
from gateway.admin.pages import limit_of, page_of, place_after, place_text
from gateway.admin.problems import answered, json_object, query, validated
from gateway.admin.window_rows import PositionList, PositionRow, SeekBody, SeekResult, SeekRow
from gateway.admin.windows import Partition, partitions_of
from gateway.operations.errors import GroupInUse
from gateway.operations.group_offsets import GroupOffsets
from gateway.operations.lag import Lags
from gateway.operations.seek import Move, Seeks, SeekTarget, shown_positions


def position_routes(offsets: GroupOffsets, lags: Lags) -> list[Route]:
    seeks = Seeks(offsets)

    async def list_positions(request: Request) -> Response:
        group = query(request, "group")
        limit, after = limit_of(request), place_after(request)
        topic = request.query_params.get("topic")
        await offsets.require(group)
        await lags.refresh_group(group)
        places = partitions_of(group, offsets, lags)
        known = sorted(places.lags)
        first = bisect_right(known, after)

        def kept(place: Partition) -> bool:
            return topic in (None, place[0])

        page, more = await page_of(known, first, limit, kept)
        rows = [
            PositionRow(
                topic=place[0],
                partition=place[1],
                cursor=lag.cursor,
                settled=lag.settled,
                log_end=lag.log_end,
                lag=lag.records,
                lag_seconds=lag.seconds,
                state=places.state(place),
            )
            for place in page
            for lag in (places.lags[place],)
        ]
        following = place_text(*page[-1]) if more else None
        return answered(PositionList(group=group, positions=rows, next=following))

    async def seek(request: Request) -> Response:
        group = query(request, "group")
        body = validated(SeekBody, await json_object(request))
        concerns(request, topic=body.topic, dry_run=not body.execute)
        own_topics = not caller_of(request).sees_all
        moves = await seeks.plan(
            group, _target(body), body.topic, body.partitions, own_topics=own_topics
        )
        if not moves:
            raise HTTPException(409, f"group {group!r} has no position that could be moved")
        shown = shown_positions(moves)
        if body.execute:
            if body.shown not in (None, shown):
                raise HTTPException(409, f"the positions of {group!r} are not those shown any more")
            concerns(request, offsets=_shown(moves))
            moves = await seeks.execute(group, moves)
        result = SeekResult(
            group=group,
            executed=body.execute,
            refused=None if body.execute else _refusal(group),
            shown=shown,
            positions=[_row(move) for move in moves],
        )
        return answered(result)

    def _refusal(group: str) -> str | None:
        try:
            offsets.check_empty(group)
        except GroupInUse as in_use:
            return str(in_use)
        return None

    return [
        Route("/v1/positions", list_positions, methods=["GET"]),
        Route("/v1/positions/seek", seek, methods=["POST"]),
    ]


def _target(body: SeekBody) -> SeekTarget:
    value = {"offset": body.offset, "timestamp": body.timestamp_ms, "shift": body.shift}
    return SeekTarget(body.to, value.get(body.to) or 0)


def _row(move: Move) -> SeekRow:
    return SeekRow(
        topic=move.topic,
        partition=move.partition,
        old=move.old,
        new=move.new,
        delta=None if move.new is None or move.old is None else move.new - move.old,
        error=move.error,
    )


def _shown(moves: Sequence[Move]) -> str:
    """The moves as the audit shows them."""
    made = [move for move in moves if move.new is not None]
    return shown_first(
        [f"{move.topic}-{move.partition}: {move.old} to {move.new}" for move in made], ", "
    )
