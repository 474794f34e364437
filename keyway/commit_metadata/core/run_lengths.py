"""Settled ranges in as few bytes as possible: run lengths, clear and set in turn, in Rice codes.

    varint: number of ranges | byte: shift | clear and set length of each, as bits | zeros to a byte

The lengths are of cells of 2^shift offsets. The shift is 0 as long as everything fits. Else each
cell with an unsettled offset is told as unsettled as a whole: with 2,000 records scattered over ten
million, cells of 8 fit.

A length, which is at least 1, is written less 1 in the Rice code of parameter k: the number shifted
right by k in ones, a zero, and the lower k bits. Clear and set lengths have a k each, which follows
the mean of the last lengths (as in JPEG-LS), so it is not told. Alternating offsets take a bit
each, as in a bitmap. A record that 5,000 others have passed takes 15 bits; its place alone, if it
is random, is worth 13.7.
"""

from __future__ import annotations

from typing import Final

from mypy_extensions import i64

from keyway.commit_metadata.core.limits import OFFSET_MAX

_ONES_MAX: Final = 24  # so many ones: the number follows in a fixed width
_WIDTH_BITS: Final = 6
_K_MAX: Final = 40
_FOLLOWED_MAX: Final = 1 << _K_MAX
_ALL_BITS: Final = OFFSET_MAX - 1  # 62
_SHIFT_MAX: Final = 40
_LENGTH_MAX: Final = OFFSET_MAX >> 1  # two of them do not overflow
_REMEMBERED: Final = 32  # lengths that k follows


class _Parameter:
    def __init__(self) -> None:
        self.sum: i64 = 256  # a guess
        self.count: i64 = 1

    def k(self) -> i64:
        k: i64 = 0
        while k < _K_MAX and self.count << k < self.sum:
            k += 1
        return k

    def follow(self, number: i64) -> None:
        self.sum += min(number, _FOLLOWED_MAX)
        self.count += 1
        if self.count == _REMEMBERED:
            self.sum >>= 1
            self.count >>= 1


class _BitWriter:
    def __init__(self) -> None:
        self.out = bytearray()
        self._pending: i64 = 0
        self._bits: i64 = 0  # of `_pending`: less than 8 between two calls

    def put(self, number: i64, bits: i64) -> None:
        """At most 32 bits."""
        pending: i64 = (self._pending << bits) | number
        count: i64 = self._bits + bits
        while count >= 8:
            count -= 8
            self.out.append(pending >> count)
            pending &= _mask(count)
        self._pending = pending
        self._bits = count

    def put_long(self, number: i64, bits: i64) -> None:
        if bits > 32:
            self.put(number >> 32, bits - 32)
            bits = 32
        self.put(number & _mask(bits), bits)

    def size(self) -> int:
        return len(self.out) + (1 if self._bits else 0)

    def closed(self) -> bytes:
        if self._bits:
            self.put(0, 8 - self._bits)
        return bytes(self.out)


class _BitReader:
    def __init__(self, data: bytes, at: int) -> None:
        self._data = data
        self._at: i64 = at * 8  # bits

    def take(self, bits: i64) -> i64:
        """Raises IndexError at the end of the data."""
        number: i64 = 0
        for _ in range(bits):
            at: i64 = self._at
            number = (number << 1) | ((i64(self._data[at >> 3]) >> (7 - (at & 7))) & 1)
            self._at = at + 1
        return number

    def bytes_taken(self) -> int:
        return (self._at + 7) >> 3


NONE: Final = b"\0\0"  # no ranges, where something may follow


def packed(ranges: list[tuple[int, int]], start: int, size_max: int) -> bytes:
    """Ascending, disjoint, non-adjacent, inclusive ranges at or behind `start`, in at most
    `size_max` bytes. If they do not fit, the cells are larger, and of each range the whole cells
    are told. Empty: there are none.
    """
    for shift in range(_SHIFT_MAX):
        body = _packed(ranges, start, size_max, shift)
        if body is not None:
            return body
    return b""


def _packed(ranges: list[tuple[int, int]], start: i64, size_max: int, shift: i64) -> bytes | None:
    """None: too many."""
    out = _BitWriter()
    clear, settled = _Parameter(), _Parameter()
    count: i64 = 0
    end: i64 = -1  # so that the first clear length is at least 1
    up = _mask(shift)
    for first, last in ranges:
        low: i64 = (first - start + up) >> shift
        behind: i64 = (last + 1 - start) >> shift
        if low >= behind:
            continue
        _put(out, clear, low - end - 1)
        _put(out, settled, behind - low - 1)
        end = behind
        count += 1
        if len(out.out) >= size_max:
            return None
    if count == 0:
        return b""
    body = bytes(_varint(count)) + bytes([shift]) + out.closed()
    return body if len(body) <= size_max else None


def ranges_in(data: bytes, start: int) -> list[tuple[int, int]] | None:
    """What `packed` made; None: nothing that it makes."""
    return read(data, start)[0]


def read(data: bytes, start: int) -> tuple[list[tuple[int, int]] | None, int]:
    """As `ranges_in`, and how many bytes they take: others may follow."""
    if not data:
        return [], 0
    number = places = at = 0
    for byte in data[:5]:
        at += 1
        number |= (byte & 127) << places
        places += 7
        if byte < 128:
            break
    if at == len(data) or data[at - 1] > 127 or data[at] >= _SHIFT_MAX or start > OFFSET_MAX:
        return None, 0
    shift: i64 = data[at]
    cells_max: i64 = (OFFSET_MAX - start) >> shift
    bits = _BitReader(data, at + 1)
    clear, settled = _Parameter(), _Parameter()
    ranges: list[tuple[int, int]] = []
    end: i64 = -1
    try:
        for _ in range(number):  # each takes bits, which end
            low: i64 = end + 1 + _take(bits, clear)
            if low > cells_max:
                return None, 0
            end = low + 1 + _take(bits, settled)
            if end > cells_max:
                return None, 0
            ranges.append((start + (low << shift), start + (end << shift) - 1))
    except IndexError:
        return None, 0
    return ranges, bits.bytes_taken()


def _varint(number: i64) -> bytearray:
    out = bytearray()
    while number > 127:
        out.append((number & 127) | 128)
        number >>= 7
    out.append(number)
    return out


def _put(out: _BitWriter, parameter: _Parameter, number: i64) -> None:
    k = parameter.k()
    ones: i64 = number >> k
    if ones < _ONES_MAX:
        out.put(_mask(ones) << 1, ones + 1)
        out.put_long(number & _mask(k), k)
    else:
        out.put(_mask(_ONES_MAX), _ONES_MAX)
        width: i64 = 0
        while number >> width:
            width += 1
        out.put(width, _WIDTH_BITS)
        out.put_long(number, width)
    parameter.follow(number)


def _take(bits: _BitReader, parameter: _Parameter) -> i64:
    """Raises IndexError, also of a number that is too large."""
    ones: i64 = 0
    while ones < _ONES_MAX and bits.take(1):
        ones += 1
    if ones < _ONES_MAX:
        k = parameter.k()
        number = (ones << k) | bits.take(k)
    else:
        number = bits.take(bits.take(_WIDTH_BITS))
    if number < 0 or number > _LENGTH_MAX:
        raise IndexError
    parameter.follow(number)
    return number


def _mask(bits: i64) -> i64:
    """At most 40 bits."""
    return _ALL_BITS >> (62 - bits)  # 1 << bits compiles to a shift of 32 bits
