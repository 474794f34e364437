"""Settled offsets as bits and as ranges.

Bit b of byte i stands for offset `first` + 8*i + b, b=0 the lowest bit.
"""

from __future__ import annotations

from collections.abc import Sequence

from mypy_extensions import i64


def ranges_of(bits: bytes, first: int) -> list[tuple[int, int]]:
    """The set bits as ascending, disjoint, non-adjacent inclusive ranges of offsets."""
    ranges: list[tuple[int, int]] = []
    size: i64 = len(bits) * 8
    low: i64 = _next(bits, 0, 0)
    while low < size:
        high: i64 = _next(bits, low, 255)
        ranges.append((first + low, first + high - 1))
        low = _next(bits, high, 0)
    return ranges


def _next(bits: bytes, start: i64, skip: i64) -> i64:
    """The first bit from `start` on that is not as in `skip` (0: all clear, 255: all set)."""
    size: i64 = len(bits)
    at: i64 = start >> 3
    if at >= size:
        return start
    rest: i64 = (bits[at] ^ skip) >> (start & 7)
    here: i64 = start
    while rest == 0:
        at += 1
        if at >= size:
            return size * 8
        rest = bits[at] ^ skip
        here = at * 8
    while rest & 1 == 0:
        rest >>= 1
        here += 1
    return here


def bits_of(ranges: Sequence[tuple[int, int]], first: int, size: int) -> bytearray:
    """`size` bytes of bitmap from offset `first` on; parts of `ranges` outside are left out."""
    bits = bytearray(size)
    end = first + size * 8
    for low, high in ranges:
        if high >= first and low < end:
            set_range(bits, max(low, first) - first, min(high, end - 1) - first)
    return bits


def set_range(bits: bytearray, low: int, high: int) -> None:
    """Sets bits `low` to `high`, both inclusive."""
    first_byte, last_byte = low >> 3, high >> 3
    first_mask, last_mask = (0xFF << (low & 7)) & 0xFF, 0xFF >> (7 - (high & 7))
    if first_byte == last_byte:
        bits[first_byte] |= first_mask & last_mask
        return
    bits[first_byte] |= first_mask
    bits[last_byte] |= last_mask
    bits[first_byte + 1 : last_byte] = b"\xff" * (last_byte - first_byte - 1)


def united(ranges: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """The union of ranges in any order, overlapping or not: ascending, disjoint, non-adjacent."""
    result: list[tuple[int, int]] = []
    for low, high in sorted(ranges):
        if result and low <= result[-1][1] + 1:
            result[-1] = (result[-1][0], max(result[-1][1], high))
        else:
            result.append((low, high))
    return result
