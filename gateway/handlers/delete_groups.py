"""DeleteGroups (42) v0-2: of any kind; a Key-Shared group goes with its windows, its key filters
and the offsets it committed.

Upstream is asked on the client's own connection, so its ACLs decide (DELETE on the group), and it
deletes the committed offsets. A Key-Shared group with members is refused (NON_EMPTY_GROUP) before
that. Not implemented: nothing undoes upstream's part if Redis fails afterwards; the client is told
COORDINATOR_NOT_AVAILABLE and deletes again.
"""

from __future__ import annotations

from gateway.core.wire.apis import ApiKey
from gateway.core.wire.codec import decode_request, encode_response
from gateway.core.wire.errors import ErrorCode
from gateway.core.wire.schema import Message
from gateway.handlers.coordinating import send_on
from gateway.listen.answering import Client, Request
from gateway.listen.authoriser import Authoriser
from gateway.operations.errors import OperationError
from gateway.operations.group_offsets import GroupOffsets
from gateway.upstream.errors import UpstreamError

_DELETED_UPSTREAM = (ErrorCode.NONE, ErrorCode.GROUP_ID_NOT_FOUND)  # the second: never committed


async def delete_groups(offsets: GroupOffsets, authoriser: Authoriser, request: Request) -> bytes:
    header = request.header
    body = decode_request(header.api_key, header.api_version, request.frame, header.body_at)
    connection, version = request.connection, header.api_version
    errors: dict[str, int] = {}
    others: list[str] = []
    for name in body["GroupsNames"]:
        try:
            # Upstream itself refuses clients that may not even describe it.
            visible = await authoriser.may_describe_group(connection, name)
            if visible and await offsets.find(name) is not None:
                errors[name] = await _delete_ours(offsets, connection, version, name)
            else:
                others.append(name)
        except UpstreamError:
            errors[name] = int(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        except OperationError as error:
            send_on(connection, error)
            errors[name] = int(error.code)
    if others:
        errors |= await _delete_upstream(connection, version, others)
    results = [{"GroupId": name, "ErrorCode": code} for name, code in errors.items()]
    return encode_response(header.api_key, header.api_version, {"Results": results})


async def _delete_ours(offsets: GroupOffsets, connection: Client, version: int, name: str) -> int:
    """Raises OperationError."""
    async with offsets.at_rest(name, lambda _: True):
        error = (await _delete_upstream(connection, version, [name]))[name]
        if error not in _DELETED_UPSTREAM:
            return error
        await offsets.forget_group(name)
    return int(ErrorCode.NONE)


async def _delete_upstream(connection: Client, version: int, names: list[str]) -> dict[str, int]:
    from_upstream: dict[str, int] = dict.fromkeys(names, int(ErrorCode.COORDINATOR_NOT_AVAILABLE))
    body: Message = {"GroupsNames": names}
    try:
        answer = await connection.ask_upstream(ApiKey.DELETE_GROUPS, version, body)
    except UpstreamError:
        return from_upstream
    for row in answer["Results"]:
        from_upstream[row["GroupId"]] = row["ErrorCode"]
    return from_upstream
