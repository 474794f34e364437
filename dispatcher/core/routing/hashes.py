"""The key hash of the ring: FNV-1a over the bytes, folded to 32 bits, finished as murmur3 does.

The same numbers as Danube's Key-Shared dispatcher, whose vectors the tests hold. All products stay
below 2^63, so that native integers of compiled code and Python's own give the same answers.
"""

from __future__ import annotations

from typing import Final

from mypy_extensions import i64

_LOW32: Final = 0xFFFFFFFF
# FNV-1a's offset basis 0xcbf29ce484222325 in two halves; its prime is 2^40 + 0x1b3.
_BASIS_HIGH: Final = 0xCBF29CE4
_BASIS_LOW: Final = 0x84222325
_PRIME_LOW: Final = 0x1B3


def key_hash32(key: bytes) -> i64:
    """The hash of a key or of a ring label, 0 to 2^32 - 1."""
    high: i64 = _BASIS_HIGH
    low: i64 = _BASIS_LOW
    size: i64 = len(key)
    at: i64 = 0
    while at < size:
        low ^= key[at]
        product: i64 = low * _PRIME_LOW
        high = (high * _PRIME_LOW + (product >> 32) + (low << 8)) & _LOW32
        low = product & _LOW32
        at += 1
    return finish32(high ^ low)


def offset_hash32(offset: i64) -> i64:
    """The hash of an offset, 0 to 2^32 - 1: neighbours land far apart."""
    return finish32((offset >> 32) ^ (offset & _LOW32))


def finish32(mixed: i64) -> i64:
    """murmur3's finaliser: every input bit reaches every output bit. Both are 32 bits, unsigned."""
    mixed ^= mixed >> 16
    mixed = times32(mixed, 0x85EBCA6B)
    mixed ^= mixed >> 13
    mixed = times32(mixed, 0xC2B2AE35)
    return mixed ^ (mixed >> 16)


def times32(left: i64, right: i64) -> i64:
    """The low 32 bits of the product of two 32-bit numbers, which itself may need 64."""
    upper: i64 = ((left >> 16) * right) & 0xFFFF
    return ((left & 0xFFFF) * right + (upper << 16)) & _LOW32
