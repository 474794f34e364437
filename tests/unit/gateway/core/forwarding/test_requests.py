"""Where a request's `acks` are, and when they are not there yet."""

from __future__ import annotations

from collections import deque

import pytest

from gateway.core.forwarding.api_counts import ApiCounts
from gateway.core.forwarding.effects import Call, Effect, Fault, Kind, Stop
from gateway.core.forwarding.requests import Requests
from gateway.core.forwarding.served_apis import rules
from gateway.core.limits import HEADER_TAGS_MAX
from gateway.core.wire.apis import ApiKey
from tests.rig.wire_frames import request, to_upstream


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
        it, calls = requests()
        effects: list[Effect] = []
        it.feed(asked[:cut], effects)
        it.feed(asked[cut:], effects)
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
    it, _ = requests()
    with pytest.raises(Stop) as stop:
        it.feed(produce(9, 1, tags) + bytes(100), [])
    assert stop.value.failed.fault is Fault.HEADER


def test_a_head_without_end_is_refused_before_it_fills_the_memory() -> None:
    it, _ = requests()
    tags = b"\x01\x01\xff\xff\x7f"  # 2 MB of tagged fields in the header
    asked = (50_000_000).to_bytes(4, "big") + produce(9, 1, tags)[4:]
    for _ in range(68):
        it.feed(asked, [])
        asked = bytes(1_000)
    with pytest.raises(Stop) as stop:
        it.feed(bytes(3_000), [])
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
    it, calls = requests()
    it.feed(request(key, version, {"Acks": 1} if key == ApiKey.PRODUCE else {}), [])
    assert [call.kind for call in calls] == [kind]
