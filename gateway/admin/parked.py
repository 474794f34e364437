"""REST of parked records: `GET /v1/parked?group=`, `POST /v1/parked/release`.

The group is a parameter, not a part of the path: its name may be anything, slashes included. Keys
are shown as their hash: a key may be personal data, and this surface has no roles.
"""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from gateway.admin.problems import answered, json_body, query, validated
from gateway.admin.rows import ALL, ParkedList, ParkedRecordRow, ReleaseBody, Released
from gateway.operations.parked_records import ParkedRecords, ParkedRow


def parked_routes(parked: ParkedRecords) -> list[Route]:
    async def list_parked(request: Request) -> Response:
        group = query(request, "group")
        rows = await parked.rows(group, topic=request.query_params.get("topic"))
        return answered(ParkedList(group=group, parked=[_row(row) for row in rows]))

    async def release(request: Request) -> Response:
        body = validated(ReleaseBody, await json_body(request, set(ReleaseBody.model_fields)))
        chosen = None if body.offsets == ALL else list(body.offsets)
        offsets = await parked.release(body.group, body.topic, body.partition, chosen, body.action)
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


def _row(row: ParkedRow) -> ParkedRecordRow:
    return ParkedRecordRow(
        topic=row.topic,
        partition=row.partition,
        offset=row.offset,
        key_hash=None if row.key_hash is None else f"{row.key_hash:08x}",
        reason=row.reason,
        deliveries=row.deliveries,
        member_id=row.member_id,
    )
