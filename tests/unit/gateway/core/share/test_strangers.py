"""Who is no share consumer, and names a Key-Shared group."""

from __future__ import annotations

import pytest

from gateway.core.share.strangers import (
    GUARDED,
    group_named,
    is_strangers,
    refusal,
    sets_position,
)
from gateway.core.wire.apis import APIS, KNOWN, ApiKey
from gateway.core.wire.codec import (
    decode_request,
    decode_response,
    encode_request,
    encode_response,
)
from gateway.core.wire.errors import ErrorCode
from gateway.core.wire.frames import request_frame
from gateway.core.wire.schema import Message
from keyway.commit_metadata.core.metadata import encode as encode_commit

SIZE = 4
VERSIONS = [
    (key, version)
    for key in sorted(GUARDED)
    for version in range(APIS[key].min_version, APIS[key].max_version + 1)
]
HEARTBEATS = {
    ApiKey.CONSUMER_GROUP_HEARTBEAT: "consumer",
    ApiKey.STREAMS_GROUP_HEARTBEAT: "streams",
}
NOT_FOUND = int(ErrorCode.GROUP_ID_NOT_FOUND)


def payload(key: int, version: int, body: Message, client_id: str | None = "c") -> bytes:
    return request_frame(key, version, 1, client_id, encode_request(key, version, body))[SIZE:]


@pytest.mark.parametrize(("key", "version"), VERSIONS)
@pytest.mark.parametrize("client_id", [None, "", "café"])
def test_the_group_is_read_in_every_version(key: int, version: int, client_id: str | None) -> None:
    body = {"GroupId": "grüppe"}
    if key == ApiKey.TXN_OFFSET_COMMIT:
        body["TransactionalId"] = "a producer's"
    sent = payload(key, version, body, client_id)
    assert group_named(sent) == "grüppe"
    for size in range(len(sent)):
        assert group_named(sent[:size]) in (None, "grüppe"), "cut off"


def test_the_group_is_read_in_versions_that_are_newer() -> None:
    """Upstream may know them; a stranger must not get past with one."""
    sent = bytearray(payload(ApiKey.OFFSET_COMMIT, 9, {"GroupId": "g", "Topics": []}))
    sent[2:4] = (KNOWN[ApiKey.OFFSET_COMMIT].max_version + 1).to_bytes(2, "big")
    assert group_named(bytes(sent)) == "g"


def test_what_is_not_readable_is_nobodys() -> None:
    sent = payload(ApiKey.OFFSET_DELETE, 0, {"GroupId": "g", "Topics": []})
    at = sent.index(b"\x00\x01g")
    assert group_named(sent[:at] + b"\xff\xff" + sent[at + 2 :]) is None
    assert group_named(sent[:at] + b"\x00\x01\xfe" + sent[at + 3 :]) is None
    assert group_named(b"") is None


def commit(*metadata: str | None, generation: int = -1) -> Message:
    rows = [
        {"PartitionIndex": at, "CommittedOffset": 7, "CommittedMetadata": text}
        for at, text in enumerate(metadata)
    ]
    return {
        "GroupId": "g",
        "GenerationIdOrMemberEpoch": generation,
        "Topics": [{"Name": "t", "Partitions": rows}],
    }


@pytest.mark.parametrize(
    ("key", "body", "expected"),
    [
        (ApiKey.JOIN_GROUP, {"MemberId": ""}, True),
        (ApiKey.JOIN_GROUP, {"MemberId": "upstream's"}, False),
        (ApiKey.CONSUMER_GROUP_HEARTBEAT, {"MemberEpoch": 0}, True),
        (ApiKey.CONSUMER_GROUP_HEARTBEAT, {"MemberEpoch": 1}, False),
        (ApiKey.CONSUMER_GROUP_HEARTBEAT, {"MemberEpoch": -1}, False),
        (ApiKey.STREAMS_GROUP_HEARTBEAT, {"MemberEpoch": 0}, True),
        (ApiKey.STREAMS_GROUP_HEARTBEAT, {"MemberEpoch": 1}, False),
        (ApiKey.STREAMS_GROUP_HEARTBEAT, {"MemberEpoch": -1}, False),
        (ApiKey.OFFSET_COMMIT, commit(""), True),
        (ApiKey.OFFSET_COMMIT, commit("", generation=0), False),
        (ApiKey.TXN_OFFSET_COMMIT, {"GenerationId": -1}, True),
        (ApiKey.TXN_OFFSET_COMMIT, {"GenerationId": 3}, False),
        (ApiKey.OFFSET_DELETE, {}, True),
    ],
)
def test_members_of_upstreams_groups_are_upstreams(
    key: ApiKey, body: Message, *, expected: bool
) -> None:
    assert is_strangers(key, body) is expected


def test_a_position_names_the_life_of_its_window_in_every_partition() -> None:
    of_a_window = encode_commit(7, [], origin=5)
    assert sets_position(ApiKey.OFFSET_COMMIT, commit(of_a_window, of_a_window))
    assert sets_position(ApiKey.OFFSET_COMMIT, commit(of_a_window, ""))
    assert not sets_position(ApiKey.OFFSET_COMMIT, commit(None))
    assert not sets_position(ApiKey.OFFSET_COMMIT, commit(encode_commit(7, [])))
    assert not sets_position(ApiKey.OFFSET_COMMIT, commit(encode_commit(8, [], origin=5)))
    assert not sets_position(ApiKey.TXN_OFFSET_COMMIT, commit(of_a_window))


@pytest.mark.parametrize(("key", "version"), VERSIONS)
def test_the_refusal_can_be_sent_in_every_version(key: int, version: int) -> None:
    named = (
        {"TopicId": b"t" * 16} if (key, version) == (ApiKey.OFFSET_COMMIT, 10) else {"Name": "t"}
    )
    body: Message = {"GroupId": "g"}
    if key not in (ApiKey.JOIN_GROUP, *HEARTBEATS):
        body["Topics"] = [{**named, "Partitions": [{"PartitionIndex": 3}]}]
    asked = decode_request(key, version, encode_request(key, version, body))
    answer = decode_response(key, version, encode_response(key, version, refusal(key, asked)))
    if key == ApiKey.JOIN_GROUP:
        assert answer["ErrorCode"] == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    elif key in (ApiKey.OFFSET_COMMIT, ApiKey.TXN_OFFSET_COMMIT):
        (topic,) = answer["Topics"]
        assert topic["Partitions"] == [{"PartitionIndex": 3, "ErrorCode": NOT_FOUND}]
        assert {**topic, **named} == topic
    else:
        assert answer["ErrorCode"] == NOT_FOUND
        if key in HEARTBEATS:
            assert answer["ErrorMessage"] == f"Group g is not a {HEARTBEATS[ApiKey(key)]} group."
