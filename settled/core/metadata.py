"""The metadata of a committed offset: settled records beyond the cursor (ARCHITECTURE, Crashes).

    "kw1:" + base64url(crc32 of cursor, kind and body (4 bytes) | kind (1 byte) | body), no padding

The body is a bitmap (kind "b": bit b of byte i stands for offset cursor + 8*i + b, trailing zeros
left out) or run lengths (kind "r": varints of clear, set, clear, set … from the cursor on),
whichever is shorter. With kinds "B" and "R" it begins with the 8 bytes of the origin: the
incarnation of the window that is meant (dispatcher/core/reconcile.py). With kinds "T" (bitmap) and
"U" (run lengths) the time follows the origin, 8 bytes of milliseconds: when the group settled the
last of these records. A commit that had to wait for Kafka is late, the position it tells of is not.
The checksum binds it all to its cursor: metadata copied to another offset, as tools that reset or
clone offsets do, is ignored.

A bitmap of the default span of 16,384 offsets takes at most 2,763 characters, so it always fits the
4,095 that Kafka accepts. If the ranges do not fit (a larger span, a smaller limit of the broker),
the far end is left out: its records are delivered again after a loss of the store, none is lost.
"""

from __future__ import annotations

import binascii
from base64 import urlsafe_b64decode, urlsafe_b64encode
from typing import NamedTuple

from mypy_extensions import i64

from settled.core.bitmap import bits_of, ranges_of
from settled.core.limits import SPAN_OFFSETS_MAX

PREFIX = "kw1:"
_HEAD_BYTES = 5  # checksum and kind
_BITMAP, _RUNS = b"b", b"r"
_NUMBER_BYTES = 8  # of the origin, and of the time
# By kind: the form of the body, and how many numbers stand before it.
_KINDS = {
    b"b": (_BITMAP, 0),
    b"r": (_RUNS, 0),
    b"B": (_BITMAP, 1),
    b"R": (_RUNS, 1),
    b"T": (_BITMAP, 2),
    b"U": (_RUNS, 2),
}


def encode(
    cursor: int,
    settled: list[tuple[int, int]],
    *,
    origin: int = 0,
    settled_ms: int = 0,
    chars_max: int = 4_095,
) -> str:
    """Metadata of at most `chars_max` characters for a commit of `cursor`. Kafka takes 4,095 with
    its default offset.metadata.max.bytes of 4,096.

    `settled` as in `Snapshot`: ascending, disjoint, inclusive; offsets below the cursor are left
    out. "" if not even the frame fits. `origin` 0 = not known; `settled_ms` 0 = not known, and only
    told beside an origin.
    """
    told = [it for it in (origin, settled_ms if origin else 0) if it]
    head = b"".join([it.to_bytes(_NUMBER_BYTES, "big") for it in told])
    size_max = (chars_max - len(PREFIX)) * 6 // 8 - _HEAD_BYTES - len(head)
    if size_max < 0:
        return ""
    ranges = [(max(low, cursor), high) for low, high in settled if high >= cursor]
    runs, by_runs = _runs(ranges, cursor, size_max)
    bits = bytes(bits_of(ranges, cursor, size_max).rstrip(b"\0"))
    by_bits = int.from_bytes(bits, "little").bit_count()
    # The form that says more, and the shorter one if both say the same.
    _, _, kind, body = max((by_runs, -len(runs), _RUNS, runs), (by_bits, -len(bits), _BITMAP, bits))
    forms = {form: letter for letter, (form, numbers) in _KINDS.items() if numbers == len(told)}
    return _framed(cursor, forms[kind], head + body)


def decode(cursor: int, text: str) -> list[tuple[int, int]] | None:
    """The settled ranges of metadata that was committed with `cursor`.

    None: nobody's, another version's, another offset's, damaged, or of more offsets than a window
    can have. Then everything from the cursor on is to be delivered again, the record at the cursor
    included.
    """
    return read(cursor, text)[0]


def read(cursor: int, text: str) -> tuple[list[tuple[int, int]] | None, int]:
    """The settled ranges as `decode` has them, and the origin; origin 0: none, or not readable."""
    form, head, body = _opened(cursor, text)
    origin = int.from_bytes(head[:_NUMBER_BYTES], "big")
    if form == _BITMAP:
        return ranges_of(body, cursor), origin
    return _ranges_of_runs(body, cursor) if form == _RUNS else None, origin


class Times(NamedTuple):
    """Of a commit; 0: not told, or not readable. `settled_ms`: when the last of its records was
    settled.
    """

    origin: int
    settled_ms: int


def read_times(cursor: int, text: str) -> Times:
    """Costs less than `read`."""
    _, head, _ = _opened(cursor, text)
    origin, settled_ms = head[:_NUMBER_BYTES], head[_NUMBER_BYTES:]
    return Times(int.from_bytes(origin, "big"), int.from_bytes(settled_ms, "big"))


def _opened(cursor: int, text: str) -> tuple[bytes, bytes, bytes]:
    """Form, the numbers before the body, and the body; all empty if the checksum is wrong."""
    nothing = b"", b"", b""
    if not text.startswith(PREFIX):
        return nothing
    coded = text[len(PREFIX) :]
    try:
        data = urlsafe_b64decode(coded + "==")  # more than is missing does no harm
    except ValueError:
        return nothing
    kind, body = data[_HEAD_BYTES - 1 : _HEAD_BYTES], data[_HEAD_BYTES:]
    if kind not in _KINDS or _framed(cursor, kind, body) != text:
        return nothing
    form, numbers = _KINDS[kind]
    head_bytes = numbers * _NUMBER_BYTES
    if len(body) < head_bytes:
        return nothing
    return form, body[:head_bytes], body[head_bytes:]


def _framed(cursor: int, kind: bytes, body: bytes) -> str:
    checksum = binascii.crc32(cursor.to_bytes(8, "big") + kind + body)
    data = checksum.to_bytes(4, "big") + kind + body
    return PREFIX + urlsafe_b64encode(data).decode("ascii").rstrip("=")


def _runs(ranges: list[tuple[int, int]], cursor: int, size_max: int) -> tuple[bytes, int]:
    """The run lengths of as many ranges as fit `size_max` bytes, and how many offsets they have."""
    out = bytearray()
    end: i64 = cursor
    count: i64 = 0
    for low, high in ranges:
        size = len(out)
        _write_varint(out, low - end)
        _write_varint(out, high + 1 - low)
        if len(out) > size_max:
            del out[size:]
            break
        end = high + 1
        count += end - low
    return bytes(out), count


def _ranges_of_runs(body: bytes, cursor: int) -> list[tuple[int, int]] | None:
    ranges: list[tuple[int, int]] = []
    at = cursor
    number = 0  # not an i64: any number of bytes may come
    shift = 0
    settled = False
    for byte in body:
        number |= (byte & 127) << shift
        shift += 7
        if at + number - cursor > SPAN_OFFSETS_MAX:
            return None
        if byte < 128:
            if settled:
                ranges.append((at, at + number - 1))
            at += number
            number = shift = 0
            settled = not settled
    return None if shift or settled else ranges


def _write_varint(out: bytearray, value: i64) -> None:
    while value > 127:
        out.append((value & 127) | 128)
        value >>= 7
    out.append(value)
