"""Metadata whose topics go on as they came is what it would be, decoded and encoded again."""

from __future__ import annotations

import random
from typing import Any

import pytest

from gateway.core.cluster.topology import PartitionInfo, Topic
from gateway.core.forwarding.metadata_answer import (
    ListedTopic,
    MetadataAnswer,
    tell_of_new_partitions,
)
from gateway.core.wire.apis import APIS, ApiKey
from gateway.core.wire.codec import decode_response, encode_response
from gateway.core.wire.errors import WireError

METADATA = ApiKey.METADATA
VERSIONS = range(APIS[METADATA].min_version, APIS[METADATA].max_version + 1)


def partition(at: int, draw: random.Random) -> dict[str, Any]:
    return {
        "PartitionIndex": at,
        "LeaderId": draw.randrange(-1, 9),
        "ReplicaNodes": list(range(draw.randrange(4))),
        "IsrNodes": list(range(draw.randrange(4))),
        "OfflineReplicas": list(range(draw.randrange(2))),
    }


def topic(at: int, draw: random.Random, version: int) -> dict[str, Any]:
    tags = {"_tags": {77: b"new"}} if version >= 9 and at % 3 == 0 else {}
    return {
        "ErrorCode": draw.choice([0, 0, 3]),
        "Name": None if version >= 12 and at == 5 else f"topic-{at}" * draw.randrange(1, 30),
        "TopicId": draw.randbytes(16),
        "Partitions": [partition(number, draw) for number in range(draw.randrange(5))],
        **tags,
    }


def answer(version: int, topics: int = 9) -> bytes:
    draw = random.Random(version)
    message: dict[str, Any] = {
        "Brokers": [{"NodeId": 1, "Host": "up", "Port": 9, "Rack": "r"}],
        "ClusterId": "cluster",
        "Topics": [topic(at, draw, version) for at in range(topics)],
        **({"_tags": {5: b"more"}} if version >= 9 else {}),
    }
    return b"head" + encode_response(METADATA, version, message)


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("topics", [0, 1, 9, 200])
def test_only_what_is_changed_is_other_bytes(version: int, topics: int) -> None:
    payload = answer(version, topics)
    plain = decode_response(METADATA, version, payload, 4)
    read = MetadataAnswer(version, payload, 4)
    assert b"".join(read.body()) == payload[4:]
    assert [
        (each.name, each.topic_id, each.error_code, each.partitions) for each in read.topics
    ] == [
        (each["Name"], each["TopicId"], each["ErrorCode"], len(each["Partitions"]))
        for each in plain["Topics"]
    ]
    read.message["Brokers"][0]["Host"] = plain["Brokers"][0]["Host"] = (
        "a-longer-host-of-the-gateway"
    )
    assert decode_response(METADATA, version, b"".join(read.body())) == plain


@pytest.mark.parametrize("version", VERSIONS)
def test_topics_that_are_open_can_be_changed(version: int) -> None:
    payload = answer(version)
    plain = decode_response(METADATA, version, payload, 4)
    read = MetadataAnswer(version, payload, 4)
    names = [each["Name"] for each in plain["Topics"]]
    changed, gone = names[2], names[6]
    read.open([changed, gone, "no-such-topic"])
    assert [each["Name"] for each in read.message["Topics"]] == [changed, gone]
    read.message["Topics"][0]["Partitions"] = []
    del read.message["Topics"][1]
    shown = decode_response(METADATA, version, b"".join(read.body()))["Topics"]
    left = [each for each in plain["Topics"] if each["Name"] not in (changed, gone)]
    assert shown == [*left, {**plain["Topics"][2], "Partitions": []}]
    assert [each.name for each in read.topics] == [each["Name"] for each in shown]
    read.open()
    assert len(read.message["Topics"]) == len(shown)
    assert sorted(
        map(repr, decode_response(METADATA, version, b"".join(read.body()))["Topics"])
    ) == (sorted(map(repr, shown)))


@pytest.mark.parametrize("version", [VERSIONS[0], VERSIONS[-1]])
def test_what_is_cut_off_or_damaged_is_a_wire_error_or_readable(version: int) -> None:
    payload = answer(version, 3)
    for end in range(4, len(payload)):
        with pytest.raises(WireError):
            MetadataAnswer(version, payload[:end], 4)
    draw = random.Random(1)
    for _ in range(2_000):
        damaged = bytearray(payload)
        damaged[draw.randrange(4, len(payload))] = draw.randrange(256)
        try:
            MetadataAnswer(version, bytes(damaged), 4).body()
        except WireError:
            continue


def test_new_partitions_are_those_of_known_topics() -> None:
    known = {
        "two": Topic("two", b"2" * 16, {0: PartitionInfo(1, 0), 1: PartitionInfo(1, 0)}),
        "missing": Topic("missing", bytes(16), {}, error=3),
    }

    def told(name: str | None, partitions: int) -> bool:
        other = ListedTopic("other", b"o" * 16, 0, 9)
        listed = ListedTopic(name, b"2" * 16, 0, partitions)
        return tell_of_new_partitions([other, listed], known)

    assert [told("two", count) for count in (1, 2, 3)] == [False, False, True]
    assert told("missing", 1)
    assert not told("missing", 0)
    assert not told("nobody has looked at it", 7)
    assert not told(None, 7)
