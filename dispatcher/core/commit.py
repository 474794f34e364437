"""The metadata of a committed offset: what is settled beyond the cursor (ARCHITECTURE, Crashes).

    "kw1:" + base64url(crc32 of cursor, kind and body (4 bytes) | kind (1 byte) | body), no padding

The body is a bitmap (kind "b": bit b of byte i stands for offset cursor + 8*i + b, trailing zeros
left out) or run lengths (kind "r": varints of clear, set, clear, set … from the cursor on),
whichever is shorter. The checksum binds it to its cursor: metadata copied to another offset, as
tools that reset or clone offsets do, is not believed.

A bitmap of the default span of 16,384 offsets takes at most 2,742 characters, so it always fits the
4,095 that Kafka accepts. What does not fit (a larger span, a smaller limit of the broker) is left
out from the far end: those records are delivered again after a loss of the store, none is lost.
"""

from __future__ import annotations

import binascii
from base64 import urlsafe_b64decode, urlsafe_b64encode

from mypy_extensions import i64

from dispatcher.core.bitmap import bits_of, ranges_of

CHARS_MAX = 4_095  # what Kafka takes with its default offset.metadata.max.bytes of 4,096
PREFIX = "kw1:"
_HEAD_BYTES = 5  # checksum and kind
_BITMAP, _RUNS = b"b", b"r"
_NUMBER_BYTES_MAX = 9  # of a varint below 2^63


def encode(cursor: int, settled: list[tuple[int, int]], *, chars_max: int = CHARS_MAX) -> str:
    """Metadata of at most `chars_max` characters for a commit of `cursor`.

    `settled` as in `Snapshot`: ascending, disjoint, inclusive; what lies below the cursor is left
    out. "" if not even the frame fits.
    """
    size_max = (chars_max - len(PREFIX)) * 6 // 8 - _HEAD_BYTES
    if size_max < 0:
        return ""
    ranges = [(max(low, cursor), high) for low, high in settled if high >= cursor]
    runs, runs_end = _runs(ranges, cursor, size_max)
    bits_end = min(ranges[-1][1] + 1 if ranges else cursor, cursor + 8 * size_max)
    if runs_end == bits_end or not ranges:
        # Both say as much. The bitmap is only made if it is the shorter one.
        shorter = _RUNS if len(runs) <= (bits_end - cursor + 7) // 8 else _BITMAP
    else:
        shorter = _RUNS if _count(ranges, runs_end) >= _count(ranges, bits_end) else _BITMAP
    if shorter == _RUNS:
        return _framed(cursor, _RUNS, runs)
    bits = bytes(bits_of(ranges, cursor, (bits_end - cursor + 7) // 8))
    return _framed(cursor, _BITMAP, bits)


def decode(cursor: int, text: str) -> list[tuple[int, int]] | None:
    """The settled ranges of metadata that was committed with `cursor`.

    None: nobody's, another version's, another offset's or damaged. Then everything from the cursor
    on is to be delivered again, the record at the cursor included.
    """
    if not text.startswith(PREFIX):
        return None
    coded = text[len(PREFIX) :]
    try:
        data = urlsafe_b64decode(coded + "=" * (-len(coded) % 4))
    except ValueError:
        return None
    kind, body = data[_HEAD_BYTES - 1 : _HEAD_BYTES], data[_HEAD_BYTES:]
    if kind not in (_BITMAP, _RUNS) or _framed(cursor, kind, body) != text:
        return None
    if kind == _BITMAP:
        return ranges_of(body, cursor)
    return _ranges_of_runs(body, cursor)


def _framed(cursor: int, kind: bytes, body: bytes) -> str:
    checksum = binascii.crc32(cursor.to_bytes(8, "big", signed=True) + kind + body)
    data = checksum.to_bytes(4, "big") + kind + body
    return PREFIX + urlsafe_b64encode(data).decode("ascii").rstrip("=")


def _runs(ranges: list[tuple[int, int]], cursor: int, size_max: int) -> tuple[bytes, int]:
    """The run lengths of as many ranges as fit `size_max` bytes, and the offset after the last."""
    out = bytearray()
    end: i64 = cursor
    for low, high in ranges:
        size = len(out)
        _write_varint(out, low - end)
        _write_varint(out, high + 1 - low)
        if len(out) > size_max:
            del out[size:]
            break
        end = high + 1
    return bytes(out), end


def _ranges_of_runs(body: bytes, cursor: int) -> list[tuple[int, int]] | None:
    numbers: list[int] = []
    number: i64 = 0
    shift: i64 = 0
    for byte in body:
        number |= (byte & 127) << shift
        if byte < 128:
            numbers.append(number)
            number = shift = 0
        else:
            shift += 7
            if shift >= 7 * _NUMBER_BYTES_MAX:
                return None
    if shift or len(numbers) % 2:
        return None
    ranges: list[tuple[int, int]] = []
    at = cursor
    for place in range(0, len(numbers), 2):
        low = at + numbers[place]
        at = low + numbers[place + 1]
        ranges.append((low, at - 1))
    return ranges


def _write_varint(out: bytearray, value: i64) -> None:
    while value > 127:
        out.append((value & 127) | 128)
        value >>= 7
    out.append(value)


def _count(ranges: list[tuple[int, int]], end: int) -> int:
    """Settled offsets below `end`."""
    return sum(min(high + 1, end) - low for low, high in ranges if low < end)
