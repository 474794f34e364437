"""The walk through Produce requests, Fetch and Produce responses, against the codec."""

from __future__ import annotations

from struct import pack
from typing import Any

import pytest

from gateway.core.cluster.busiest_topics import OTHER
from gateway.core.forwarding.partition_walk import (
    FETCH_RESPONSES,
    LOST,
    NOT_YET,
    PRODUCE_REQUESTS,
    PRODUCE_RESPONSES,
    Layout,
    PartitionWalk,
)
from gateway.core.forwarding.topic_bytes import TopicBytes
from gateway.core.limits import WALK_NUMBERS_MAX
from gateway.core.wire.apis import APIS, ApiKey
from gateway.core.wire.codec import encode_request, encode_response
from gateway.core.wire.frames import response_frame

CORRELATION_BYTES = 4
ACKS_END = 3  # of a request body in v9 and later without a transactional id
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


ENDED_BY_TAGS = [(ApiKey.FETCH, version, fetch) for version in range(16, 19)] + [
    (ApiKey.PRODUCE, version, produce) for version in range(10, 14)
]


def begun(layout: Layout, skip: int = CORRELATION_BYTES) -> tuple[PartitionWalk, TopicBytes]:
    topics = TopicBytes()
    topics.name("topic", b"t" * 16)
    walk = PartitionWalk(topics)
    walk.begin(layout, skip)
    return walk, topics


def response_layout(key: int, version: int) -> Layout:
    return (FETCH_RESPONSES if key == ApiKey.FETCH else PRODUCE_RESPONSES)[version]


def payload_of(key: int, version: int, message: dict[str, Any]) -> bytes:
    return response_frame(key, version, 1, encode_response(key, version, message))[4:]


def test_there_is_a_layout_of_each_version() -> None:
    assert APIS[ApiKey.FETCH].max_version == len(FETCH_RESPONSES) - 1
    assert APIS[ApiKey.PRODUCE].max_version == len(PRODUCE_REQUESTS) - 1
    assert APIS[ApiKey.PRODUCE].max_version == max(PRODUCE_RESPONSES)


@pytest.mark.parametrize(("key", "version", "make"), ENDED_BY_TAGS)
@pytest.mark.parametrize("chunk", [1, 7, 100_000])
def test_finds_the_tail_however_it_is_cut(key: int, version: int, make: Any, chunk: int) -> None:
    message = make(version)
    expected = len(payload_of(key, version, message)) - 1
    payload = payload_of(key, version, {**message, "NodeEndpoints": ENDPOINTS})
    walk, topics = begun(response_layout(key, version))
    for start in range(0, len(payload), chunk):
        at = walk.feed(payload, start, min(start + chunk, len(payload)))
        if at >= 0:
            break
    assert at == expected or (at == start + chunk == expected)
    assert payload[expected] == 1  # one tagged field
    assert topics.take() == ([], [("topic", 768)] if key == ApiKey.FETCH else [])


def test_one_walk_goes_through_many_messages() -> None:
    walk, topics = begun(FETCH_RESPONSES[17])
    answer = payload_of(ApiKey.FETCH, 17, fetch(17))
    refused = payload_of(ApiKey.PRODUCE, 13, produce(13))
    half = len(answer) // 2  # in the records
    assert walk.feed(answer, 0, half) == NOT_YET
    walk.begin(PRODUCE_RESPONSES[13], CORRELATION_BYTES)
    assert walk.feed(refused, 0, len(refused)) == len(refused) - 1
    assert topics.take() == ([], []), "the records of the first did not all come"
    for _ in range(3):
        walk.begin(FETCH_RESPONSES[17], CORRELATION_BYTES)
        assert walk.feed(answer, 0, len(answer)) == len(answer) - 1
    assert topics.take() == ([], [("topic", 3 * 768)])


def test_a_walk_that_was_cut_short_leaves_nothing_to_the_next() -> None:
    """In versions whose numbers have a fixed size all items are one step."""
    walk, topics = begun(FETCH_RESPONSES[17])
    head = b"\0\0\0\1\0" + bytes(10) + b"\2" + b"t" * 16 + b"\2" + bytes(30)
    many = head + b"\xff\xff\xff\xff\x0f" + bytes(20)  # aborted transactions
    assert walk.feed(many, 0, len(many)) == NOT_YET
    partition = pack(">ihqqii7s", 0, 0, 100, 100, -1, 7, b"records")
    payload = pack(">iii", 1, 0, 1) + pack(">h5si", 5, b"topic", 1) + partition
    walk.begin(FETCH_RESPONSES[4], CORRELATION_BYTES)
    assert walk.feed(payload, 0, len(payload)) == len(payload)
    assert topics.take() == ([], [("topic", 7)])


def test_records_that_do_not_come_do_not_count() -> None:
    partition = {"Index": 0, "Records": b"r" * 1_000}
    body = encode_request(
        ApiKey.PRODUCE,
        13,
        {"TopicData": [{"TopicId": b"t" * 16, "PartitionData": [partition, partition]}]},
    )
    walk, topics = begun(PRODUCE_REQUESTS[13], ACKS_END + 4)
    walk.feed(body, 0, len(body) - 10)
    assert topics.take() == ([("topic", 1_000)], [])


@pytest.mark.parametrize(("name", "known"), [("topic", "topic"), ("t" * 249, OTHER), ("", OTHER)])
def test_topics_that_nobody_has_named_are_one(name: str, known: str) -> None:
    partition = {"Index": 0, "Records": b"r" * 10}
    body = encode_request(
        ApiKey.PRODUCE, 9, {"TopicData": [{"Name": name, "PartitionData": [partition]}]}
    )
    walk, topics = begun(PRODUCE_REQUESTS[9], ACKS_END + 4)
    walk.feed(body, 0, len(body))
    assert topics.take() == ([(known, 10)], [])
    assert list(topics.by_name) == [b"topic"]


def test_a_name_longer_than_any_topics_is_not_kept() -> None:
    name = "n" * 30_000
    partition = {"Index": 0, "Records": b"r" * 10}
    message = {"TopicData": [{"Name": name, "PartitionData": [partition]}]}
    body = encode_request(ApiKey.PRODUCE, 8, message)
    walk, topics = begun(PRODUCE_REQUESTS[8], 2 + 2 + 4)  # the transactional id, acks, timeout
    for at in range(len(body)):
        walk.feed(body, at, at + 1)
    assert topics.take() == ([(OTHER, 10)], [])


@pytest.mark.parametrize("version", [0, 1, 2])
def test_requests_older_than_the_tables(version: int) -> None:
    """Produce has had a transactional id since v3; the topics were the same before."""
    topic = pack(">h5siii7sii", 5, b"topic", 2, 0, 7, b"records", 1, -1)
    body = pack(">hii", 1, 1_000, 2) + topic + topic
    walk, topics = begun(PRODUCE_REQUESTS[version], 2 + 4)
    assert walk.feed(body, 0, len(body)) == len(body)
    assert topics.take() == ([("topic", 14)], [])


@pytest.mark.parametrize("version", range(4))
def test_responses_older_than_the_tables(version: int) -> None:
    """Fetch has had a throttle time since v1, and only the high watermark before v4."""
    throttle = pack(">i", 9) if version else b""
    topic = pack(">h5siihqi7s", 5, b"topic", 1, 0, 0, 100, 7, b"records")
    payload = pack(">i", 1) + throttle + pack(">i", 2) + topic + topic
    walk, topics = begun(FETCH_RESPONSES[version])
    assert walk.feed(payload, 0, len(payload)) == len(payload)
    assert topics.take() == ([], [("topic", 14)])


@pytest.mark.parametrize("chunk", [1, 100_000])
def test_a_request_of_nothing_but_numbers_is_left_alone_at_some_point(chunk: int) -> None:
    """Without an end every two bytes of a hostile request would cost a step."""
    walk, topics = begun(PRODUCE_REQUESTS[9], ACKS_END)
    # 2**31 topics, each "a", without partitions and tags.
    payload = bytes(ACKS_END) + b"\xff\xff\xff\xff\x07" + b"\x02a\x01\x00" * WALK_NUMBERS_MAX
    results = [
        walk.feed(payload, at, min(at + chunk, len(payload)))
        for at in range(0, len(payload), chunk)
    ]
    assert results[0] in (NOT_YET, LOST)
    assert results[-1] == LOST
    assert topics.take() == ([], [])


def test_an_endless_varint_is_refused() -> None:
    walk, _ = begun(FETCH_RESPONSES[17])
    assert walk.feed(b"\0\0\0\1" + b"\xff" * 9, 0, 13) == LOST
    assert walk.feed(bytes(100), 0, 100) == LOST


@pytest.mark.parametrize("version", [4, 11, 12, 17])
def test_a_million_elements_that_are_not_there_cost_nothing(version: int) -> None:
    head = b"\0\0\0\1" + bytes(FETCH_RESPONSES[version].head_bytes)
    topics = b"\0\xff\xff\xff\x7f" if version >= 12 else b"\x7f\xff\xff\xff"
    walk, _ = begun(FETCH_RESPONSES[version])
    payload = head + topics
    assert walk.feed(payload, 0, len(payload)) == NOT_YET


def test_a_million_aborted_transactions_are_one_step() -> None:
    """Of a version whose numbers have a fixed size."""
    partition = pack(">ihqqi", 0, 0, 100, 100, 2**31 - 1)
    payload = pack(">iii", 1, 0, 1) + pack(">h5si", 5, b"topic", 1) + partition
    walk, _ = begun(FETCH_RESPONSES[4])
    assert walk.feed(payload, 0, len(payload)) == NOT_YET
