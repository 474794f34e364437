"""Input that peers may not send. Garbage at large: tests/property/test_wire.py."""

from __future__ import annotations

import tracemalloc

import pytest

from gateway.core.wire.apis import APIS, ApiKey
from gateway.core.wire.codec import (
    decode_request,
    decode_response,
    encode_request,
    encode_response,
)
from gateway.core.wire.decode import (
    ELEMENTS_MAX,
    REQUEST_ELEMENTS_MAX,
    REQUEST_ROW_ELEMENTS,
    Reader,
)
from gateway.core.wire.errors import (
    BadLength,
    BadTags,
    BadText,
    TooManyElements,
    TrailingBytes,
    Truncated,
    UnexpectedNull,
    WireError,
)

HEARTBEAT = ApiKey.HEARTBEAT  # v0: GroupId, GenerationId, MemberId; flexible from 4
SHARE_FETCH = ApiKey.SHARE_FETCH
METADATA = ApiKey.METADATA  # request v0: an array of topic names
SHARE_ACKNOWLEDGE = ApiKey.SHARE_ACKNOWLEDGE
SHARE_GROUP_DESCRIBE = ApiKey.SHARE_GROUP_DESCRIBE
DESCRIBE_SHARE_GROUP_OFFSETS = ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS
OLD = b"\x00\x01g" + b"\x00\x00\x00\x05" + b"\x00\x01m"
FLEXIBLE = b"\x02g" + b"\x00\x00\x00\x05" + b"\x02m" + b"\x00"


def test_every_cut_is_truncated() -> None:
    for version, data in ((0, OLD), (4, FLEXIBLE + b"\x00")):
        decode_request(HEARTBEAT, version, data)
        for size in range(len(data)):
            with pytest.raises(Truncated, match="Heartbeat request"):
                decode_request(HEARTBEAT, version, data[:size])


def test_start_beyond_the_data_is_truncated() -> None:
    with pytest.raises(Truncated):
        decode_request(HEARTBEAT, 0, OLD, at=len(OLD) + 5)


def test_trailing_bytes_are_refused() -> None:
    with pytest.raises(TrailingBytes, match="1 bytes"):
        decode_request(HEARTBEAT, 0, OLD + b"\x00")


@pytest.mark.parametrize(
    ("version", "data", "error"),
    [
        (0, b"\xff\xfe", BadLength),  # length -2
        (0, b"\xff\xff", UnexpectedNull),
        (0, b"\x7f\xff", Truncated),
        (0, b"\x00\x01\xff" + OLD[3:], BadText),
        (4, b"\x00", UnexpectedNull),
        (4, b"\xff\xff\xff\xff\x7f", BadLength),  # more than 2^31 - 1
        (4, b"\xff\xff\xff\xff\xff\x01", BadLength),  # six bytes
        (4, b"\x81\x80\x02" + b"x" * 32_768, BadLength),  # a string of 32,768 bytes
        (4, b"\x80", Truncated),
    ],
)
def test_strings(version: int, data: bytes, error: type[WireError]) -> None:
    with pytest.raises(error):
        decode_request(HEARTBEAT, version, data)


@pytest.mark.parametrize(
    ("version", "data", "error"),
    [
        (0, b"\xff\xff\xff\xff", UnexpectedNull),
        (0, b"\xff\xff\xff\xfe", BadLength),
        (0, b"\x7f\xff\xff\xff", Truncated),
        (0, b"\x00\x00\x00\x02" + b"\x00\x00", Truncated),  # two topics cannot fit in two bytes
        (9, b"\xff\xff\xff\xff\x07", Truncated),
    ],
)
def test_arrays(version: int, data: bytes, error: type[WireError]) -> None:
    with pytest.raises(error):
        decode_request(METADATA, version, data)


def test_arrays_of_numbers_are_measured_before_they_are_read() -> None:
    broken = b"\x00\x00\x00\x00" + b"\x01" + b"\x00" + b"\x7f\xff\xff\xff"
    with pytest.raises(WireError):
        decode_response(METADATA, 8, broken)


def test_an_absurd_count_allocates_nothing() -> None:
    frames = [
        (METADATA, 9, b"\xff\xff\xff\xff\x07" + bytes(100)),
        (SHARE_ACKNOWLEDGE, 1, b"\x00\x00\x00\x00\x00\x00\xff\xff\xff\xff\x07" + bytes(100)),
    ]
    tracemalloc.start()
    for key, version, data in frames:
        with pytest.raises(WireError):
            decode_request(key, version, data)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 100_000


def test_elements_are_limited_however_small_they_are() -> None:
    # Topics of 18 bytes each, as few bytes as a topic can have.
    topic = b"\x00" * 17 + b"\x00"
    count = REQUEST_ELEMENTS_MAX + 1
    head = bytes([(count + 1) & 0x7F | 0x80, (count + 1) >> 7 & 0x7F | 0x80, (count + 1) >> 14])
    with pytest.raises(TooManyElements):
        decode_request(METADATA, 12, head + topic * count)


def test_null_arrays_give_no_elements_back() -> None:
    op = APIS[METADATA].request.plan(9).ops[0]
    assert op.nullable
    reader = Reader(b"\x00" * 5, 0)
    assert [reader.count(op, 1, flexible=True) for _ in range(5)] == [-1] * 5
    assert reader.elements_left == ELEMENTS_MAX


def test_tags_twice_or_of_the_wrong_size_are_refused() -> None:
    good = FLEXIBLE + b"\x02\x05\x01a\x06\x00"
    assert decode_request(HEARTBEAT, 4, good)["_tags"] == {5: b"a", 6: b""}
    with pytest.raises(BadTags, match="twice"):
        decode_request(HEARTBEAT, 4, FLEXIBLE + b"\x02\x05\x01a\x05\x00")
    with pytest.raises(Truncated):
        decode_request(HEARTBEAT, 4, FLEXIBLE + b"\x01\x05\x02a")
    fetch = encode_request(ApiKey.FETCH, 12, {"ClusterId": "c"})
    tagged = b"\x01\x00\x02\x02c"
    assert fetch.endswith(tagged)
    head = fetch[: -len(tagged)]
    assert decode_request(ApiKey.FETCH, 12, fetch)["ClusterId"] == "c"
    with pytest.raises(BadTags, match="ClusterId"):
        decode_request(ApiKey.FETCH, 12, head + b"\x01\x00\x03\x02cc")
    with pytest.raises(Truncated):  # The content of a tag may not reach beyond its size.
        decode_request(ApiKey.FETCH, 12, head + b"\x02\x00\x01\x02" + b"\x05\x00")


def test_columns_are_checked_like_everything_else() -> None:
    head = b"\x00\x00\x00\x00\x00\x00\x02" + bytes(16) + b"\x02" + b"\x00\x00\x00\x01"
    batch = bytes(8) + bytes(8) + b"\x02\x01" + b"\x00"
    tail = b"\x00\x00\x00"
    whole = head + b"\x02" + batch + tail
    decode_request(SHARE_ACKNOWLEDGE, 1, whole)
    for size in range(len(head), len(whole)):
        with pytest.raises(Truncated):
            decode_request(SHARE_ACKNOWLEDGE, 1, whole[:size])
    with pytest.raises(UnexpectedNull):
        decode_request(SHARE_ACKNOWLEDGE, 1, head + b"\x00" + tail)
    with pytest.raises(UnexpectedNull):
        decode_request(SHARE_ACKNOWLEDGE, 1, head + b"\x02" + bytes(16) + b"\x00\x00" + tail)
    tags = b"\x02\x01\x00\x01\x00"
    with pytest.raises(BadTags):
        decode_request(SHARE_ACKNOWLEDGE, 1, head + b"\x02" + batch[:-1] + tags + tail)


def test_varints_may_be_longer_than_they_must() -> None:
    assert Reader(b"\x85\x80\x00", 0).uvarint() == 5
    assert Reader(b"\xff\xff\xff\xff\x07", 0).uvarint() == 2**31 - 1


def test_structs_of_a_request_weigh_more_than_ranges() -> None:
    """A partition costs as much as ten ranges: so many ranges are taken, and fewer partitions."""

    def fetch(partitions: int, ranges: int) -> bytes:
        rows = [
            {"PartitionIndex": at, "AcknowledgementBatches": [(n, n, b"\1") for n in range(ranges)]}
            for at in range(partitions)
        ]
        return encode_request(
            SHARE_FETCH, 1, {"Topics": [{"TopicId": bytes(16), "Partitions": rows}]}
        )

    decoded = decode_request(SHARE_FETCH, 1, fetch(100, 2_000))
    assert len(decoded["Topics"][0]["Partitions"][99]["AcknowledgementBatches"]) == 2_000
    most = REQUEST_ELEMENTS_MAX // REQUEST_ROW_ELEMENTS
    assert len(decode_request(SHARE_FETCH, 1, fetch(most - 1, 0))["Topics"][0]["Partitions"])
    with pytest.raises(TooManyElements):
        decode_request(SHARE_FETCH, 1, fetch(most, 0))


def test_numbers_and_strings_of_a_request_weigh_as_much_as_structs() -> None:
    """Each becomes a row of the answer: a partition described, a group described."""
    most = REQUEST_ELEMENTS_MAX // REQUEST_ROW_ELEMENTS

    def offsets(count: int) -> bytes:
        rows = [{"TopicName": "t", "Partitions": list(range(count))}]
        return encode_request(
            DESCRIBE_SHARE_GROUP_OFFSETS, 0, {"Groups": [{"GroupId": "g", "Topics": rows}]}
        )

    def groups(count: int) -> bytes:
        return encode_request(SHARE_GROUP_DESCRIBE, 1, {"GroupIds": ["g"] * count})

    for api, version, request in (
        (DESCRIBE_SHARE_GROUP_OFFSETS, 0, offsets),
        (SHARE_GROUP_DESCRIBE, 1, groups),
    ):
        assert decode_request(api, version, request(most - 10))
        with pytest.raises(TooManyElements):
            decode_request(api, version, request(most * 11 // 10))


def test_numbers_of_a_response_weigh_nothing() -> None:
    """Replicas of a large cluster's partitions: the limit is that of the partitions."""
    partition = {"PartitionIndex": 0, "ReplicaNodes": list(range(1_000)), "IsrNodes": [0]}
    topics = [{"Name": "t", "Partitions": [partition] * 2_100}]
    data = encode_response(METADATA, 12, {"Topics": topics})
    assert len(decode_response(METADATA, 12, data)["Topics"][0]["Partitions"]) == 2_100
