"""The plain groups whose members subscribe to a topic, also if nothing is committed in it."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Sequence
from dataclasses import dataclass

import structlog

from gateway.core.repartition.subscriptions import classic_topics, consumer_topics
from gateway.core.wire.apis import ApiKey
from gateway.core.wire.schema import Message
from gateway.repartition.limits import GROUPS_ASKED_AT_ONCE
from gateway.upstream.cluster import Upstream
from gateway.upstream.requests import ask_coordinator

log = structlog.get_logger("keyway.repartition")

_WITHOUT_MEMBERS = ("empty", "dead")


@dataclass(frozen=True, slots=True)
class Subscribers:
    names: tuple[str, ...]
    rebalancing: tuple[str, ...]  # groups of which nobody can tell now


async def subscribers_of(
    upstream: Upstream, groups: Sequence[Message], topics: Collection[str]
) -> Subscribers:
    """`groups`: rows of ListGroups. Raises UpstreamError."""
    asked = [row for row in groups if row["GroupState"].lower() not in _WITHOUT_MEMBERS]
    names, rebalancing = [], []
    for at in range(0, len(asked), GROUPS_ASKED_AT_ONCE):
        portion = asked[at : at + GROUPS_ASKED_AT_ONCE]
        found = await asyncio.gather(*(_topics_of(upstream, row) for row in portion))
        for row, subscribed in zip(portion, found, strict=True):
            if subscribed is None:
                rebalancing.append(row["GroupId"])
            elif not subscribed.isdisjoint(topics):
                names.append(row["GroupId"])
    return Subscribers(tuple(sorted(names)), tuple(sorted(rebalancing)))


async def _topics_of(upstream: Upstream, listed: Message) -> frozenset[str] | None:
    group = listed["GroupId"]
    if listed["GroupType"].lower() == "consumer":
        api = ApiKey.CONSUMER_GROUP_DESCRIBE
        body: Message = {"GroupIds": [group], "IncludeAuthorizedOperations": False}
    elif listed["ProtocolType"] == "consumer":
        api, body = ApiKey.DESCRIBE_GROUPS, {"Groups": [group]}
    else:
        return frozenset()

    async def ask(broker: int) -> Message:
        answer = await upstream.call(api, body, broker_id=broker)
        row: Message = answer["Groups"][0]
        return row

    row = await ask_coordinator(upstream, group, ask, lambda row: int(row["ErrorCode"]))
    if row["ErrorCode"] != 0:  # It is gone, or has topics that the node may not see.
        log.info("group_not_described", group=group, error=row["ErrorCode"])
        return frozenset()
    return classic_topics(row) if api == ApiKey.DESCRIBE_GROUPS else consumer_topics(row)
