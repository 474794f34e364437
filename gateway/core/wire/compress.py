"""Kafka's record batch codecs: gzip, snappy (xerial-framed or raw), lz4 frames, zstd.

The producer of a batch decides its decompressed size. So no call here takes more memory for its
output than `limit`: the output goes into a buffer of a guessed size that grows until it fits or the
limit is reached.
"""

from __future__ import annotations

import mmap
from enum import IntEnum

import cramjam


class Compression(IntEnum):
    """Codec ids as in the three lowest bits of a batch's attributes."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4


class CannotDecompress(Exception):
    """The compressed bytes are broken, of no codec we know, or of more than `limit` bytes."""


class DecompressesTooLarge(CannotDecompress):
    """Nothing is broken, as far as was read: the output is of more than `limit` bytes."""

    def __init__(self, limit: int) -> None:
        super().__init__(f"too large when decompressed: more than {limit:,} bytes")


# At the end of an output buffer: still there after a failure, the buffer was not full.
_UNTOUCHED = bytes.fromhex("6b6579776179c3a5f00dfacec0ded1ce")


# The Java client frames snappy as xerial does: magic, version and compatible version (4 bytes
# each), then blocks of (4 bytes length, raw snappy). librdkafka sends one raw snappy block.
_XERIAL_MAGIC = b"\x82SNAPPY\x00"
_XERIAL_HEADER = _XERIAL_MAGIC + b"\x00\x00\x00\x01\x00\x00\x00\x01"
_XERIAL_HEADER_SIZE = 16
_XERIAL_BLOCK = 32 * 1024  # bytes before compression, xerial's default

_GUESS_MIN = 64 * 1024
_GUESS_RATIO = 8  # JSON and Avro compress 3-8 fold; a wrong guess costs one more pass
_GROWTH = 8
_CLEARED_MAX = 1024 * 1024  # bytes; takes 1 ms


def decompress(codec: int, data: bytes, limit: int) -> bytes:
    """The records of a batch, at most `limit` bytes. Raises CannotDecompress,
    DecompressesTooLarge.
    """
    if codec == Compression.SNAPPY:
        return _snappy(data, limit)
    if codec not in (Compression.GZIP, Compression.LZ4, Compression.ZSTD):
        raise CannotDecompress(f"unknown compression codec {codec}")
    room = min(limit, max(_GUESS_MIN, _GUESS_RATIO * len(data)))
    while True:
        try:
            # A bytearray clears all of its memory at once, while no other thread runs.
            output = bytearray(room) if room <= _CLEARED_MAX else mmap.mmap(-1, room)
            output[-len(_UNTOUCHED) :] = _UNTOUCHED[:room]
            return _decompress_into(codec, data, output)
        except cramjam.DecompressionError as error:
            # A buffer that is too small and broken input are told apart by their text alone,
            # which may change. So only the last failure is looked into.
            if room >= limit:
                if output[-len(_UNTOUCHED) :] != _UNTOUCHED[:room]:
                    raise DecompressesTooLarge(limit) from error
                raise CannotDecompress(f"{Compression(codec).name.lower()}: {error}") from error
            room = min(limit, room * _GROWTH)


def compress(codec: int, data: bytes) -> bytes:
    """Compresses as the Java producer does with its default levels. Raises CannotDecompress for a
    codec we do not know.
    """
    if codec == Compression.NONE:
        return data
    if codec == Compression.GZIP:
        return bytes(cramjam.gzip.compress(data))
    if codec == Compression.SNAPPY:
        return _xerial(data)
    if codec == Compression.LZ4:
        # Kafka's own lz4 reader refuses linked blocks.
        compressor = cramjam.lz4.Compressor(block_linked=False, content_checksum=False)
        compressor.compress(data)
        return bytes(compressor.finish())
    if codec == Compression.ZSTD:
        return bytes(cramjam.zstd.compress(data, level=3))
    raise CannotDecompress(f"unknown compression codec {codec}")


def _decompress_into(codec: int, data: bytes, output: bytearray | mmap.mmap) -> bytes:
    if codec == Compression.GZIP:
        size = cramjam.gzip.decompress_into(data, output)
    elif codec == Compression.LZ4:
        size = cramjam.lz4.decompress_into(data, output)
    else:
        size = cramjam.zstd.decompress_into(data, output)
    return bytes(memoryview(output)[:size])


def _snappy(data: bytes, limit: int) -> bytes:
    if not data.startswith(_XERIAL_MAGIC):
        return _snappy_block(data, limit, limit)
    at = _XERIAL_HEADER_SIZE
    blocks: list[bytes] = []
    left = limit
    while at < len(data):
        size = int.from_bytes(data[at : at + 4], "big", signed=True)
        if size < 0 or at + 4 + size > len(data):
            raise CannotDecompress(f"snappy: a block of {size} bytes at {at} of {len(data)}")
        block = _snappy_block(data[at + 4 : at + 4 + size], left, limit)
        left -= len(block)
        blocks.append(block)
        at += 4 + size
    if at != len(data):
        raise CannotDecompress("snappy: cut off")
    return b"".join(blocks)


def _snappy_block(data: bytes, left: int, limit: int) -> bytes:
    try:
        size = cramjam.snappy.decompress_raw_len(data)
        if size > left:
            raise DecompressesTooLarge(limit)
        return bytes(cramjam.snappy.decompress_raw(data))
    except cramjam.DecompressionError as error:
        raise CannotDecompress(f"snappy: {error}") from error


def _xerial(data: bytes) -> bytes:
    parts = [_XERIAL_HEADER]
    for at in range(0, len(data), _XERIAL_BLOCK):
        block = bytes(cramjam.snappy.compress_raw(data[at : at + _XERIAL_BLOCK]))
        parts.append(len(block).to_bytes(4, "big"))
        parts.append(block)
    return b"".join(parts)
