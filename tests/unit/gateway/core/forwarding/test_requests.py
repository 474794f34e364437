"""Where the `acks` of a request are, also in parts; and what may be sent before a login."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

import pytest

from gateway.core.forwarding.api_counts import ApiCounts
from gateway.core.forwarding.connection_state import ConnectionState
from gateway.core.forwarding.effects import Call, Effect, Failed, Fault, Intercepted, Kind, Stop
from gateway.core.forwarding.requests import Requests
from gateway.core.forwarding.served_apis import rules
from gateway.core.limits import (
    FRAME_BYTES_MAX,
    HANDSHAKE_BYTES_MAX,
    HEADER_TAGS_MAX,
    PLAIN_REQUEST_BYTES_MAX,
    SASL_TOKEN_BYTES_MAX,
)
from gateway.core.wire.apis import ApiKey
from tests.rig.wire_frames import request, response, to_client, to_upstream

LOCAL = (ApiKey.SHARE_GROUP_HEARTBEAT, ApiKey.SHARE_FETCH)


def requests() -> tuple[Requests, deque[Call]]:
    calls: deque[Call] = deque()
    return Requests(rules([]), calls, ApiCounts()), calls


def produce(version: int, acks: int, header_tags: bytes = b"\0") -> bytes:
    """By hand: header v2 with these tagged fields, transactional id "tx"."""
    head = b"\0\0" + version.to_bytes(2, "big") + b"\0\0\0\1" + b"\0\2me" + header_tags
    body = b"\3tx" + acks.to_bytes(2, "big", signed=True) + bytes(6)
    return (len(head) + len(body)).to_bytes(4, "big") + head + body


@pytest.mark.parametrize("acks", [0, 1])
@pytest.mark.parametrize(
    "tags",
    [
        b"\0",
        b"\2\1\3abc\5\0",
        b"\1\x80\1\x81\0x",
        bytes([HEADER_TAGS_MAX]) + b"\1\0" * HEADER_TAGS_MAX,
    ],
)
def test_acks_behind_tagged_fields_of_the_header(tags: bytes, acks: int) -> None:
    asked = produce(9, acks, tags)
    for cut in range(1, len(asked)):
        parser, calls = requests()
        effects: list[Effect] = []
        parser.feed(asked[:cut], effects)
        parser.feed(asked[cut:], effects)
        assert to_upstream(effects) == asked
        assert len(calls) == acks


@pytest.mark.parametrize(
    "tags",
    [
        b"\xff\xff\xff\xff\x7f",  # more tagged fields than bytes
        b"\1\1\xff\xff\xff\x7f",  # one that is longer than the frame
        b"\xff\xff\xff\xff\xff\xff",  # a varint without an end
        bytes([HEADER_TAGS_MAX + 1]) + b"\1\0" * (HEADER_TAGS_MAX + 1),
    ],
)
def test_a_head_that_leaves_its_frame_is_refused(tags: bytes) -> None:
    parser, _ = requests()
    with pytest.raises(Stop) as stop:
        parser.feed(produce(9, 1, tags) + bytes(100), [])
    assert stop.value.failed.fault is Fault.HEADER


def test_a_head_without_end_is_refused_before_it_fills_the_memory() -> None:
    parser, _ = requests()
    tags = b"\x01\x01\xff\xff\x7f"  # 2 MB of tagged fields in the header
    asked = (50_000_000).to_bytes(4, "big") + produce(9, 1, tags)[4:]
    for _ in range(68):
        parser.feed(asked, [])
        asked = bytes(1_000)
    with pytest.raises(Stop) as stop:
        parser.feed(bytes(3_000), [])
    assert stop.value.failed.fault is Fault.HEADER


@pytest.mark.parametrize(
    ("key", "version", "kind"),
    [
        (ApiKey.FETCH, 15, Kind.PASS),
        (ApiKey.FETCH, 16, Kind.WALK),
        (ApiKey.PRODUCE, 9, Kind.PASS),
        (ApiKey.PRODUCE, 10, Kind.WALK),
        (ApiKey.METADATA, 0, Kind.REWRITE),
        (ApiKey.LIST_OFFSETS, 11, Kind.PASS),
    ],
)
def test_what_becomes_of_the_response(key: int, version: int, kind: Kind) -> None:
    parser, calls = requests()
    parser.feed(request(key, version, {"Acks": 1} if key == ApiKey.PRODUCE else {}), [])
    assert [call.kind for call in calls] == [kind]


# --------------------------------------------------------------------------- before a login

HEARTBEAT = request(ApiKey.SHARE_GROUP_HEARTBEAT, correlation_id=50)
LONG = request(
    ApiKey.SHARE_GROUP_HEARTBEAT,
    message={"SubscribedTopicNames": ["t" * 30_000] * 3},
    correlation_id=50,
)


def session() -> ConnectionState:
    return ConnectionState(rules(LOCAL), ApiCounts())


def authenticating() -> ConnectionState:
    return ConnectionState(rules(LOCAL, sasl=True), ApiCounts())


def test_a_long_request_before_authentication_is_refused() -> None:
    (failed,) = authenticating().from_client(LONG)
    assert isinstance(failed, Failed)
    assert failed.fault is Fault.UNAUTHENTICATED
    assert authenticating().from_client(HEARTBEAT) == [Intercepted(HEARTBEAT[4:])]
    assert session().from_client(LONG) == [Intercepted(LONG[4:])], "nobody is asked for a password"


@pytest.mark.parametrize("made", [session, authenticating])
@pytest.mark.parametrize(
    ("api", "limit"),
    [
        (ApiKey.API_VERSIONS, HANDSHAKE_BYTES_MAX),
        (ApiKey.SASL_HANDSHAKE, HANDSHAKE_BYTES_MAX),
        (ApiKey.SASL_AUTHENTICATE, SASL_TOKEN_BYTES_MAX),
    ],
)
def test_what_comes_before_a_login_is_short(
    made: Callable[[], ConnectionState], api: ApiKey, limit: int
) -> None:
    """Whatever it holds (a broker reads its tagged fields), it is refused with its head."""
    head = request(api, 1, correlation_id=1)[4:14]
    assert not any(
        isinstance(effect, Failed) for effect in made().from_client(limit.to_bytes(4, "big") + head)
    )
    (failed,) = made().from_client((limit + 1).to_bytes(4, "big") + head)
    assert isinstance(failed, Failed)
    assert failed.fault is Fault.FRAME_SIZE


def test_a_long_request_that_passes_waits_for_authentication() -> None:
    long = request(ApiKey.METADATA, 12, {"Topics": [{"Name": "t" * 30_000}] * 3})
    (failed,) = authenticating().from_client(long)
    assert isinstance(failed, Failed)
    assert failed.fault is Fault.UNAUTHENTICATED
    assert to_upstream(session().from_client(long)) == long


@pytest.mark.parametrize("version", [0, 1, 2])
@pytest.mark.parametrize(("error", "taken"), [(0, True), (58, False), (256, False)])
def test_an_authenticated_client_may_send_long_requests(
    version: int, error: int, *, taken: bool
) -> None:
    """However the bytes of the answer are cut; they pass as they are."""
    asked = request(ApiKey.SASL_AUTHENTICATE, version, correlation_id=1)
    answer = response(
        ApiKey.SASL_AUTHENTICATE, version, {"ErrorCode": error, "AuthBytes": b"x"}, correlation_id=1
    )
    for cut in range(len(answer)):
        state = authenticating()
        state.from_client(asked)
        effects = state.from_upstream(answer[:cut]) + state.from_upstream(answer[cut:])
        assert to_client(effects) == answer
        state.release(0)
        (last,) = state.from_client(LONG)
        assert isinstance(last, Intercepted) is taken, cut


@pytest.mark.parametrize(
    ("key", "limit"),
    [
        (ApiKey.PRODUCE, FRAME_BYTES_MAX),
        (ApiKey.METADATA, PLAIN_REQUEST_BYTES_MAX),
        (ApiKey.OFFSET_COMMIT, PLAIN_REQUEST_BYTES_MAX),
        (ApiKey.CREATE_TOPICS, PLAIN_REQUEST_BYTES_MAX),
    ],
)
def test_only_produce_may_be_as_long_as_a_frame(key: ApiKey, limit: int) -> None:
    """Also where upstream asks nobody to log in: a broker takes a request apart whole."""
    asked = request(key)
    for size, refused in ((limit, False), (limit + 1, True)):
        state = ConnectionState(rules(LOCAL), ApiCounts())
        effects = state.from_client(size.to_bytes(4, "big") + asked[4:])
        failed = [effect.fault for effect in effects if isinstance(effect, Failed)]
        assert failed == ([Fault.FRAME_SIZE] if refused else []), (key, size)
