"""REST of parked records: `GET /v1/parked?group=`, `POST /v1/parked/release`.

The group is a parameter, not a part of the path: its name may be anything, slashes included. Keys
are shown as their hash: a key may be personal data, and this surface has no roles.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from dispatcher.core.model import OperatorVerb
from gateway.admin.problems import json_body, query
from gateway.operations.parked_records import ParkedRecords, ParkedRow

ALL = "all"
_ACTIONS = ", ".join(verb.value for verb in OperatorVerb)
_FIELDS = {"group", "topic", "partition", "offsets", "action"}


def parked_routes(parked: ParkedRecords) -> list[Route]:
    async def show(request: Request) -> Response:
        group = query(request, "group")
        rows = await parked.rows(group, topic=request.query_params.get("topic"))
        return JSONResponse({"group": group, "parked": [_row(row) for row in rows]})

    async def release(request: Request) -> Response:
        body = await json_body(request, _FIELDS)
        group, topic = _text(body, "group"), _text(body, "topic")
        partition, verb = _number(body["partition"], "partition"), _verb(body["action"])
        offsets = await parked.release(group, topic, partition, _offsets(body["offsets"]), verb)
        return JSONResponse(
            {
                "group": group,
                "topic": topic,
                "partition": partition,
                "action": verb.value,
                "offsets": offsets,
            }
        )

    return [
        Route("/v1/parked", show, methods=["GET"]),
        Route("/v1/parked/release", release, methods=["POST"]),
    ]


def _row(row: ParkedRow) -> dict[str, Any]:
    return {**asdict(row), "key_hash": None if row.key_hash is None else f"{row.key_hash:08x}"}


def _text(body: dict[str, Any], name: str) -> str:
    value = body[name]
    if not isinstance(value, str) or not value:
        raise HTTPException(400, f"{name}: a name is expected")
    return value


def _number(value: object, name: str) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < 2**63:
        raise HTTPException(400, f"{name}: a number from 0 on is expected")
    return value


def _offsets(value: object) -> list[int] | None:
    if value == ALL:
        return None
    if not isinstance(value, list) or not value:
        raise HTTPException(400, f'offsets: a list of offsets, or "{ALL}", is expected')
    return [_number(offset, "offsets") for offset in value]


def _verb(value: object) -> OperatorVerb:
    for verb in OperatorVerb:
        if verb.value == value:
            return verb
    raise HTTPException(400, f"action: one of {_ACTIONS} is expected")
