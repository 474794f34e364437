"""The key hash against the vectors of Danube's Key-Shared dispatcher."""

from __future__ import annotations

import pytest

from dispatcher.core.routing.hashes import key_hash32, offset_hash32

VECTORS = [
    ("", 0xC610FF71),
    ("a", 0x767D5927),
    ("payment", 0xFCF9E347),
    ("order-123", 0xCC728681),
    ("order-124", 0xF2925914),
    ("key-0", 0x73FC8F4C),
    ("1-0", 0x457B844A),
    ("2-0", 0x5F67BC2B),
    ("3-99", 0x58565850),
    ("ключ", 0x40002198),
]


@pytest.mark.parametrize(("text", "expected"), VECTORS)
def test_vectors(text: str, expected: int) -> None:
    assert key_hash32(text.encode()) == expected


def test_bytes_that_are_no_text() -> None:
    """Against the textbook form with 64-bit products, over every byte value and length to 300."""
    data = bytes(range(256)) + b"\xff" * 44
    for size in range(len(data) + 1):
        assert key_hash32(data[:size]) == _textbook(data[:size])


def test_offsets_spread() -> None:
    halves = [0, 0]
    for offset in range(0, 20_000, 2):  # every other record has no key
        halves[offset_hash32(offset) >> 31] += 1
    assert min(halves) > 4_800


def test_offsets_above_32_bits_differ() -> None:
    assert len({offset_hash32(offset << 32) for offset in range(1_000)}) > 990
    assert 0 <= offset_hash32(2**63 - 1) < 2**32


def _textbook(data: bytes) -> int:
    wide = 0xCBF29CE484222325
    for byte in data:
        wide = ((wide ^ byte) * 0x100000001B3) % 2**64
    mixed = ((wide >> 32) ^ wide) % 2**32
    mixed ^= mixed >> 16
    mixed = mixed * 0x85EBCA6B % 2**32
    mixed ^= mixed >> 13
    mixed = mixed * 0xC2B2AE35 % 2**32
    return mixed ^ (mixed >> 16)
