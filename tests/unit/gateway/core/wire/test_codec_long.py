"""Long values of messages: the same bytes, with one copy."""

from __future__ import annotations

import tracemalloc

from gateway.core.limits import LONG_STEP_BYTES
from gateway.core.wire.apis import ApiKey
from gateway.core.wire.codec import decode_response, encode_response
from gateway.core.wire.schema import Message


def answer(*records: bytes) -> Message:
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
    assert [row["Records"] for row in shown["Responses"][0]["Partitions"]] == records
    for row in shown["Responses"][0]["Partitions"]:
        assert row["AcquiredRecords"] == [(row["PartitionIndex"], row["PartitionIndex"], 1)]


def test_a_long_value_is_copied_once() -> None:
    """A writer copied it twice, and had room for more: 270 MB for an answer of 90."""
    message = answer(bytes(3 * LONG_STEP_BYTES))
    tracemalloc.start()
    try:
        data = encode_response(ApiKey.SHARE_FETCH, 1, message)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len(data) <= peak < 1.1 * len(data)
