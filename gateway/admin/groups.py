"""REST of groups: `GET /v1/groups`, `GET /v1/groups/{group}`.

Keys are shown as a hash: a key may be personal data. `/v1/keys` and `/v1/parked` show them to those
who may see them.
"""

from __future__ import annotations

import asyncio

from pydantic import BaseModel
from starlette.convertors import Convertor, register_url_convertor
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from dispatcher.core.reports.stats import FullSpan, WindowStats
from gateway.admin.access import caller_of, unknown_group
from gateway.admin.keys import hash_text
from gateway.admin.limits import ROWS_AT_ONCE
from gateway.admin.pages import names_page
from gateway.admin.problems import answered
from gateway.admin.rows import (
    DrainingKeyRow,
    FullSpanRow,
    GroupList,
    GroupSummary,
    HeldRow,
    LateConsumer,
    MemberFigures,
    MembershipRow,
    ParkedOffset,
    PartitionRow,
    PoisonPolicies,
    SpanLimit,
)
from gateway.config.groups import GroupSection
from gateway.core.cluster.topology import TopicPartition
from gateway.core.share.membership import ShareGroup
from gateway.members.groups import Groups
from gateway.operations.lag import Lag, Lags
from gateway.operations.lag_sums import GroupLag
from gateway.windows.table import WindowTable
from gateway.windows.window import Window
from gateway.windows.window_keys import window_key


class AnyName(Convertor[str]):
    """The rest of a path, whatever characters it has. Starlette's own `path` ends at a newline."""

    regex = "(?s:.+)"

    def convert(self, value: str) -> str:
        return value

    def to_string(self, value: str) -> str:
        return value


register_url_convertor("name", AnyName())


class GroupHead(GroupSummary):
    """A GroupDescription without its partitions, which are written one by one."""

    epoch: int
    policies: PoisonPolicies | None
    memberships: list[MembershipRow]


def group_routes(groups: Groups, windows: WindowTable, lags: Lags) -> list[Route]:
    async def list_groups(request: Request) -> Response:
        caller, state = caller_of(request), request.query_params.get("state")

        def kept(name: str) -> bool:
            group = groups.get(name)  # None: deleted meanwhile
            return group is not None and state in (None, group.state) and caller.sees(name)

        names, after = await names_page(request, groups.names(), kept)
        known = await lags.by_group(names=names)
        rows = []
        for at, name in enumerate(names, 1):
            group = groups.get(name)
            if group is not None:
                rows.append(_summary(group, windows, known.get(name, GroupLag())))
            if at % ROWS_AT_ONCE == 0:
                await asyncio.sleep(0)
        return answered(GroupList(groups=rows, next=after))

    async def describe_group(request: Request) -> Response:
        name = request.path_params["group"]
        group = groups.get(name)
        if group is None:
            raise unknown_group(name)
        await lags.refresh_group(name)
        if groups.get(name) is not group:
            raise unknown_group(name)
        text = await _description(group, windows, list(lags.of_group(name)))
        return Response(text, media_type="application/json")

    return [
        Route("/v1/groups", list_groups, methods=["GET"]),
        Route("/v1/groups/{group:name}", describe_group, methods=["GET"]),
    ]


def _together(lags: list[Lag]) -> GroupLag:
    """Adds up the lags of one group's partitions."""
    together = GroupLag()
    for lag in lags:
        together.add(lag)
    return together


def _summary(group: ShareGroup, windows: WindowTable, lag: GroupLag) -> GroupSummary:
    return GroupSummary(
        group=group.name,
        state=group.state,
        members=len(group.members),
        topics=group.topics(),
        windows=windows.count_of(group.name),
        lag=lag.records,
        lag_seconds=lag.seconds,
        parked=windows.parked.of_group(group.name, windows.of_group(group.name)),
    )


async def _description(group: ShareGroup, windows: WindowTable, lags: list[Lag]) -> bytes:
    """A GroupDescription as JSON, made a window at a time: each takes a millisecond or two, and
    requests about a group of many must not hold up the others.
    """
    lag_of = {lag.tp: lag for lag in lags}
    partitions: dict[TopicPartition, bytes] = {}
    for window in windows.of_group(group.name):
        row = _window(window, group)
        row = row.model_copy(update={"parked_records": windows.parked.of(window.key, window)})
        lag = lag_of.pop(window.partition, None)
        if lag is not None:
            figures = {
                "log_end": lag.end_seen(row.read_position),
                "lag": lag.records,
                "lag_seconds": lag.seconds,
                **HeldRow.fields(lag.held),
            }
            row = row.model_copy(update=figures)
        partitions[window.partition] = _json(row)
        await asyncio.sleep(0)
    for tp, lag in lag_of.items():
        # Nobody reads there, so the window is not in memory.
        idle = PartitionRow(
            topic=tp.topic,
            partition=tp.partition,
            state="idle",
            cursor=lag.cursor,
            log_end=lag.log_end,
            lag=lag.records,
            lag_seconds=lag.seconds,
            parked_records=windows.parked.of(window_key(group.name, tp), None),
        )
        partitions[tp] = _json(idle.model_copy(update=HeldRow.fields(lag.held)))
    rows = b",".join([partitions[tp] for tp in sorted(partitions)])
    head = GroupHead(
        **dict(_summary(group, windows, _together(lags))),
        epoch=group.epoch,
        policies=_policies(windows.dependencies.settings.of(group.name)),
        memberships=[
            MembershipRow(
                member_id=member.member_id,
                client_id=member.client_id,
                host=member.client_host,
                epoch=member.epoch,
                topics=list(member.topics),
            )
            for member in group.members.values()
        ],
    )
    return b'%b,"partitions":[%b]}' % (_json(head).removesuffix(b"}"), rows)


def _policies(section: GroupSection) -> PoisonPolicies | None:
    if not section.reliable:
        return None
    return PoisonPolicies(rejected=section.rejected, exhausted=section.exhausted)


def _json(row: BaseModel) -> bytes:
    return row.model_dump_json(exclude_unset=True).encode()


def _window(window: Window, group: ShareGroup) -> PartitionRow:
    place, core = window.partition, window.dispatcher
    if core is None:
        return PartitionRow(
            topic=place.topic,
            partition=place.partition,
            state="loading",
            trouble=window.trouble or None,
        )
    stats = core.stats()
    unreadable = window.unreadable
    return PartitionRow(
        topic=place.topic,
        partition=place.partition,
        state="up",
        trouble=window.trouble or None,
        cursor=core.cursor,
        read_position=core.read_position,
        unsettled=stats.unsettled,
        keys=stats.keys,
        in_flight=stats.in_flight,
        backing_off=stats.backing_off,
        dead_lettering=stats.dead_lettering,
        dropped=stats.dropped,
        parked=_parked(stats),
        members=_members(stats),
        draining=_draining(stats),
        draining_cleared=stats.draining_cleared,
        last_sent_position=stats.last_sent,
        individually_sent_positions=[(first, last) for first, last in stats.individually_sent],
        span_max=stats.span_max,
        aside=stats.aside,
        held_max=stats.held_max,
        full_span=None if stats.full_span is None else _full_span(stats.full_span, stats.held_max),
        consumers_after_mark_delete_position=_joined_behind(stats, group),
        dead_letter_trouble=window.dead_letter_trouble if stats.dead_lettering > 0 else None,
        read_trouble=None if unreadable is None else unreadable.reason,
    )


def _parked(stats: WindowStats) -> list[ParkedOffset]:
    return [
        ParkedOffset(
            offset=record.offset,
            key_hash=hash_text(record.key),
            deliveries=record.deliveries,
            reason=record.reason.value,
            member_id=record.member_id,
            since_ms=record.since_ms,
            behind=record.behind,
        )
        for record in stats.parked
    ]


def _members(stats: WindowStats) -> list[MemberFigures]:
    return [
        MemberFigures(
            member_id=member.member_id,
            ready_keys=member.ready_keys,
            in_flight=member.in_flight,
            draining_keys=member.draining_keys,
            draining_in_flight=member.draining_in_flight,
            draining_blocked=member.draining_blocked,
            draining_attempts=member.draining_attempts,
            draining_cleared=member.draining_cleared,
            last_sent_position_when_joining=member.last_sent_when_joining,
            dropped=member.dropped,
            silent=member.silent,
        )
        for member in stats.members
    ]


def _draining(stats: WindowStats) -> list[DrainingKeyRow]:
    return [
        DrainingKeyRow(
            key_hash=hash_text(key.key),
            member_id=key.member_id,
            in_flight=key.in_flight,
            blocked=key.blocked,
            attempts=key.attempts,
        )
        for key in stats.draining
    ]


def _joined_behind(stats: WindowStats, group: ShareGroup) -> list[LateConsumer]:
    """The members that wait, under `join_policy: last_sent`, for the records that were in flight
    when they joined.
    """
    rows: list[LateConsumer] = []
    for member in stats.members:
        known = group.members.get(member.member_id)
        position = member.last_sent_when_joining
        if known is not None and position is not None and position >= stats.cursor:
            late = LateConsumer(
                name=known.client_id,
                id=known.member_id,
                address=known.client_host,
                last_sent_position_when_joining=position,
            )
            rows.append(late)
    return rows


def _full_span(full: FullSpan, held_max: int) -> FullSpanRow:
    limit: SpanLimit = "window_records"
    if full.by_span:
        limit = "held_max" if held_max and full.by_aside else "span_max"
    return FullSpanRow(
        limit=limit,
        offset=full.offset,
        key_hash=hash_text(full.key),
        records=full.records,
        member_id=full.member_id,
    )
