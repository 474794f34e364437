"""REST of parked records: `GET /v1/parked?group=`, `POST /v1/parked/release`.

The group is a parameter, not a part of the path: its name may be anything, slashes included. A key
is shown as its hash, and itself to callers who may see keys: it may be personal data.
"""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from gateway.admin.access import caller_of, concerns, require_group
from gateway.admin.audit import shown_first
from gateway.admin.keys import shown_key
from gateway.admin.pages import limit_of, number, place_text, record_after
from gateway.admin.problems import answered, json_body, query, validated
from gateway.admin.rows import ALL, ParkedList, ParkedRecordRow, ReleaseBody, Released
from gateway.operations.parked_records import ParkedRecords, ParkedRow

ANY = -1  # no partition has this number


def parked_routes(parked: ParkedRecords) -> list[Route]:
    async def list_parked(request: Request) -> Response:
        group = query(request, "group")
        limit, after = limit_of(request), record_after(request)
        partition = number(request, "partition", 0, 2**31 - 1, default=ANY)
        rows = await parked.rows(
            group,
            topic=request.query_params.get("topic"),
            partition=None if partition == ANY else partition,
            after=after,
            rows_max=limit + 1,
        )
        keys = caller_of(request).keys
        page = [_row(row, keys=keys) for row in rows[:limit]]
        last = page[-1] if rows[limit:] else None
        following = None if last is None else place_text(last.topic, last.partition, last.offset)
        return answered(ParkedList(group=group, parked=page, next=following))

    async def release(request: Request) -> Response:
        body = validated(ReleaseBody, await json_body(request, set(ReleaseBody.model_fields)))
        require_group(request, body.group)
        chosen = None if body.offsets == ALL else list(body.offsets)
        concerns(
            request,
            topic=body.topic,
            partition=body.partition,
            offsets=f"{body.action.value} {ALL if chosen is None else shown_first(chosen)}",
        )
        offsets = await parked.release(body.group, body.topic, body.partition, chosen, body.action)
        concerns(request, offsets=f"{body.action.value} {shown_first(offsets)}")
        return answered(
            Released(
                group=body.group,
                topic=body.topic,
                partition=body.partition,
                action=body.action,
                offsets=offsets,
            )
        )

    return [
        Route("/v1/parked", list_parked, methods=["GET"]),
        Route("/v1/parked/release", release, methods=["POST"]),
    ]


def _row(row: ParkedRow, *, keys: bool) -> ParkedRecordRow:
    return ParkedRecordRow(
        topic=row.topic,
        partition=row.partition,
        offset=row.offset,
        **shown_key(row.key, keys=keys),
        reason=row.reason,
        deliveries=row.deliveries,
        member_id=row.member_id,
    )
