"""REST of batches that are too large when decompressed: `GET /v1/unreadable?group=`,
`POST /v1/unreadable/skip`.
"""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from gateway.admin.access import concerns, require_group
from gateway.admin.pages import limit_of, place_after, place_text
from gateway.admin.problems import answered, json_body, query, validated
from gateway.admin.rows import SkipBody, Skipped, UnreadableList, UnreadableRow
from gateway.operations.unreadable_records import UnreadablePlace, UnreadableRecords


def unreadable_routes(unreadable: UnreadableRecords) -> list[Route]:
    async def list_unreadable(request: Request) -> Response:
        group = query(request, "group")
        limit, after = limit_of(request), place_after(request)
        rows = await unreadable.rows(group, topic=request.query_params.get("topic"))
        rows = [row for row in rows if (row.topic, row.partition) > after]
        page = [_row(row) for row in rows[:limit]]
        following = place_text(page[-1].topic, page[-1].partition) if rows[limit:] else None
        return answered(UnreadableList(group=group, unreadable=page, next=following))

    async def skip(request: Request) -> Response:
        body = validated(SkipBody, await json_body(request, set(SkipBody.model_fields)))
        require_group(request, body.group)
        concerns(request, topic=body.topic, partition=body.partition, offsets=f"from {body.offset}")
        place = await unreadable.skip(body.group, body.topic, body.partition, body.offset)
        row = _row(place)
        concerns(request, offsets=f"{row.offset} to {row.last_offset}")
        return answered(Skipped(group=body.group, skipped=row))

    return [
        Route("/v1/unreadable", list_unreadable, methods=["GET"]),
        Route("/v1/unreadable/skip", skip, methods=["POST"]),
    ]


def _row(place: UnreadablePlace) -> UnreadableRow:
    return UnreadableRow(
        topic=place.topic,
        partition=place.partition,
        offset=place.offset,
        last_offset=None if place.end is None else place.end - 1,
        reason=place.reason,
    )
