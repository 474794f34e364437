"""JoinGroup (11) v0-9, ConsumerGroupHeartbeat (68) v0-1, StreamsGroupHeartbeat (88) v0,
OffsetCommit (8) v2-10, TxnOffsetCommit (28) v0-5 and OffsetDelete (47) v0 for the name of a
Key-Shared group: refused as by Kafka for a share group, so that one name is one group of one kind,
and nobody else moves its position.

All other names pass, and so does what a client without the right sends: upstream refuses that as
for any name, so nobody learns which groups there are. While a group has no members, two things
pass: positions that follow from another cluster; and all requests if the name is that of a group of
consumers as well: they had it before, or came at a broker, past the gateway. Then the name is
theirs again, and the Key-Shared group is no more (operations/giving_back.py).

Not implemented: SyncGroup, Heartbeat and LeaveGroup, which upstream refuses to who is no member.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from gateway.core.cluster.acl import DELETE
from gateway.core.forwarding.effects import Client as ClientName
from gateway.core.forwarding.effects import MayRead
from gateway.core.share.strangers import (
    GUARDED,
    group_named,
    is_strangers,
    refusal,
    sets_position,
)
from gateway.core.wire.apis import ApiKey
from gateway.core.wire.codec import decode_request, encode_response
from gateway.core.wire.errors import ErrorCode, error_name
from gateway.core.wire.schema import Message
from gateway.group_log import GroupLog
from gateway.handlers.coordinating import send_on
from gateway.handlers.limits import CLIENT_ID_CHARS_LOGGED
from gateway.listen.answering import Request
from gateway.listen.authoriser import Authoriser
from gateway.members.groups import Groups
from gateway.operations.errors import GroupInUse, NotCoordinated, StateUnavailable


@dataclass(frozen=True, slots=True)
class Strangers:
    groups: Groups
    authoriser: Authoriser
    consumers_have: Callable[[str], Awaitable[bool]]  # the name of a group, or had it
    give_back: Callable[[str], Awaitable[None]]  # such a name; raises OperationError
    log: GroupLog

    @property
    def apis(self) -> frozenset[int]:
        return GUARDED

    def stops(
        self,
        _client: ClientName,
        _may_read: MayRead,
        _api_key: int,
        _version: int,
        payload: bytes,
    ) -> bool:
        """Also what passes in the end, if it names a Key-Shared group that this node knows: all of
        the company that are in Redis.
        """
        group = group_named(payload)
        return group is not None and self.groups.get(group) is not None

    async def answer(self, request: Request) -> bytes:
        header = request.header
        key, version = header.api_key, header.api_version
        body = decode_request(key, version, request.frame, header.body_at)
        later: ErrorCode | None = None
        try:
            if await self._passes(request, body):
                return await request.connection.pass_on(request.frame)
        except (StateUnavailable, NotCoordinated) as error:
            send_on(request.connection, error)
            later = error.code
        answer = encode_response(key, version, refused := refusal(key, body, later))
        self._tell(request, body["GroupId"], refused)
        return answer

    async def _passes(self, request: Request, body: Message) -> bool:
        """Raises StateUnavailable, NotCoordinated."""
        name, key = body["GroupId"], request.header.api_key
        if not is_strangers(key, body) or not await self._has_right(request, name):
            return True
        group = self.groups.get(name)
        if group is None or group.members:
            return group is None
        if sets_position(key, body):
            return True
        if not await self.consumers_have(name):
            return False
        try:
            await self.give_back(name)
        except GroupInUse:
            return False  # share members have come meanwhile
        return True

    async def _has_right(self, request: Request, group: str) -> bool:
        """A denial is never taken from memory: upstream may have forgotten it, too."""
        if request.header.api_key == ApiKey.OFFSET_DELETE:
            operations = await self.authoriser.group_operations(
                request.connection, group, wanted=DELETE
            )
            return bool(operations & 1 << DELETE)
        return await self.authoriser.may_read_group(
            request.connection, group, denial_remembered=False
        )

    def _tell(self, request: Request, group: str, refused: Message) -> None:
        header = request.header
        code = _code_of(refused)
        request.connection.counters.count_request_refused(header.api_key, code)
        self.log.note(
            group,
            "stranger_refused",
            api=ApiKey(header.api_key).name,
            client_id=(header.client_id or "")[:CLIENT_ID_CHARS_LOGGED],
            error=error_name(code),
        )


def _code_of(refused: Message) -> int:
    if "ErrorCode" in refused:
        return int(refused["ErrorCode"])
    return next(
        (int(entry["ErrorCode"]) for topic in refused["Topics"] for entry in topic["Partitions"]), 0
    )
