"""REST of topics that Key-Shared groups read: `GET /v1/topics`."""

from __future__ import annotations

import asyncio

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from gateway.admin.access import caller_of
from gateway.admin.limits import ROWS_AT_ONCE
from gateway.admin.node_rows import GroupOnTopic, TopicList, TopicRow
from gateway.admin.pages import names_page
from gateway.admin.problems import answered
from gateway.admin.tokens import Caller
from gateway.operations.group_offsets import GroupOffsets
from gateway.operations.lag import Lags

_OnTopic = dict[str, GroupOnTopic]  # by group


def topic_routes(offsets: GroupOffsets, lags: Lags) -> list[Route]:
    async def list_topics(request: Request) -> Response:
        read = await _topics_read(offsets, lags, caller_of(request))
        page, after = await names_page(request, sorted(read), lambda _: True)
        rows = [_row(name, read[name], offsets) for name in page]
        return answered(TopicList(topics=rows, next=after))

    return [Route("/v1/topics", list_topics, methods=["GET"])]


async def _topics_read(offsets: GroupOffsets, lags: Lags, caller: Caller) -> dict[str, _OnTopic]:
    """Topics by name, each with the groups that subscribe to it or have a position in it."""
    read: dict[str, _OnTopic] = {}
    for at, group in enumerate(offsets.groups.all(), 1):
        if caller.sees(group.name):
            for topic in group.topics():
                members = sum(member.subscribes(topic) for member in group.members.values())
                row = GroupOnTopic(group=group.name, members=members, lag=None)
                read.setdefault(topic, {})[group.name] = row
        if at % ROWS_AT_ONCE == 0:
            await asyncio.sleep(0)
    async for lag in lags.walk():
        if caller.sees(lag.group):
            groups = read.setdefault(lag.tp.topic, {})
            row = groups.get(lag.group) or GroupOnTopic(group=lag.group, members=0, lag=None)
            if lag.records is not None:
                row = row.model_copy(update={"lag": lag.records + (row.lag or 0)})
            groups[lag.group] = row
    return read


def _row(name: str, groups: _OnTopic, offsets: GroupOffsets) -> TopicRow:
    topic = offsets.upstream.topology.topics.get(name)
    brokers = offsets.upstream.topology.brokers
    partitions = {} if topic is None else topic.partitions
    lags = [row.lag for row in groups.values() if row.lag is not None]
    return TopicRow(
        topic=name,
        partitions=len(partitions) or None,
        leaderless=sum(info.leader not in brokers for info in partitions.values()),
        groups=[groups[group] for group in sorted(groups)],
        lag=sum(lags) if lags else None,
    )
