"""Flat lists of ascending numbers, where `bisect` would make an object of each that it looks at."""

from __future__ import annotations

from librt.vecs import vec
from mypy_extensions import i64


def place_of(numbers: vec[i64], first: i64, number: i64) -> i64:
    """Where it is among the ascending `numbers` from `first` on, or where it would be."""
    low = first
    high: i64 = len(numbers)
    while low < high:
        middle: i64 = (low + high) >> 1
        if numbers[middle] < number:
            low = middle + 1
        else:
            high = middle
    return low
