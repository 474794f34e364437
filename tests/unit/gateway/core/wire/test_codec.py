"""The codec by example; by every table and version: tests/conformance/wire."""

from __future__ import annotations

from typing import Any

import pytest

from gateway.core.wire.apis import ApiKey
from gateway.core.wire.codec import (
    decode_request,
    decode_response,
    encode_request,
    encode_response,
)
from gateway.core.wire.errors import EncodeError, ErrorCode, UnknownApi, UnsupportedVersion

FETCH = ApiKey.FETCH
METADATA = ApiKey.METADATA
SHARE_FETCH = ApiKey.SHARE_FETCH
TOPIC_ID = bytes(range(16))


def test_a_body_is_decoded_from_where_the_header_ends() -> None:
    body = encode_request(ApiKey.HEARTBEAT, 3, {"GroupId": "g", "GenerationId": 4})
    message = decode_request(ApiKey.HEARTBEAT, 3, b"header" + body, at=6)
    assert message == {
        "GroupId": "g",
        "GenerationId": 4,
        "MemberId": "",
        "GroupInstanceId": None,
    }


def test_fields_of_other_versions_hold_their_defaults() -> None:
    message = decode_request(SHARE_FETCH, 1, encode_request(SHARE_FETCH, 1, {"MaxWaitMs": 500}))
    assert message["IsRenewAck"] is False
    assert message["ShareAcquireMode"] == 0
    old = decode_response(METADATA, 0, encode_response(METADATA, 0, {}))
    assert old["ControllerId"] == -1
    assert old["ClusterAuthorizedOperations"] == -(2**31)


def test_defaults_of_two_messages_are_not_shared() -> None:
    data = encode_response(FETCH, 16, {})
    decode_response(FETCH, 16, data)["NodeEndpoints"].append("mine")
    assert decode_response(FETCH, 16, data)["NodeEndpoints"] == []
    assert encode_response(FETCH, 16, {}) == data


def test_one_message_serves_every_version() -> None:
    topic = {"Topic": "t", "TopicId": TOPIC_ID, "Partitions": []}
    message = {"Topics": [topic], "RackId": "r", "ReplicaState": {"ReplicaId": 3}}
    for version in range(4, 19):
        decoded = decode_request(FETCH, version, encode_request(FETCH, version, message))
        assert decoded["Topics"][0]["Topic"] == ("t" if version < 13 else "")
        assert decoded["Topics"][0]["TopicId"] == (TOPIC_ID if version >= 13 else bytes(16))
        assert decoded["RackId"] == ("r" if version >= 11 else "")


def test_unknown_tags_are_kept_at_every_level_in_the_order_of_tags() -> None:
    endpoint = {"NodeId": 1, "Host": "h", "Port": 2, "Rack": None, "_tags": {9: b"deep"}}
    message = {"NodeEndpoints": [endpoint], "_tags": {1: b"after", 300: b""}}
    data = encode_response(FETCH, 16, message)
    decoded = decode_response(FETCH, 16, data)
    assert decoded["_tags"] == {1: b"after", 300: b""}
    assert decoded["NodeEndpoints"] == [endpoint]
    assert encode_response(FETCH, 16, decoded) == data
    # NodeEndpoints is tag 0: three tags, 0 first.
    sections = data[4 + 2 + 4 + 1 :]
    assert sections[:2] == b"\x03\x00"
    assert data.endswith(b"\x01\x05after\xac\x02\x00")


def test_unknown_error_codes_stay_numbers() -> None:
    data = encode_response(ApiKey.HEARTBEAT, 4, {"ErrorCode": 12_345})
    assert decode_response(ApiKey.HEARTBEAT, 4, data)["ErrorCode"] == 12_345


def test_acknowledgement_batches_are_a_column() -> None:
    batches = [
        (0, 9, b"\x01"),
        (10, 12, b"\x01\x02\x03"),
        (13, 13, b""),
        (2**62, 2**63 - 1, b"\x04"),
    ]
    partition = {"PartitionIndex": 3, "AcknowledgementBatches": batches}
    message = {"Topics": [{"TopicId": TOPIC_ID, "Partitions": [partition]}]}
    data = encode_request(SHARE_FETCH, 2, message)
    assert decode_request(SHARE_FETCH, 2, data)["Topics"][0]["Partitions"] == [partition]


def test_acquired_records_are_a_column() -> None:
    ranges = [(0, 9, 1), (11, 2**63 - 1, 32_767)]
    partition = {"PartitionIndex": 3, "Records": b"bytes", "AcquiredRecords": ranges}
    data = encode_response(SHARE_FETCH, 2, {"Responses": [{"Partitions": [partition]}]})
    (decoded,) = decode_response(SHARE_FETCH, 2, data)["Responses"][0]["Partitions"]
    assert decoded["AcquiredRecords"] == ranges
    assert decoded["Records"] == b"bytes"
    assert "AcquiredRecords._tags" not in decoded


def test_unknown_tags_of_column_elements_stay_beside_the_column() -> None:
    partition = {
        "PartitionIndex": 0,
        "AcknowledgementBatches": [(0, 0, b"\x01"), (1, 1, b"\x01"), (2, 2, b"\x01\x01")],
        "AcknowledgementBatches._tags": {1: {5: b"x"}, 2: {0: b"", 200: b"yz"}},
    }
    data = encode_request(ApiKey.SHARE_ACKNOWLEDGE, 1, {"Topics": [{"Partitions": [partition]}]})
    decoded = decode_request(ApiKey.SHARE_ACKNOWLEDGE, 1, data)
    assert decoded["Topics"][0]["Partitions"] == [partition]
    assert encode_request(ApiKey.SHARE_ACKNOWLEDGE, 1, decoded) == data
    acquired = {
        "AcquiredRecords": [(0, 0, 1), (1, 1, 1)],
        "AcquiredRecords._tags": {0: {7: b"q"}},
    }
    data = encode_response(SHARE_FETCH, 1, {"Responses": [{"Partitions": [acquired]}]})
    (again,) = decode_response(SHARE_FETCH, 1, data)["Responses"][0]["Partitions"]
    assert again["AcquiredRecords._tags"] == {0: {7: b"q"}}


def test_a_nullable_struct_may_be_null_or_there() -> None:
    key = ApiKey.CONSUMER_GROUP_HEARTBEAT
    assert decode_response(key, 1, encode_response(key, 1, {}))["Assignment"] is None
    there = {"Assignment": {"TopicPartitions": [{"TopicId": TOPIC_ID, "Partitions": [0, 7]}]}}
    data = encode_response(key, 1, there)
    assert decode_response(key, 1, data)["Assignment"] == there["Assignment"]


def test_a_tagged_struct_that_says_nothing_new_is_not_written() -> None:
    empty = encode_response(FETCH, 12, {"Responses": [{"Partitions": [{}]}]})
    same = {"CurrentLeader": {"LeaderId": -1}}
    assert encode_response(FETCH, 12, {"Responses": [{"Partitions": [same]}]}) == empty


BAD: list[tuple[int, int, dict[str, Any], str]] = [
    (METADATA, 12, {"Brokerz": []}, "no field Brokerz"),
    (METADATA, 12, {"Brokers": [{"Hosst": "h"}]}, "no field Hosst"),
    (METADATA, 12, {"Brokers": None}, "Brokers may not be null"),
    (METADATA, 12, {"Brokers": {}}, "Brokers: list wanted"),
    (METADATA, 12, {"Brokers": [3]}, "Brokers: dict wanted"),
    (METADATA, 12, {"Brokers": [{"Host": None}]}, "Host may not be null"),
    (METADATA, 12, {"Brokers": [{"Host": b"h"}]}, "Host: str wanted"),
    (METADATA, 12, {"Brokers": [{"Host": "x" * 32_768}]}, "string of 32768 bytes"),
    (METADATA, 12, {"Brokers": [{"Host": "\ud800"}]}, "Host"),
    (METADATA, 12, {"Brokers": [{"Port": 2**31}]}, "Port"),
    (METADATA, 12, {"Brokers": [{"Port": "9092"}]}, "Port"),
    (METADATA, 12, {"Brokers": [{"Port": None}]}, "Port"),
    (METADATA, 12, {"Topics": [{"ErrorCode": 32_768}]}, "ErrorCode"),
    (METADATA, 12, {"Topics": [{"TopicId": b"short"}]}, "16 bytes wanted"),
    (METADATA, 12, {"Topics": [{"Partitions": [{"IsrNodes": ["a"]}]}]}, "IsrNodes"),
    (METADATA, 12, {"_tags": {-1: b""}}, "tag -1"),
    (FETCH, 16, {"_tags": {0: b""}, "NodeEndpoints": [{}]}, "tag 0"),
    (FETCH, 16, {"Responses": [{"Partitions": [{"HighWatermark": 2**63}]}]}, "HighWatermark"),
    (FETCH, 16, {"Responses": [{"Partitions": [{"Records": "text"}]}]}, "Records: bytes wanted"),
    (ApiKey.DESCRIBE_QUORUM, 2, {"Nodes": [{"Listeners": [{"Port": -1}]}]}, "Port"),
    (ApiKey.DESCRIBE_CLUSTER, 1, {"EndpointType": 128}, "EndpointType"),
    (SHARE_FETCH, 2, {"Responses": [{"Partitions": [{"AcquiredRecords": None}]}]}, "list wanted"),
    (SHARE_FETCH, 2, {"Responses": [{"Partitions": [{"AcquiredRecords": [(1, 2)]}]}]}, "Acquired"),
    (
        SHARE_FETCH,
        2,
        {"Responses": [{"Partitions": [{"AcquiredRecords": [(1, 2, 40_000)]}]}]},
        "Acquired",
    ),
]


@pytest.mark.parametrize(("key", "version", "message", "said"), BAD)
def test_a_message_that_does_not_fit_is_a_bug_that_names_the_field(
    key: int, version: int, message: dict[str, Any], said: str
) -> None:
    with pytest.raises(EncodeError, match=said):
        encode_response(key, version, message)


def test_apis_and_versions_without_a_table_are_refused() -> None:
    for key in (ApiKey.CONTROLLED_SHUTDOWN, ApiKey.END_TXN, 999, -1):
        with pytest.raises(UnknownApi) as caught:
            decode_request(key, 0, b"")
        assert caught.value.code == ErrorCode.UNSUPPORTED_VERSION
        with pytest.raises(UnknownApi):
            encode_response(key, 0, {})
    for version in (-1, 0, 3):
        with pytest.raises(UnsupportedVersion):
            decode_request(SHARE_FETCH, version, b"")
        with pytest.raises(UnsupportedVersion):
            encode_response(SHARE_FETCH, version, {})
