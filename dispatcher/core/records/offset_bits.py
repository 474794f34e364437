"""A set of offsets, a bit for each, in stretches of STRETCH_OFFSETS. Of a million of them the first
few are found in the order of the log, and the set is compared with another one stretch by stretch.
"""

from __future__ import annotations

from dispatcher.core.limits import STRETCH_OFFSETS

_BITS_OF = [[bit for bit in range(8) if byte >> bit & 1] for byte in range(256)]


class OffsetBits:
    def __init__(self) -> None:
        self.count = 0
        self._bits: dict[int, int] = {}  # by stretch; none is 0

    def __repr__(self) -> str:
        return f"<{self.count} offsets in {len(self._bits)}>"

    def of(self, stretch: int) -> int:
        """The bits of one stretch."""
        return self._bits.get(stretch, 0)

    def add(self, offset: int) -> None:
        """Adds one that is not there."""
        number = offset // STRETCH_OFFSETS
        self._bits[number] = self._bits.get(number, 0) | (1 << (offset % STRETCH_OFFSETS))
        self.count += 1

    def remove(self, offset: int) -> None:
        number = offset // STRETCH_OFFSETS
        bits = self._bits[number] & ~(1 << (offset % STRETCH_OFFSETS))
        self.count -= 1
        if bits:
            self._bits[number] = bits
        else:
            del self._bits[number]

    def first(self, count: int) -> list[int]:
        """The first `count`, ascending. O(stretches + count)."""
        found: list[int] = []
        for number in sorted(self._bits):
            if len(found) >= count:
                break
            found += offsets_in(number, packed(self._bits[number]))
        return found[:count]


def lowest(bits: int) -> int:
    """The number of the lowest bit that is set; -1: none is."""
    return (bits & -bits).bit_length() - 1


def packed(bits: int) -> bytes:
    """Bit b of byte i stands for offset 8*i + b of the stretch; trailing zeros are left out."""
    return bits.to_bytes((bits.bit_length() + 7) // 8, "little")


def offsets_in(stretch: int, data: bytes) -> list[int]:
    """The offsets of one stored stretch, ascending."""
    base = stretch * STRETCH_OFFSETS
    found: list[int] = []
    for byte in data:
        for bit in _BITS_OF[byte]:
            found.append(base + bit)  # noqa: PERF401 - compiled, it is faster
        base += 8
    return found
