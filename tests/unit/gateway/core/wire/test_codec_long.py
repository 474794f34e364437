"""Long values of messages: the same bytes, without a copy."""

from __future__ import annotations

import tracemalloc

from gateway.core.limits import LONG_STEP_BYTES
from gateway.core.wire.apis import ApiKey
from gateway.core.wire.codec import decode_response, encode_long_response, encode_response
from gateway.core.wire.long_bytes import LongBytes, view_of, whole
from gateway.core.wire.schema import Message


def answer(*records: bytes | LongBytes) -> Message:
    rows = [
        {"PartitionIndex": at, "Records": each, "AcquiredRecords": [(at, at, 1)]}
        for at, each in enumerate(records)
    ]
    return {"Responses": [{"TopicId": bytes(16), "Partitions": rows}], "ErrorMessage": "said"}


def test_long_values_stand_in_their_places() -> None:
    sizes = (LONG_STEP_BYTES, LONG_STEP_BYTES + 1, 10, LONG_STEP_BYTES + 2)
    records = [bytes([at + 1]) * size for at, size in enumerate(sizes)]
    data = encode_response(ApiKey.SHARE_FETCH, 1, answer(*records))
    shown = decode_response(ApiKey.SHARE_FETCH, 1, data)
    assert shown["ErrorMessage"] == "said"
    rows = shown["Responses"][0]["Partitions"]
    assert [bytes(view_of(row["Records"])) for row in rows] == records
    for row in rows:
        assert row["AcquiredRecords"] == [(row["PartitionIndex"], row["PartitionIndex"], 1)]


def test_parts_stand_in_the_place_of_their_value() -> None:
    long = bytes(LONG_STEP_BYTES + 1)
    parts = answer(LongBytes([b"head", memoryview(long)[1:], b""]), b"short")
    plain = answer(b"head" + long[1:], b"short")
    assert encode_response(ApiKey.SHARE_FETCH, 1, parts) == encode_response(
        ApiKey.SHARE_FETCH, 1, plain
    )


def test_a_long_value_is_not_copied() -> None:
    """A writer copied it twice, and had room for more: 270 MB for an answer of 90."""
    message = answer(bytes(3 * LONG_STEP_BYTES))
    frame = encode_response(ApiKey.SHARE_FETCH, 1, message)
    tracemalloc.start()
    try:
        data = encode_long_response(ApiKey.SHARE_FETCH, 1, message)
        decode_response(ApiKey.SHARE_FETCH, 1, frame)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 100_000
    assert isinstance(data, LongBytes)
    assert isinstance(data.parts[-1], bytes)
    assert whole(data) == frame
