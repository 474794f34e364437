"""The walk to the last tagged fields of Fetch and Produce responses, against the codec."""

from __future__ import annotations

from typing import Any

import pytest

from gateway.core.forwarding.node_endpoints import MalformedResponse, TailWalk, neutralised
from gateway.core.wire.apis import APIS, ApiKey
from gateway.core.wire.codec import decode_response, encode_response
from gateway.core.wire.frames import response_frame

ENDPOINTS = [
    {"NodeId": 1, "Host": "upstream-1.internal", "Port": 9092, "Rack": None},
    {"NodeId": 2, "Host": "upstream-2.internal", "Port": 9093, "Rack": "b"},
]


def fetch(_version: int) -> dict[str, Any]:
    partition = {
        "PartitionIndex": 3,
        "HighWatermark": 900,
        "CurrentLeader": {"LeaderId": 2, "LeaderEpoch": 7},
        "AbortedTransactions": [{"ProducerId": 5, "FirstOffset": 6, "_tags": {9: b"xyz"}}] * 2,
        "Records": bytes(range(256)) * 3,
        "_tags": {77: b"unknown"},
    }
    empty = {"PartitionIndex": 4, "AbortedTransactions": None, "Records": None}
    topic = {"TopicId": b"t" * 16, "Partitions": [partition, empty], "_tags": {5: b""}}
    return {"SessionId": 1, "Responses": [topic, {"TopicId": b"u" * 16, "Partitions": []}]}


def produce(version: int) -> dict[str, Any]:
    partition = {
        "Index": 1,
        "ErrorCode": 6,
        "RecordErrors": [
            {"BatchIndex": 1, "BatchIndexErrorMessage": "bad", "_tags": {1: b"1"}},
            {"BatchIndex": 2, "BatchIndexErrorMessage": None},
        ],
        "ErrorMessage": "moved",
        "CurrentLeader": {"LeaderId": 2, "LeaderEpoch": 7},
    }
    fine = {"Index": 2, "ErrorMessage": None}
    name = {"Name": "topic"} if version < 13 else {"TopicId": b"t" * 16}
    return {"Responses": [{**name, "PartitionResponses": [partition, fine]}], "ThrottleTimeMs": 9}


CASES = [(ApiKey.FETCH, version, fetch) for version in range(16, 19)] + [
    (ApiKey.PRODUCE, version, produce) for version in range(10, 14)
]


def walk_of(key: int, version: int) -> TailWalk:
    return TailWalk(fetch=key == ApiKey.FETCH, topic_ids=key == ApiKey.FETCH or version >= 13)


def payload_of(key: int, version: int, message: dict[str, Any]) -> bytes:
    return response_frame(key, version, 1, encode_response(key, version, message))[4:]


def test_the_cases_are_all_versions_there_are() -> None:
    assert APIS[ApiKey.FETCH].max_version == 18
    assert APIS[ApiKey.PRODUCE].max_version == 13


@pytest.mark.parametrize(("key", "version", "make"), CASES)
@pytest.mark.parametrize("chunk", [1, 7, 100_000])
def test_finds_the_tail_however_it_is_cut(key: int, version: int, make: Any, chunk: int) -> None:
    message = make(version)
    expected = len(payload_of(key, version, message)) - 1
    payload = payload_of(key, version, {**message, "NodeEndpoints": ENDPOINTS})
    walk = walk_of(key, version)
    for start in range(0, len(payload), chunk):
        at = walk.feed(payload, start, min(start + chunk, len(payload)))
        if at >= 0:
            break
    assert at == expected or (at == start + chunk == expected)
    assert payload[expected] == 1  # one tagged field


@pytest.mark.parametrize(("key", "version", "make"), CASES)
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


def test_an_endless_varint_is_refused() -> None:
    with pytest.raises(MalformedResponse):
        walk_of(ApiKey.FETCH, 17).feed(b"\0\0\0\1" + b"\xff" * 9, 0, 13)


def test_a_million_elements_that_are_not_there_cost_nothing() -> None:
    payload = b"\0\0\0\1\0" + bytes(10) + b"\xff\xff\xff\x7f"
    assert walk_of(ApiKey.FETCH, 17).feed(payload, 0, len(payload)) == -1
