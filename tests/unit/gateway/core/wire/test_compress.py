"""Codecs: both snappy framings, several frames in a row, growth of the output, limits."""

from __future__ import annotations

import random

import cramjam
import pytest

from gateway.core.wire.compress import (
    CannotDecompress,
    Compression,
    DecompressesTooLarge,
    compress,
    decompress,
)

LIMIT = 16 * 1024 * 1024
SQUEEZED = [Compression.GZIP, Compression.SNAPPY, Compression.LZ4, Compression.ZSTD]


@pytest.mark.parametrize("codec", SQUEEZED)
@pytest.mark.parametrize("size", [1, 100, 32 * 1024, 32 * 1024 + 1, 3_000_000])
def test_round_trip(codec: Compression, size: int) -> None:
    chance = random.Random(size)
    words = [chance.randbytes(9) for _ in range(50)]
    data = b"".join(chance.choice(words) for _ in range(size // 9 + 1))[:size]
    assert decompress(codec, compress(codec, data), LIMIT) == data
    assert decompress(codec, compress(codec, data), size) == data
    with pytest.raises(CannotDecompress):
        decompress(codec, compress(codec, data), size - 1)


def test_raw_snappy() -> None:
    data = b"one block, as librdkafka sends it" * 5_000
    raw = bytes(cramjam.snappy.compress_raw(data))
    assert decompress(Compression.SNAPPY, raw, LIMIT) == data
    with pytest.raises(CannotDecompress):
        decompress(Compression.SNAPPY, raw, len(data) - 1)


def test_xerial_snappy_that_is_cut_off() -> None:
    framed = compress(Compression.SNAPPY, bytes(100_000))
    for end in (5, 12, 17, len(framed) - 1):
        with pytest.raises(CannotDecompress):
            decompress(Compression.SNAPPY, framed[:end], LIMIT)
    with pytest.raises(CannotDecompress):
        decompress(Compression.SNAPPY, framed + b"\xff\xff\xff\xff", LIMIT)


def test_the_limit_counts_all_xerial_blocks_together() -> None:
    framed = compress(Compression.SNAPPY, bytes(10 * 32 * 1024))
    with pytest.raises(
        CannotDecompress, match="too large when decompressed: more than 294,912 bytes"
    ):
        decompress(Compression.SNAPPY, framed, 9 * 32 * 1024)


@pytest.mark.parametrize("codec", [Compression.GZIP, Compression.LZ4, Compression.ZSTD])
def test_frames_in_a_row(codec: Compression) -> None:
    """Streams may be flushed into several frames; Java's readers go on to the next."""
    data = compress(codec, b"first ") + compress(codec, b"second")
    assert decompress(codec, data, LIMIT) == b"first second"


@pytest.mark.parametrize("codec", SQUEEZED)
@pytest.mark.parametrize("data", [bytes(70_000), random.Random(1).randbytes(70_000)], ids=len)
def test_too_large_and_damaged_are_told_apart(codec: Compression, data: bytes) -> None:
    sent = compress(codec, data)
    assert decompress(codec, sent, len(data)) == data, "the limit itself is allowed"
    for limit in (1, 15, 16, 17, 65_536, len(data) - 1):
        with pytest.raises(DecompressesTooLarge, match=f"more than {limit:,} bytes"):
            decompress(codec, sent, limit)
    with pytest.raises(CannotDecompress) as damaged:
        decompress(codec, sent[: len(sent) // 2], len(data))
    assert not isinstance(damaged.value, DecompressesTooLarge)


@pytest.mark.parametrize("codec", SQUEEZED)
def test_garbage(codec: Compression) -> None:
    for seed in range(20):
        with pytest.raises(CannotDecompress):
            decompress(codec, random.Random(seed).randbytes(50), LIMIT)


def test_unknown_codecs() -> None:
    for codec in (0, 5, 7, -1):
        with pytest.raises(CannotDecompress, match="unknown"):
            decompress(codec, b"", LIMIT)
    with pytest.raises(CannotDecompress, match="unknown"):
        compress(5, b"")
    assert compress(Compression.NONE, b"as is") == b"as is"
