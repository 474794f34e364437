"""REST of members: `GET /v1/members?group=`."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Mapping
from typing import NamedTuple

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from dispatcher.core.routing.ring import shared_ring
from gateway.admin.access import unknown_group
from gateway.admin.node_rows import MemberList, MemberRow
from gateway.admin.pages import names_page
from gateway.admin.problems import answered, query
from gateway.core.share.membership import ShareGroup, ShareMember
from gateway.members.groups import Groups
from gateway.windows.table import WindowTable


class _Figures(NamedTuple):
    """The figures of members by id, over all partitions that are in memory."""

    ready_keys: Counter[str]
    in_flight: Counter[str]
    draining_keys: Counter[str]
    silent: Counter[str]  # partitions


def member_routes(groups: Groups, windows: WindowTable) -> list[Route]:
    async def list_members(request: Request) -> Response:
        name = query(request, "group")
        group = groups.get(name)
        if group is None:
            raise unknown_group(name)
        client = request.query_params.get("client_id", "")

        def kept(member_id: str) -> bool:
            member = group.members.get(member_id)
            return member is not None and client in member.client_id

        page, after = await names_page(request, sorted(group.members), kept)
        shares = _shares(group)
        figures = await _figures(windows, name)
        rows = [
            _row(name, member, shares.get(member_id), figures)
            for member_id in page
            if (member := group.members.get(member_id)) is not None
        ]
        return answered(MemberList(group=name, members=rows, next=after))

    return [Route("/v1/members", list_members, methods=["GET"])]


def _shares(group: ShareGroup) -> Mapping[str, float]:
    """Each member's share of the ring that the windows use. Empty if members read different topics:
    then there are several rings.
    """
    if len({member.topics for member in group.members.values()}) != 1:
        return {}
    members = tuple(group.members)
    return dict(zip(members, shared_ring(members).shares(), strict=True))


async def _figures(windows: WindowTable, group: str) -> _Figures:
    figures = _Figures(Counter(), Counter(), Counter(), Counter())
    for window in windows.of_group(group):
        core = window.dispatcher
        if core is not None:
            for member in core.stats().members:  # O(span)
                figures.ready_keys[member.member_id] += member.ready_keys
                figures.in_flight[member.member_id] += member.in_flight
                figures.draining_keys[member.member_id] += member.draining_keys
                figures.silent[member.member_id] += member.silent
        await asyncio.sleep(0)
    return figures


def _row(group: str, member: ShareMember, share: float | None, figures: _Figures) -> MemberRow:
    return MemberRow(
        group=group,
        member_id=member.member_id,
        client_id=member.client_id,
        host=member.client_host,
        epoch=member.epoch,
        topics=list(member.topics),
        share=share,
        ready_keys=figures.ready_keys[member.member_id],
        in_flight=figures.in_flight[member.member_id],
        draining_keys=figures.draining_keys[member.member_id],
        silent_partitions=figures.silent[member.member_id],
        connections=len(member.connections),
        last_heartbeat_ms=member.last_heartbeat_ms,
    )
