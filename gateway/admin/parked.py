"""REST of parked records: `GET /v1/parked?group=`, `GET /v1/parked/value`, `POST
/v1/parked/release`.

The group is a parameter, not a part of the path: its name may be anything, slashes included. A key
is shown as its hash, and itself to callers who may see keys: it may be personal data. So may
headers, which the same callers get with `headers=true`: they are read from Kafka for each row.
Values are for callers whose token has `values`, one at a time; each look is in the audit.
"""

from __future__ import annotations

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from dispatcher.core.model import Reason
from gateway.admin.access import (
    caller_of,
    concerns,
    require_group,
    require_keys,
)
from gateway.admin.audit import shown_first
from gateway.admin.configuration import Configuration
from gateway.admin.headers import shown_headers
from gateway.admin.keys import shown_key
from gateway.admin.limits import PAGE_HEADERS_MAX
from gateway.admin.pages import flag, limit_of, number, one_of, place_text, record_after
from gateway.admin.problems import answered, json_object, query, validated
from gateway.admin.rows import (
    ALL,
    ParkedList,
    ParkedRecordRow,
    ReleaseBody,
    Released,
    ReleasedPartition,
)
from gateway.admin.value_decoder import Undecoded, ValueDecoder
from gateway.admin.values import globs_of, shown_value
from gateway.core.wire.records import RecordStart
from gateway.operations.parked_records import (
    Choice,
    Decided,
    ParkedRecords,
    ParkedRow,
    place_of,
)

ANY = -1  # no partition has this number


def parked_routes(
    parked: ParkedRecords, configuration: Configuration, decoder: ValueDecoder
) -> list[Route]:
    async def list_parked(request: Request) -> Response:
        group = query(request, "group")
        limit, after = limit_of(request), record_after(request)
        partition = number(request, "partition", 0, 2**31 - 1, default=ANY)
        with_headers = flag(request, "headers")
        if with_headers:
            require_keys(request, "headers")
            limit = min(limit, PAGE_HEADERS_MAX)
        key = request.query_params.get("key")
        if key is not None:
            require_keys(request, "keys")
        reason = one_of(request, "reason", [known.value for known in Reason])
        choice = Choice(
            topic=request.query_params.get("topic"),
            partition=None if partition == ANY else partition,
            reason=None if reason is None else Reason(reason),
            key=None if key is None else key.encode(),
        )
        rows = await parked.rows(group, choice, after=after, rows_max=limit + 1)
        keys = caller_of(request).keys
        starts = await parked.starts(group, rows[:limit]) if with_headers else {}
        page = [_row(row, starts.get(place_of(row)), keys=keys) for row in rows[:limit]]
        last = page[-1] if rows[limit:] else None
        following = None if last is None else place_text(last.topic, last.partition, last.offset)
        return answered(ParkedList(group=group, parked=page, next=following))

    async def release(request: Request) -> Response:
        body = validated(ReleaseBody, await json_object(request))
        require_group(request, body.group)
        if body.key is not None:
            require_keys(request, "keys")
        verb = body.action.value
        wanted = ALL if isinstance(body.offsets, str) else shown_first(body.offsets)
        concerns(request, topic=body.topic, partition=body.partition, offsets=f"{verb} {wanted}")
        decided = await parked.release(body.group, _choice(body), body.action)
        records = sum(len(decision.offsets) for decision in decided)
        if body.partition is None:
            concerns(request, offsets=f"{verb} {records} of {len(decided)} partitions")
        else:
            concerns(request, offsets=f"{verb} {shown_first(decided[0].offsets)}")
        partitions = [_decided(decision) for decision in decided]
        return answered(
            Released(group=body.group, action=body.action, records=records, partitions=partitions)
        )

    async def value(request: Request) -> Response:
        group, topic = query(request, "group"), query(request, "topic")
        partition = number(request, "partition", 0, 2**31 - 1)
        offset = number(request, "offset", 0, 2**63 - 1)
        concerns(request, topic=topic, partition=partition, offsets=str(offset))
        start = await parked.value(group, (topic, partition, offset))
        if start is None:
            raise HTTPException(404, f"{topic}-{partition}: offset {offset} is gone from the log")
        masks = globs_of(configuration.running.admin.masks, topic)
        cut = start.value_bytes > len(start.value)
        found = None if cut else await decoder.decoded(topic, start.value)
        if isinstance(found, Undecoded):
            row = shown_value(start, masks)
            problem = {"problem": found.problem, "schema_id": found.schema_id}
            return answered(row.model_copy(update=problem))
        return answered(shown_value(start, masks, found))

    return [
        Route("/v1/parked/value", value, methods=["GET"]),
        Route("/v1/parked", list_parked, methods=["GET"]),
        Route("/v1/parked/release", release, methods=["POST"]),
    ]


def _choice(body: ReleaseBody) -> Choice:
    return Choice(
        topic=body.topic,
        partition=body.partition,
        offsets=None if isinstance(body.offsets, str) else tuple(body.offsets),
        reason=body.reason,
        key=None if body.key is None else body.key.encode(),
    )


def _decided(decided: Decided) -> ReleasedPartition:
    row = ReleasedPartition(
        topic=decided.topic, partition=decided.partition, offsets=decided.offsets
    )
    return row if decided.failed is None else row.model_copy(update={"failed": decided.failed})


def _row(row: ParkedRow, start: RecordStart | None, *, keys: bool) -> ParkedRecordRow:
    return ParkedRecordRow(
        topic=row.topic,
        partition=row.partition,
        offset=row.offset,
        **shown_key(row.key, keys=keys),
        **shown_headers(start),
        reason=row.reason,
        deliveries=row.deliveries,
        member_id=row.member_id,
        since_ms=row.since_ms,
        behind=row.behind,
    )
