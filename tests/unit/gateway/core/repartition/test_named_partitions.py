"""Rows of requests that stop here, and their answers among those of upstream."""

from __future__ import annotations

import pytest

from gateway.core.repartition.named_partitions import (
    NAMING_PARTITIONS,
    Named,
    answered_with,
    named_in,
    refusal,
    taken_out,
)
from gateway.core.wire.apis import APIS, ApiKey
from gateway.core.wire.codec import (
    decode_request,
    decode_response,
    encode_request,
    encode_response,
)
from gateway.core.wire.schema import Message

TOPIC, TOPIC_ID, HIDDEN, UNKNOWN = "orders", b"o" * 16, 3, 3
_FIELDS = {
    ApiKey.PRODUCE: ("TopicData", "Name", "PartitionData", "Index"),
    ApiKey.FETCH: ("Topics", "Topic", "Partitions", "Partition"),
    ApiKey.OFFSET_FOR_LEADER_EPOCH: ("Topics", "Topic", "Partitions", "Partition"),
}
_ANSWERS = {
    ApiKey.PRODUCE: ("Responses", "Name", "PartitionResponses", "Index"),
    ApiKey.FETCH: ("Responses", "Topic", "Partitions", "PartitionIndex"),
    ApiKey.OFFSET_FOR_LEADER_EPOCH: ("Topics", "Topic", "Partitions", "Partition"),
}
_OTHERS = ("Topics", "Name", "Partitions", "PartitionIndex")


def request(key: int, version: int) -> Message:
    topics, name, rows, index = _FIELDS.get(ApiKey(key), _OTHERS)
    heads = ({name: TOPIC, "TopicId": TOPIC_ID}, {name: "other", "TopicId": b"2" * 16})
    if key not in (ApiKey.PRODUCE, ApiKey.FETCH, ApiKey.OFFSET_COMMIT):
        heads = ({name: TOPIC}, {name: "other"})
    body = {topics: [{**head, rows: [{index: 0}, {index: HIDDEN}]} for head in heads]}
    return decode_request(key, version, encode_request(key, version, body))


def _is_hidden(named: Named) -> bool:
    return named.partition == HIDDEN and (named.name == TOPIC or named.topic_id == TOPIC_ID)


@pytest.mark.parametrize("key", sorted(NAMING_PARTITIONS))
def test_a_row_is_taken_out_and_answered_in_every_version(key: int) -> None:
    topics, name, rows, index = _ANSWERS.get(ApiKey(key), _OTHERS)
    for version in range(APIS[key].min_version, APIS[key].max_version + 1):
        body = request(key, version)
        found = taken_out(key, body, _is_hidden)
        assert [named.partition for named in found] == [HIDDEN]
        assert [named.partition for named in named_in(key, body)] == [0, 0, HIDDEN]
        assert encode_request(key, version, body)
        head: Message = {name: found[0].name}
        if found[0].topic_id != bytes(16):
            head["TopicId"] = found[0].topic_id
        theirs = {topics: [{**head, rows: [{index: 0, **refusal(key, 0)}]}]}
        answer = answered_with(key, theirs, [(found[0], refusal(key, UNKNOWN))])
        read = decode_response(key, version, encode_response(key, version, answer))
        (topic,) = read[topics]
        assert [(row[index], row["ErrorCode"]) for row in topic[rows]] == [
            (0, 0),
            (HIDDEN, UNKNOWN),
        ]


@pytest.mark.parametrize("key", sorted(NAMING_PARTITIONS))
def test_without_an_answer_of_upstream_there_are_these_rows_alone(key: int) -> None:
    version = APIS[key].max_version
    body = request(key, version)
    found = taken_out(key, body, lambda _: True)
    assert list(named_in(key, body)) == []
    rows = [(named, refusal(key, UNKNOWN)) for named in found]
    read = decode_response(
        key, version, encode_response(key, version, answered_with(key, None, rows))
    )
    topics, _, partitions, _ = _ANSWERS.get(ApiKey(key), _OTHERS)
    assert [len(topic[partitions]) for topic in read[topics]] == [2, 2]
