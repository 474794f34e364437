"""Commit metadata over random, alternating and adversarial patterns of settled offsets."""

from __future__ import annotations

from bisect import bisect_right

import pytest
from hypothesis import given
from hypothesis import strategies as st

from keyway.commit_metadata.core.bitmap import ranges_of
from keyway.commit_metadata.core.metadata import decode, encode, read, read_times

SPAN = 16_384
Ranges = list[tuple[int, int]]
cursors = st.integers(0, 2**53)
# Hypothesis chooses the seed alone: a choice for each of 16,384 bits would take most of the time.
seeded = st.randoms(use_true_random=True)


@st.composite
def run_patterns(draw: st.DrawFn) -> bytes:
    """Clear and set runs in turn, of lengths around the limits of one and two bytes of varint."""
    shortest, longest = draw(
        st.sampled_from([(1, 1), (1, 2), (7, 9), (127, 129), (1, 300), (1, 20_000)])
    )
    random = draw(seeded)
    bits, bit = "", 0
    while len(bits) < SPAN:
        bits += str(bit) * random.randint(shortest, longest)
        bit ^= 1
    return int(bits[:SPAN][::-1], 2).to_bytes(SPAN // 8, "little")


patterns = st.one_of(
    st.binary(max_size=SPAN // 8),
    # Hypothesis' own bytes are mostly few and low; these are many and dense or thin.
    st.builds(
        lambda random, ones: bytes(
            sum((random.random() < ones) << bit for bit in range(8)) for _ in range(SPAN // 8)
        ),
        seeded,
        st.sampled_from([0.01, 0.1, 0.5, 0.9, 0.99]),
    ),
    run_patterns(),
)


numbers = st.one_of(st.just(0), st.integers(0, 2**63 - 1))


@given(cursors, patterns, numbers, numbers)
def test_the_default_span_always_fits_and_comes_back(
    cursor: int, bits: bytes, origin: int, settled_ms: int
) -> None:
    settled = ranges_of(bits, cursor)
    text = encode(cursor, settled, origin=origin, settled_ms=settled_ms)
    assert len(text) <= 4_095
    assert read_times(cursor, text) == (origin, settled_ms if origin else 0)
    assert text.isascii()
    assert decode(cursor, text) == settled
    assert read(cursor, text)[1] == origin


@given(cursors, patterns, st.integers(0, 4_095))
def test_truncation_forgets_but_never_invents(cursor: int, bits: bytes, chars_max: int) -> None:
    settled = ranges_of(bits, cursor)
    text = encode(cursor, settled, chars_max=chars_max)
    assert len(text) <= chars_max
    found = decode(cursor, text)
    if found is None:
        assert text == ""
        return
    for low, high in found:
        at = bisect_right(settled, (low, SPAN + cursor)) - 1
        assert settled[at][0] <= low <= high <= settled[at][1]


@given(cursors, st.integers(1, 2**33), patterns)
def test_metadata_is_bound_to_its_cursor(cursor: int, distance: int, bits: bytes) -> None:
    assert decode(cursor + distance, encode(cursor, ranges_of(bits, cursor))) is None


@given(cursors, st.text(max_size=60))
def test_any_text_at_all_is_read_or_refused(cursor: int, text: str) -> None:
    assert decode(cursor, text) is None
    assert decode(cursor, "kw1:" + text) is None


@pytest.mark.parametrize("period", [1, 2, 3, 7, 8, 9, 64, 127, 128, 129, 1_000, SPAN - 1])
def test_periodic_patterns_fit(period: int) -> None:
    for first in (0, 1, period - 1):
        settled: Ranges = [(o, o) for o in range(first, SPAN, max(2, period))]
        text = encode(0, settled)
        assert len(text) <= 4_095
        assert decode(0, text) == settled
