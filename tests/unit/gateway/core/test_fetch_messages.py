"""Fetch answers that are damaged: what stands before the damage is read."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from gateway.core.fetch_messages import undamaged
from gateway.core.wire.records import CorruptBatch, Record, build


def batch(*offsets: int) -> bytes:
    return build([Record(at, 0, b"k", b"value") for at in offsets], base_offset=offsets[0])


def offsets(data: bytes) -> list[int]:
    return [offset for found in undamaged(data) for offset in found.offsets]


def flipped(data: bytes) -> bytes:
    return data[:-3] + bytes([data[-3] ^ 1]) + data[-3:][1:]


def without_length(data: bytes) -> bytes:
    return data[:8] + b"\xff\xff\xff\xff" + data[12:]


def test_what_is_whole_is_whole() -> None:
    assert offsets(b"") == []
    assert offsets(batch(0, 1) + batch(4, 5)) == [0, 1, 4, 5]
    assert offsets(batch(0, 1) + batch(4, 5)[:-1]) == [0, 1], "cut off, as Kafka does"


@pytest.mark.parametrize("damage", [flipped, without_length])
@pytest.mark.parametrize("behind", [b"", batch(9), batch(9)[:30]], ids=["end", "batch", "cut"])
def test_the_batches_before_a_damaged_one(damage: Callable[[bytes], bytes], behind: bytes) -> None:
    bad = damage(batch(4, 5))
    assert offsets(batch(0, 1) + batch(2) + bad + behind) == [0, 1, 2]
    with pytest.raises(CorruptBatch):
        undamaged(bad + behind)
