"""Frames: a four byte size, a header, a body.

Every request header of every API starts with API key, version and correlation id, so those can be
read of a frame that cannot be decoded otherwise. The client id stays a string with a two byte
length also in header version 2, where tagged fields follow it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from librt.strings import (
    BytesWriter,
    read_i16_be,
    read_i32_be,
    write_i16_be,
    write_i32_be,
)

from gateway.core.wire.apis import request_header_version, response_header_version
from gateway.core.wire.decode import STRING_MAX, Reader
from gateway.core.wire.errors import BadLength, EncodeError

SIZE_BYTES: Final = 4  # of the size in front of a frame
_FIXED: Final = 8  # API key, version, correlation id
_CORRELATION_ID_AT: Final = 4
_CLIENT_ID_AT: Final = SIZE_BYTES + _FIXED
SHOWN_ID_BYTES_MAX: Final = 256  # of a client id: as many as a person reads; Kafka takes 32 KB


@dataclass(frozen=True)
class RequestHeader:
    api_key: int
    api_version: int
    correlation_id: int
    client_id: str | None
    body_at: int  # index of the body in the frame


@dataclass(frozen=True)
class ResponseHeader:
    correlation_id: int
    body_at: int  # index of the body in the frame


def parse_request_header(frame: bytes) -> RequestHeader:
    """Reads the header of a request frame without its size. Raises WireError; UnknownApi for a key
    Kafka 4.3.1 has not.

    A client id that is not UTF-8 is read with replacement characters: it names a client in logs,
    and Kafka takes it.
    """
    reader = Reader(frame, 0)
    reader.skip(_FIXED)
    api_key = read_i16_be(frame, 0)
    api_version = read_i16_be(frame, 2)
    header_version = request_header_version(api_key, api_version)
    size = reader.i16()
    if size < -1:
        raise BadLength(f"client id: length {size}")
    client_id: str | None = None
    if size >= 0:
        at = reader.skip(size)
        client_id = frame[at : at + size].decode("utf-8", "replace")
    if header_version == 2:
        _skip_tags(reader)
    return RequestHeader(api_key, api_version, read_i32_be(frame, 4), client_id, reader.at)


def tells_client_id(data: bytes) -> bool:
    """Whether a connection's first bytes, the size of its first request included, go far enough."""
    begin = _CLIENT_ID_AT + 2
    if len(data) < begin:
        return False
    size: int = read_i16_be(data, _CLIENT_ID_AT)  # compiled, an i16 would make all below 16 bits
    return len(data) - begin >= size


def first_client_id(data: bytes) -> str | None:
    """The client id of the request that a connection's first bytes begin with, its size included;
    None if it has none, or if it is cut off. Nothing checks the request.
    """
    if not tells_client_id(data):
        return None
    size: int = read_i16_be(data, _CLIENT_ID_AT)  # as above
    begin = _CLIENT_ID_AT + 2
    if size < 0:
        return None
    return data[begin : begin + min(size, SHOWN_ID_BYTES_MAX)].decode("utf-8", "replace")


def parse_response_header(key: int, version: int, frame: bytes) -> ResponseHeader:
    """Reads the header of a response frame without its size, for this API and version. Raises
    WireError.
    """
    reader = Reader(frame, 0)
    correlation_id = reader.i32()
    if response_header_version(key, version) == 1:
        _skip_tags(reader)
    return ResponseHeader(correlation_id, reader.at)


def renumbered(payload: bytes, correlation_id: int) -> bytes:
    """The frame, with its size, of a request without: as it is but for the correlation id."""
    head, body = payload[:_CORRELATION_ID_AT], payload[_FIXED:]
    size, number = len(payload).to_bytes(SIZE_BYTES, "big"), correlation_id.to_bytes(4, "big")
    return b"".join((size, head, number, body))


def request_frame(
    key: int, version: int, correlation_id: int, client_id: str | None, body: bytes
) -> bytes:
    """The frame with its size. Raises UnknownApi, EncodeError."""
    header = BytesWriter()
    write_i16_be(header, key)
    write_i16_be(header, version)
    write_i32_be(header, correlation_id)
    if client_id is None:
        write_i16_be(header, -1)
    else:
        name = client_id.encode("utf-8")
        if len(name) > STRING_MAX:
            raise EncodeError(f"client id of {len(name)} bytes")
        write_i16_be(header, len(name))
        header.write(name)
    if request_header_version(key, version) == 2:
        header.append(0)
    return _frame(header.getvalue(), body)


def response_frame(key: int, version: int, correlation_id: int, body: bytes) -> bytes:
    """The frame with its size. Raises UnknownApi."""
    return response_head(key, version, correlation_id, len(body)) + body


def response_head(key: int, version: int, correlation_id: int, body_bytes: int) -> bytes:
    """All in front of the body: the frame's size and the header. Raises UnknownApi."""
    head = BytesWriter()
    tagged = response_header_version(key, version) == 1
    write_i32_be(head, body_bytes + (5 if tagged else 4))
    write_i32_be(head, correlation_id)
    if tagged:
        head.append(0)
    return head.getvalue()


def _frame(header: bytes, body: bytes) -> bytes:
    return (len(header) + len(body)).to_bytes(SIZE_BYTES, "big") + header + body


def _skip_tags(reader: Reader) -> None:
    for _ in range(reader.uvarint()):
        reader.uvarint()
        reader.skip(reader.uvarint())
