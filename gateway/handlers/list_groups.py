"""ListGroups (16) v0-5: upstream's groups and the Key-Shared ones in one list, each group once.

Asked of upstream on the client's own connection, so it lists the groups that this client may see,
and without filters: a Key-Shared group that only its committed offsets remember is found there. One
is listed to clients that may describe it, by the virtual broker that is its coordinator (on the
bootstrap port: all of them). Further slots of a broker list nothing, or tools that ask every broker
would have its groups twice. Not implemented: DESCRIBE on the cluster does not show Key-Shared
groups that have not committed an offset yet to a client that may not describe them one by one.
"""

from __future__ import annotations

from gateway.core.cluster.slots import Slots
from gateway.core.share.listing import may_be_ours, merged, share_row
from gateway.core.wire.codec import decode_request, encode_response
from gateway.core.wire.errors import ErrorCode
from gateway.core.wire.schema import Message
from gateway.listen.answering import Client, Request
from gateway.listen.authoriser import Authoriser
from gateway.operations.group_offsets import GroupOffsets
from gateway.upstream.errors import UpstreamError


async def list_groups(
    offsets: GroupOffsets, authoriser: Authoriser, slots: Slots, request: Request
) -> bytes:
    header = request.header
    if slots.is_extra(request.connection.broker_id):
        nothing = {"ErrorCode": 0, "Groups": []}
        return encode_response(header.api_key, header.api_version, nothing)
    body = decode_request(header.api_key, header.api_version, request.frame, header.body_at)
    try:
        answer = await request.connection.ask_upstream(header.api_key, header.api_version, {})
        if answer["ErrorCode"] == 0:
            await _merge(offsets, authoriser, request.connection, body, answer)
    except UpstreamError:
        answer = {"ErrorCode": int(ErrorCode.COORDINATOR_NOT_AVAILABLE), "Groups": []}
    return encode_response(header.api_key, header.api_version, answer)


async def _merge(
    offsets: GroupOffsets,
    authoriser: Authoriser,
    connection: Client,
    body: Message,
    answer: Message,
) -> None:
    shown = {row["GroupId"] for row in answer["Groups"]}
    ours = {}
    await offsets.recognise(row["GroupId"] for row in answer["Groups"] if may_be_ours(row))
    every = offsets.groups.all()
    for group in every:
        if not await _coordinated(offsets, group.name, connection.broker_id):
            continue
        if group.name in shown or await authoriser.may_describe_group(connection, group.name):
            ours[group.name] = share_row(group.name, group.state)
    answer["Groups"] = merged(
        answer["Groups"],
        ours,
        frozenset(group.name for group in every),
        states=body["StatesFilter"],
        types=body["TypesFilter"],
    )


async def _coordinated(offsets: GroupOffsets, group: str, broker_id: int | None) -> bool:
    if broker_id is None:
        return True
    try:
        return await offsets.upstream.coordinator(group) == broker_id
    except UpstreamError:
        return True  # better listed twice than not at all
