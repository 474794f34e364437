"""Groups of another kind under a name: a classic group of the upstream with members, a consumer
group, or one of Kafka Streams.

A share member may not join there, as in Kafka, where a name is one group of one kind: both would
read the same records, and the one that commits last would set the other's position. An empty group
of another kind is no hindrance: a Key-Shared group of that name continues from its offsets. If the
upstream does not answer in time, the member may join.

So a name that consumers had goes back to them once the share members have left: upstream still has
their group, empty. A name that was a Key-Shared group's from the start does not (strangers.py).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Protocol

import structlog

from gateway.core.wire.apis import ApiKey
from gateway.core.wire.errors import ErrorCode
from gateway.core.wire.schema import Message
from gateway.members.limits import OTHER_GROUP_TYPE_S_MAX
from gateway.upstream.errors import Refused, UpstreamError
from gateway.upstream.requests import ask_coordinator

log = structlog.get_logger("keyway.groups")

_NO_MEMBERS = ("Dead", "Empty")  # Dead: not there


class UpstreamView(Protocol):
    """gateway.upstream.cluster.Upstream"""

    def coordinator(self, group: str) -> Awaitable[int]: ...
    def forget_coordinator(self, group: str) -> None: ...
    def call(self, api_key: int, body: Message, *, broker_id: int) -> Awaitable[Message]: ...


@dataclass(frozen=True, slots=True)
class OtherGroupTypes:
    upstream: UpstreamView

    async def active(self, group: str) -> bool:
        """Members of another kind of group have this name."""
        return await self._one_is(group, _has_members)

    async def known(self, group: str) -> bool:
        """Members of another kind of group have this name, or had it."""
        return await self._one_is(group, _had_members)

    async def _one_is(self, group: str, wanted: Callable[[Message], bool]) -> bool:
        try:
            async with asyncio.timeout(OTHER_GROUP_TYPE_S_MAX):
                return await self._any(group, wanted)
        except (UpstreamError, TimeoutError) as error:
            log.info("group_type_not_known", group=group, reason=str(error) or "timeout")
            return False

    async def _any(self, group: str, wanted: Callable[[Message], bool]) -> bool:
        if wanted(await self._row(group, ApiKey.DESCRIBE_GROUPS, {"Groups": [group]})):
            return True
        body = {"GroupIds": [group], "IncludeAuthorizedOperations": False}
        for api in (ApiKey.CONSUMER_GROUP_DESCRIBE, ApiKey.STREAMS_GROUP_DESCRIBE):
            try:
                if wanted(await self._row(group, api, body)):
                    return True
            except Refused as refused:
                if refused.error_code != ErrorCode.UNSUPPORTED_VERSION:
                    raise
                # an upstream from before KIP-848, or KIP-1071
        return False

    async def _row(self, group: str, api: ApiKey, body: Message) -> Message:
        return await ask_coordinator(
            self.upstream,
            group,
            lambda broker: self._described(api, body, broker),
            lambda row: int(row["ErrorCode"]),
        )

    async def _described(self, api: ApiKey, body: Message, broker: int) -> Message:
        answer = await self.upstream.call(api, body, broker_id=broker)
        row: Message = answer["Groups"][0]
        return row


def _has_members(row: Message) -> bool:
    return row["ErrorCode"] == 0 and row["GroupState"] not in _NO_MEMBERS


def _had_members(row: Message) -> bool:
    """A classic group that only committed has no protocol type."""
    there = row["ErrorCode"] == 0 and row["GroupState"] != "Dead"
    return there and row.get("ProtocolType") != ""
