"""Node endpoints at the end of a response, made unreadable."""

from __future__ import annotations

from typing import Any

import pytest

from gateway.core.forwarding.node_endpoints import MalformedResponse, neutralised
from gateway.core.wire.codec import decode_response
from tests.unit.gateway.core.forwarding.test_partition_walk import (
    ENDED_BY_TAGS,
    ENDPOINTS,
    payload_of,
)


@pytest.mark.parametrize(("key", "version", "make"), ENDED_BY_TAGS)
def test_neutralised_endpoints_are_an_unknown_tag(key: int, version: int, make: Any) -> None:
    message = make(version)
    tail_at = len(payload_of(key, version, message)) - 1
    payload = payload_of(key, version, {**message, "NodeEndpoints": ENDPOINTS, "_tags": {3: b"x"}})
    result = payload[:tail_at] + neutralised(payload[tail_at:])
    assert len(result) == len(payload)
    assert b"upstream" not in result
    decoded = decode_response(key, version, result, 5)
    assert decoded["NodeEndpoints"] == []
    assert decoded["_tags"][3] == b"x"
    assert not any(decoded["_tags"][127])


def test_no_tags_stay_no_tags() -> None:
    assert neutralised(b"\0") == b"\0"


@pytest.mark.parametrize(
    "tail", [b"", b"\1", b"\1\0\5ab", b"\1\0\2abc", b"\1\x80\0\2ab", b"\xff" * 6]
)
def test_a_malformed_tail_is_refused(tail: bytes) -> None:
    with pytest.raises(MalformedResponse):
        neutralised(tail)
