from __future__ import annotations

from bisect import bisect_left

from hypothesis import given
from hypothesis import strategies as st
from librt.vecs import vec
from mypy_extensions import i64

from dispatcher.core.ascending import place_of

NUMBERS = st.integers(-50, 50)


@given(st.lists(NUMBERS), NUMBERS, st.integers(0, 10))
def test_it_is_where_bisect_finds_it(numbers: list[int], number: int, first: int) -> None:
    numbers.sort()
    first = min(first, len(numbers))
    assert place_of(vec[i64](numbers), first, number) == bisect_left(numbers, number, first)
