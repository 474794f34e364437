"""Bodies of requests and responses, to and from messages.

A message is a dict by Kafka's own field names. UUIDs are 16 bytes, records are bytes or None,
unknown tagged fields stay under `_tags`. Records of more than LONG_STEP_BYTES are read as a Stretch
and may be written as LongBytes. Decoding fills every field of any version of the table with its
default, so no lookup fails. Encoding takes defaults for absent fields and leaves out fields that
the version lacks. It raises EncodeError for an unknown name or a value that does not fit: a bug of
ours.

`AcknowledgementBatches` is a list of (first offset, last offset, types as bytes), `AcquiredRecords`
a list of (first offset, last offset, delivery count): columns of tuples, because thousands come
with one share fetch.
"""

from __future__ import annotations

from gateway.core.wire.apis import APIS
from gateway.core.wire.decode import (
    ELEMENTS_MAX,
    REQUEST_ELEMENTS_MAX,
    REQUEST_ROW_ELEMENTS,
    decode,
)
from gateway.core.wire.encode import encode, encode_long
from gateway.core.wire.errors import EncodeError, UnknownApi, WireError
from gateway.core.wire.long_bytes import LongBytes
from gateway.core.wire.schema import Message, Schema


def decode_request(
    key: int, version: int, data: bytes, at: int = 0, row_elements: int = REQUEST_ROW_ELEMENTS
) -> Message:
    """The body that starts at `at` and fills the rest of `data`. Raises WireError."""
    return _decode(_request(key), version, data, at, REQUEST_ELEMENTS_MAX, row_elements)


def decode_response(key: int, version: int, data: bytes, at: int = 0) -> Message:
    """The body that starts at `at` and fills the rest of `data`. Raises WireError."""
    return _decode(_response(key), version, data, at, ELEMENTS_MAX, 1)


def encode_request(key: int, version: int, message: Message) -> bytes:
    """Raises EncodeError; UnknownApi or UnsupportedVersion where we have no table."""
    return _encode(_request(key), version, message)


def encode_response(key: int, version: int, message: Message) -> bytes:
    """Raises EncodeError; UnknownApi or UnsupportedVersion where we have no table."""
    return _encode(_response(key), version, message)


def encode_long_response(key: int, version: int, message: Message) -> bytes | LongBytes:
    """The same without a copy of a long value; the last part is bytes then."""
    schema = _response(key)
    try:
        return encode_long(schema.plan(version), message)
    except EncodeError as error:
        raise _named(schema, version, error) from error


def _request(key: int) -> Schema:
    api = APIS.get(key)
    if api is None:
        raise UnknownApi(f"no table for API key {key}")
    return api.request


def _response(key: int) -> Schema:
    api = APIS.get(key)
    if api is None:
        raise UnknownApi(f"no table for API key {key}")
    return api.response


def _decode(
    schema: Schema, version: int, data: bytes, at: int, elements_max: int, row_elements: int
) -> Message:
    plan = schema.plan(version)
    try:
        return decode(plan, data, at, elements_max, row_elements)
    except WireError as error:
        raise type(error)(f"{schema.name} v{version}: {error}") from None


def _encode(schema: Schema, version: int, message: Message) -> bytes:
    try:
        return encode(schema.plan(version), message)
    except EncodeError as error:
        raise _named(schema, version, error) from error


def _named(schema: Schema, version: int, error: EncodeError) -> EncodeError:
    return EncodeError(f"{schema.name} v{version}: {error}")
