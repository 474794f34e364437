"""REST of topics that get other partitions: `GET` and `POST /v1/repartitions`, and `abort`."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from gateway.admin.access import concerns
from gateway.admin.problems import answered, json_object, validated
from gateway.admin.repartition_rows import (
    AbortBody,
    BoundaryRow,
    LeftRow,
    ProducerRow,
    RepartitionBody,
    RepartitionList,
    RepartitionPlan,
    RepartitionRow,
)
from gateway.core.repartition.plan import Order, Plan
from gateway.repartition.repartitions import Repartitions
from gateway.repartition.status import Status, status_of


def repartition_routes(repartitions: Repartitions) -> list[Route]:
    async def listed(request: Request) -> Response:
        topic = request.query_params.get("topic")
        chosen = [
            record for name, record in sorted(repartitions.records.items()) if topic in (None, name)
        ]
        rows = [_row(await status_of(repartitions, record)) for record in chosen]
        return answered(RepartitionList(repartitions=rows))

    async def plan_or_start(request: Request) -> Response:
        body = validated(RepartitionBody, await json_object(request))
        concerns(request, topic=body.topic, target=body.into, dry_run=not body.execute)
        act = repartitions.start if body.execute else repartitions.plan
        order = Order(
            body.topic,
            body.partitions,
            into=body.into or "",
            unordered=body.unordered,
            partitioner=body.partitioner,
        )
        plan = await act(order)
        return answered(_plan_row(plan, executed=body.execute))

    async def abort(request: Request) -> Response:
        body = validated(AbortBody, await json_object(request))
        concerns(request, topic=body.topic)
        record = await repartitions.abort(body.topic, force=body.force)
        return answered(_row(await status_of(repartitions, record)))

    return [
        Route("/v1/repartitions", listed, methods=["GET"]),
        Route("/v1/repartitions", plan_or_start, methods=["POST"]),
        Route("/v1/repartitions/abort", abort, methods=["POST"]),
    ]


def _plan_row(plan: Plan, *, executed: bool) -> RepartitionPlan:
    return RepartitionPlan(
        topic=plan.topic,
        before=plan.before,
        after=plan.after,
        into=plan.into or None,
        partitioner=plan.partitioner,
        ordered_groups=list(plan.ordered_groups),
        unordered_groups=list(plan.unordered_groups),
        warnings=list(plan.warnings),
        refusals=list(plan.refusals),
        executed=executed,
    )


def _row(status: Status) -> RepartitionRow:
    record = status.record
    ends = status.log_ends or (None,) * record.before
    boundaries = record.boundaries or (None,) * record.before
    return RepartitionRow(
        topic=record.topic,
        version=record.version,
        leads=status.leads,
        before=record.before,
        after=record.after - record.first,
        into=record.into or None,
        phase=record.phase.value,
        began_ms=record.began_ms,
        shown_ms=record.shown_ms,
        opened_ms=record.opened_ms,
        raised_ms=record.raised_ms,
        finished_ms=record.finished_ms,
        waits_for=list(status.waits_for),
        error=status.error or None,
        groups=list(record.groups),
        consumers=list(record.consumers),
        given_up=list(status.given_up),
        unordered=list(record.unordered),
        producers=[
            ProducerRow(
                connection=producer.connection, client=producer.client, client_id=producer.client_id
            )
            for producer in status.producers
        ],
        partitions=[
            BoundaryRow(
                partition=partition, boundary=boundaries[partition], log_end=ends[partition]
            )
            for partition in range(record.before)
        ],
        left=[
            LeftRow(
                group=group.group, partition=group.partition, records=group.offsets, keys=group.keys
            )
            for group in status.left
            if group.offsets or group.keys
        ],
        late_records=status.late_records,
        late_partitions=list(status.late_partitions),
        closed_connections=status.closed_connections,
    )
