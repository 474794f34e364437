"""Groups of another kind under a name: a classic or a consumer group of the upstream with members.

A share member may not join there, as in Kafka, where a name is one group of one kind: both would
read the same records, and the one that commits last would set the other's position. An empty group
of another kind is no hindrance: a Key-Shared group of that name continues from its offsets. If the
upstream does not answer in time, the member may join.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
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

_NO_MEMBERS = ("Dead", "Empty", "")  # Dead: not there; empty: an error came instead


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
        try:
            async with asyncio.timeout(OTHER_GROUP_TYPE_S_MAX):
                return await self._any(group)
        except (UpstreamError, TimeoutError) as error:
            log.info("group_type_not_known", group=group, reason=str(error) or "timeout")
            return False

    async def _any(self, group: str) -> bool:
        classic = {"Groups": [group]}
        consumer = {"GroupIds": [group], "IncludeAuthorizedOperations": False}
        if await self._state(group, ApiKey.DESCRIBE_GROUPS, classic) not in _NO_MEMBERS:
            return True
        try:
            state = await self._state(group, ApiKey.CONSUMER_GROUP_DESCRIBE, consumer)
        except Refused as refused:
            if refused.error_code != ErrorCode.UNSUPPORTED_VERSION:
                raise
            return False  # an upstream from before KIP-848
        return state not in _NO_MEMBERS

    async def _state(self, group: str, api: ApiKey, body: Message) -> str:
        row = await ask_coordinator(
            self.upstream,
            group,
            lambda broker: self._described(api, body, broker),
            lambda row: int(row["ErrorCode"]),
        )
        return str(row["GroupState"]) if row["ErrorCode"] == 0 else ""

    async def _described(self, api: ApiKey, body: Message, broker: int) -> Message:
        answer = await self.upstream.call(api, body, broker_id=broker)
        row: Message = answer["Groups"][0]
        return row
