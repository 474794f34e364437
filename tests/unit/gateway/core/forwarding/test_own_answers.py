"""Metadata for the gateway itself: what the codec would decode, when it is looked at."""

from __future__ import annotations

from typing import Any

import pytest

from gateway.core.forwarding.own_answers import TopicRow, own_answer, raw_rows
from gateway.core.wire.apis import APIS, ApiKey
from gateway.core.wire.codec import decode_response
from tests.rig.wire_frames import response

METADATA = int(ApiKey.METADATA)
VERSIONS = range(APIS[METADATA].min_version, APIS[METADATA].max_version + 1)


def frame(version: int) -> bytes:
    def topic(at: int) -> dict[str, Any]:
        return {
            "Name": f"t{at}",
            "TopicId": bytes([at]) * 16,
            "ErrorCode": at % 2,
            "TopicAuthorizedOperations": at,
            "Partitions": [
                {"PartitionIndex": number, "LeaderId": 1, "IsrNodes": [1]} for number in range(at)
            ],
        }

    body = {
        "Brokers": [{"NodeId": 1, "Host": "up", "Port": 9}],
        "ClusterId": "c",
        "Topics": [topic(at) for at in range(3)],
    }
    return response(METADATA, version, body)[4:]


@pytest.mark.parametrize("version", VERSIONS)
def test_it_is_what_the_codec_decodes(version: int) -> None:
    whole = frame(version)
    plain = decode_response(METADATA, version, whole, 5 if version >= 9 else 4)
    answer = own_answer(METADATA, version, whole)
    heads = ("Name", "TopicId", "ErrorCode", "TopicAuthorizedOperations")
    for row, expected in zip(answer["Topics"], plain["Topics"], strict=True):
        assert [row[field] for field in heads] == [expected[field] for field in heads]
        assert "Partitions" not in row, "who asks for rights or ids does not wait for them"
        assert row["Partitions"] == expected["Partitions"]
    assert answer == plain
    with pytest.raises(KeyError):
        answer["Topics"][0]["Partition"]


def test_a_row_that_was_opened_is_not_as_it_came() -> None:
    answer = own_answer(METADATA, 12, frame(12))
    assert list(raw_rows(answer)) == ["t0", "t1", "t2"]
    opened, changed, _ = answer["Topics"]
    assert opened["Partitions"] == []
    changed |= {"Partitions": [], "ErrorCode": 3}
    assert list(raw_rows(answer)) == ["t2"]
    assert (changed["ErrorCode"], changed["IsInternal"]) == (3, False), "what was changed stays"
    assert isinstance(changed, TopicRow)
