"""Node endpoints at the end of a Fetch (v16-18) or Produce (v10-13) response, made unreadable.

They are tag 0 of the tagged fields that end the body (KIP-951); partition_walk.py finds those.
"""

from __future__ import annotations

from typing import Final

_VARINT_SHIFT_MAX: Final = 28
_NODE_ENDPOINTS_TAG: Final = 0
# No Kafka response defines it: a reader keeps or skips it as an unknown tagged field.
_NEUTRAL_TAG: Final = 127


class MalformedResponse(Exception):
    """The upstream sent bytes that are no response of this API and version."""


def neutralised(tail: bytes) -> bytes:
    """The tagged fields `tail` at the same length, without node endpoints.

    A client that gets a new leader id and no endpoint for it asks for metadata: the two never
    disagree. Raises MalformedResponse.
    """
    result = bytearray(tail)
    count, at = _read_varint(tail, 0)
    for _ in range(count):
        tag_at = at
        tag, at = _read_varint(tail, at)
        size, at = _read_varint(tail, at)
        if size > len(tail) - at:
            raise MalformedResponse("tagged field beyond the end of the frame")
        if tag == _NODE_ENDPOINTS_TAG:
            if tail[tag_at]:
                raise MalformedResponse("tag 0 in more than one byte")
            result[tag_at] = _NEUTRAL_TAG
            result[at : at + size] = bytes(size)
        at += size
    if at != len(tail):
        raise MalformedResponse("bytes after the last tagged field")
    return bytes(result)


def _read_varint(data: bytes, at: int) -> tuple[int, int]:
    value = 0
    shift = 0
    while at < len(data) and shift <= _VARINT_SHIFT_MAX:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7
    raise MalformedResponse("varint cut off or of more than 5 bytes")
