from __future__ import annotations

import pytest

from gateway.core.wire.apis import ApiKey, request_header_version, response_header_version
from gateway.core.wire.errors import BadLength, EncodeError, Truncated, UnknownApi
from gateway.core.wire.frames import (
    SIZE_BYTES,
    RequestHeader,
    ResponseHeader,
    first_client_id,
    parse_request_header,
    parse_response_header,
    request_frame,
    response_frame,
    tells_client_id,
)


def _unsized(frame: bytes) -> bytes:
    assert int.from_bytes(frame[:SIZE_BYTES], "big") == len(frame) - SIZE_BYTES
    return frame[SIZE_BYTES:]


def test_a_request_header_of_version_1_ends_with_the_client_id() -> None:
    frame = _unsized(request_frame(ApiKey.FETCH, 11, 7, "me", b"body"))
    assert frame == b"\x00\x01\x00\x0b\x00\x00\x00\x07\x00\x02mebody"
    assert parse_request_header(frame) == RequestHeader(1, 11, 7, "me", 12)


def test_in_version_2_the_client_id_stays_a_plain_string_and_tags_follow() -> None:
    frame = _unsized(request_frame(ApiKey.FETCH, 12, 7, "me", b"body"))
    assert frame == b"\x00\x01\x00\x0c\x00\x00\x00\x07\x00\x02me\x00body"
    tagged = frame[:12] + b"\x02\x00\x01a\x81\x01\x02bc" + b"body"
    header = parse_request_header(tagged)
    assert tagged[header.body_at :] == b"body"


def test_no_client_id_is_not_an_empty_one() -> None:
    for client_id in (None, ""):
        frame = _unsized(request_frame(ApiKey.SHARE_FETCH, 1, -1, client_id, b""))
        header = parse_request_header(frame)
        assert header.client_id == client_id
        assert header.correlation_id == -1
        assert header.body_at == len(frame)


def test_a_client_id_that_is_not_utf8_is_read_all_the_same() -> None:
    header = parse_request_header(b"\x00\x01\x00\x0b\x00\x00\x00\x07\x00\x02a\xff")
    assert header.client_id == "a\ufffd"


def test_versions_newer_than_we_know_have_flexible_headers() -> None:
    frame = b"\x00\x12\x00\x63\x00\x00\x00\x07\x00\x01c\x00rest"
    assert parse_request_header(frame) == RequestHeader(18, 99, 7, "c", 12)


def test_broken_request_headers() -> None:
    whole = _unsized(request_frame(ApiKey.FETCH, 12, 7, "me", b""))
    for size in range(len(whole)):
        with pytest.raises(Truncated):
            parse_request_header(whole[:size])
    with pytest.raises(BadLength):
        parse_request_header(whole[:8] + b"\xff\xfe\x00")
    with pytest.raises(UnknownApi, match="5635"):
        parse_request_header(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03")  # a TLS hello
    with pytest.raises(UnknownApi):
        parse_request_header(b"GET / HTTP/1.1\r\n")


def test_response_headers_have_tags_where_the_request_is_flexible() -> None:
    old = _unsized(response_frame(ApiKey.FETCH, 11, 7, b"body"))
    new = _unsized(response_frame(ApiKey.FETCH, 12, 7, b"body"))
    assert old == b"\x00\x00\x00\x07body"
    assert new == b"\x00\x00\x00\x07\x00body"
    assert parse_response_header(ApiKey.FETCH, 11, old) == ResponseHeader(7, 4)
    assert parse_response_header(ApiKey.FETCH, 12, new) == ResponseHeader(7, 5)
    tagged = b"\x00\x00\x00\x07\x01\x05\x01abody"
    assert parse_response_header(ApiKey.FETCH, 12, tagged) == ResponseHeader(7, 8)
    for size in range(5):
        with pytest.raises(Truncated):
            parse_response_header(ApiKey.FETCH, 12, new[:size])


def test_the_answer_to_api_versions_never_has_tags_in_its_header() -> None:
    for version in range(6):
        assert response_header_version(ApiKey.API_VERSIONS, version) == 0
        frame = response_frame(ApiKey.API_VERSIONS, version, 7, b"body")
        assert _unsized(frame) == b"\x00\x00\x00\x07body"


def test_apis_without_a_table_have_headers_too() -> None:
    assert request_header_version(ApiKey.END_TXN, 2) == 1
    assert request_header_version(ApiKey.END_TXN, 3) == 2
    assert request_header_version(ApiKey.SASL_HANDSHAKE, 1) == 1
    assert response_header_version(ApiKey.OFFSET_DELETE, 0) == 0
    for key in (ApiKey.CONTROLLED_SHUTDOWN, -1, 93):
        with pytest.raises(UnknownApi):
            request_header_version(key, 0)


def test_a_client_id_too_long_to_write_is_a_bug() -> None:
    with pytest.raises(EncodeError):
        request_frame(ApiKey.FETCH, 12, 7, "x" * 32_768, b"")


def test_the_client_id_of_the_first_bytes_of_a_connection() -> None:
    frame = request_frame(ApiKey.METADATA, 9, 1, "orders-1", b"body")
    assert first_client_id(frame) == "orders-1"
    assert first_client_id(frame + frame) == "orders-1"
    assert first_client_id(request_frame(ApiKey.METADATA, 9, 1, None, b"")) is None
    assert [first_client_id(frame[:size]) for size in range(22)] == [None] * 22, "cut off"
    assert [tells_client_id(frame[:size]) for size in range(24)] == [False] * 22 + [True] * 2
    assert tells_client_id(request_frame(ApiKey.METADATA, 9, 1, None, b"")[:14])
    assert first_client_id(b"\x16\x03\x01" + bytes(20)) == "", "TLS: refused soon after"
    shown = first_client_id(request_frame(ApiKey.METADATA, 9, 1, "x" * 30_000, b""))
    assert shown == "x" * 256
    long = request_frame(ApiKey.PRODUCE, 9, 1, "orders-1", bytes(40_000))
    assert first_client_id(long) == "orders-1", "a first read of more than 16 bits can count"
    odd = request_frame(ApiKey.METADATA, 9, 1, "??", b"").replace(b"??", b"\xff\xfe")
    assert first_client_id(odd) == "\ufffd\ufffd"
