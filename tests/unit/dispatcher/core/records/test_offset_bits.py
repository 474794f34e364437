"""A set of offsets in stretches of bits."""

from __future__ import annotations

from random import Random

from dispatcher.core.limits import STRETCH_OFFSETS
from dispatcher.core.records.offset_bits import OffsetBits, lowest


def test_it_is_a_set_in_the_order_of_the_log() -> None:
    draw, bits, known = Random(7), OffsetBits(), set[int]()
    for _ in range(2_000):
        offset = draw.randrange(3 * STRETCH_OFFSETS) * draw.choice((1, 1_000))
        if offset in known:
            bits.remove(offset)
            known.remove(offset)
        else:
            bits.add(offset)
            known.add(offset)
    assert bits.count == len(known) > 500
    for count in (0, 1, 300, bits.count, bits.count + 1):
        assert bits.first(count) == sorted(known)[:count]
    for offset in known:
        assert bits.of(offset // STRETCH_OFFSETS) >> (offset % STRETCH_OFFSETS) & 1
        bits.remove(offset)
    assert (bits.count, bits.first(9), bits.of(0)) == (0, [], 0)


def test_the_lowest_bit() -> None:
    assert [lowest(bits) for bits in (0, 1, 0b1100, ~0b111)] == [-1, 0, 2, 3]
