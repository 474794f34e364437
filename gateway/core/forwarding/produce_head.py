"""The head of a Produce request: where its `acks` are. A request without a response must not be
waited for.
"""

from __future__ import annotations

from struct import Struct
from typing import Final

from gateway.core.forwarding.effects import Failed, Fault, Side, Stop
from gateway.core.limits import HEAD_BYTES_MAX, HEADER_TAGS_MAX

_PRODUCE: Final = 0
_TRANSACTIONAL_FROM: Final = 3
_FLEXIBLE_FROM: Final = 9

_HEAD = Struct(">ihhi")  # size, api key, version, correlation id
_SHORT = Struct(">h")


def acks_at_of(data: bytes, start: int, end: int, version: int) -> int:
    """Where `acks` of the Produce request at `start` stands, which ends at `end`; -1: not all of it
    is here yet.

    Positions beyond the data go through unread: all later ones are then beyond it, too.
    """
    have = len(data)
    # The client id stays a string with a two-byte length in every header version.
    at = _after_string(data, start + _HEAD.size)
    if version >= _FLEXIBLE_FROM:
        tags, at = _varint(data, at)
        if tags > HEADER_TAGS_MAX:
            raise _bad_produce_header(version)
        while tags and at < have:
            tags -= 1
            _, at = _varint(data, at)
            size, at = _varint(data, at)
            at += size
        size, at = _varint(data, at)
        at += size - 1 if size else 0  # compact: n + 1, 0 is null
    elif version >= _TRANSACTIONAL_FROM:
        at = _after_string(data, at)
    if at + _SHORT.size > end or (at + _SHORT.size > have and have - start > HEAD_BYTES_MAX):
        raise _bad_produce_header(version)
    if at + _SHORT.size > have:
        return -1
    return at


def _after_string(data: bytes, at: int) -> int:
    if at + _SHORT.size > len(data):
        return at + _SHORT.size
    size: int = _SHORT.unpack_from(data, at)[0]
    return at + _SHORT.size + max(size, 0)


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = 0
    shift = 0
    while at < len(data) and shift <= 28:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7
    # Cut off, so at least one more byte is to come; or longer than any varint may be.
    return 0, max(at, len(data)) + 1


def _bad_produce_header(version: int) -> Stop:
    return Stop(Failed(Fault.HEADER, Side.CLIENT, f"api_key={_PRODUCE} version={version}"))
