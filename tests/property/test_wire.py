"""The codec under surprise: any message comes back, any garbage is refused as garbage."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.core.wire.apis import APIS, Api
from gateway.core.wire.decode import decode
from gateway.core.wire.encode import encode
from gateway.core.wire.errors import WireError
from gateway.core.wire.frames import (
    SIZE_BYTES,
    parse_request_header,
    parse_response_header,
    request_frame,
    response_frame,
)
from gateway.core.wire.schema import Message, Schema
from tests.rig.wire_values import Values

SCHEMAS = [schema for api in APIS.values() for schema in (api.request, api.response)]


@st.composite
def versioned(draw: st.DrawFn) -> tuple[Schema, int]:
    schema = draw(st.sampled_from(SCHEMAS))
    version = draw(st.integers(schema.versions.first, schema.versions.last))
    return schema, version


@st.composite
def encoded(draw: st.DrawFn) -> tuple[Schema, int, Message, bytes]:
    schema, version = draw(versioned())
    message = Values(draw(st.integers(0, 2**32))).message(schema, version)
    return schema, version, message, encode(schema.plan(version), message)


@settings(max_examples=300)
@given(encoded())
def test_what_was_put_in_comes_out(case: tuple[Schema, int, Message, bytes]) -> None:
    schema, version, message, data = case
    decoded = decode(schema.plan(version), data, 0)
    assert {name: decoded[name] for name in message} == _with_defaults(message, decoded)
    assert encode(schema.plan(version), decoded) == data


def _with_defaults(message: Message, decoded: Message) -> Message:
    """Decoded structs say their defaults; ours leave out tagged fields."""
    return {name: _filled(value, decoded[name]) for name, value in message.items()}


def _filled(value: object, decoded: object) -> object:
    if isinstance(value, dict) and isinstance(decoded, dict):
        return {name: _filled(value.get(name, each), each) for name, each in decoded.items()}
    if isinstance(value, list) and isinstance(decoded, list) and len(value) == len(decoded):
        return [_filled(one, other) for one, other in zip(value, decoded, strict=True)]
    return value


@settings(max_examples=600)
@given(versioned(), st.binary(max_size=200))
def test_garbage_is_refused_or_a_message(case: tuple[Schema, int], data: bytes) -> None:
    _refused_or_stable(*case, data)


@settings(max_examples=600)
@given(encoded(), st.data())
def test_damaged_messages_are_refused_or_messages(
    case: tuple[Schema, int, Message, bytes], data: st.DataObject
) -> None:
    schema, version, _, whole = case
    damaged = bytearray(whole)
    for _ in range(data.draw(st.integers(1, 3))):
        if not damaged:
            break
        at = data.draw(st.integers(0, len(damaged) - 1))
        match data.draw(st.sampled_from(["set", "cut", "insert"])):
            case "set":
                damaged[at] = data.draw(st.sampled_from([0, 1, 0x7F, 0x80, 0xFF]))
            case "cut":
                del damaged[at : at + data.draw(st.integers(1, 9))]
            case _:
                damaged[at:at] = data.draw(st.binary(min_size=1, max_size=5))
    _refused_or_stable(schema, version, bytes(damaged))


def _refused_or_stable(schema: Schema, version: int, data: bytes) -> None:
    plan = schema.plan(version)
    try:
        message = decode(plan, data, 0)
    except WireError:
        return
    canonical = encode(plan, message)
    again = decode(plan, canonical, 0)
    assert again == message
    assert encode(plan, again) == canonical


@pytest.mark.parametrize("api", APIS.values(), ids=lambda api: str(api.name))
def test_every_cut_of_a_message_is_refused(api: Api) -> None:
    for schema in (api.request, api.response):
        version = schema.versions.last
        plan = schema.plan(version)
        data = encode(plan, Values(1, plain=True).message(schema, version))[:400]
        for size in range(len(data)):
            with pytest.raises(WireError):
                decode(plan, data[:size], 0)


@given(st.binary(max_size=100))
def test_headers_of_garbage_are_refused_or_headers(frame: bytes) -> None:
    try:
        header = parse_request_header(frame)
    except WireError:
        return
    assert 8 < header.body_at <= len(frame)


@given(
    st.sampled_from(list(APIS.values())),
    st.integers(-(2**31), 2**31 - 1),
    st.none() | st.text(max_size=50),
    st.binary(max_size=30),
    st.data(),
)
def test_frames_come_back(
    api: Api, correlation_id: int, client_id: str | None, body: bytes, data: st.DataObject
) -> None:
    version = data.draw(st.integers(api.min_version, api.max_version))
    frame = request_frame(api.key, version, correlation_id, client_id, body)[SIZE_BYTES:]
    header = parse_request_header(frame)
    assert (header.api_key, header.api_version) == (api.key, version)
    assert (header.correlation_id, header.client_id) == (correlation_id, client_id)
    assert frame[header.body_at :] == body
    answer = response_frame(api.key, version, correlation_id, body)[SIZE_BYTES:]
    said = parse_response_header(api.key, version, answer)
    assert said.correlation_id == correlation_id
    assert answer[said.body_at :] == body
