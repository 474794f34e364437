"""The metadata of a committed offset: settled records beyond the cursor (ARCHITECTURE, Crashes).

    "kw1:" + base64url(crc32 of cursor, kind and body (4 bytes) | kind (1 byte) | body), no padding

The body is a bitmap (kind "b": bit b of byte i stands for offset cursor + 8*i + b, trailing zeros
left out), or run lengths (kind "r": varints of clear, set, clear, set … from the cursor on), or
both (kind "m": a varint, so many bytes of run lengths, and a bitmap from their end on). Run lengths
tell of a few records far behind the others, a bitmap of the others. The form is chosen that says
most, or the shortest of those.

With kinds "B", "R" and "M" the body begins with the 8 bytes of the origin: the incarnation of the
window that is meant (dispatcher/core/stored/reconcile.py). With kinds "T", "U" and "V" the time
follows the origin, 8 bytes of milliseconds: when the group settled the last of these records. A
commit that had to wait for Kafka is late, the position it tells of is not.
The checksum binds it all to its cursor: metadata copied to another offset, as tools that reset or
clone offsets do, is ignored.

A bitmap of the default span of 16,384 offsets takes at most 2,763 characters. That leaves 1,000
bytes of the 4,095 characters that Kafka accepts, for some 250 records that the others have passed
by 10,000 offsets each; without a busy span they are 750. If the ranges do not fit, the far end is
left out: its records are delivered again after a loss of the store, none is lost.
"""

from __future__ import annotations

import binascii
from base64 import urlsafe_b64decode, urlsafe_b64encode
from bisect import bisect_left
from typing import NamedTuple

from mypy_extensions import i64

from keyway.commit_metadata.core.bitmap import bits_of, ranges_of, united
from keyway.commit_metadata.core.limits import OFFSET_MAX

PREFIX = "kw1:"
_HEAD_BYTES = 5  # checksum and kind
_BITMAP, _RUNS, _MIXED = b"b", b"r", b"m"
_NUMBER_BYTES = 8  # of the origin, and of the time
# By kind: the form of the body, and how many numbers stand before it.
_KINDS = {
    b"b": (_BITMAP, 0),
    b"r": (_RUNS, 0),
    b"B": (_BITMAP, 1),
    b"R": (_RUNS, 1),
    b"T": (_BITMAP, 2),
    b"U": (_RUNS, 2),
    b"m": (_MIXED, 0),
    b"M": (_MIXED, 1),
    b"V": (_MIXED, 2),
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
    said = [(by_runs, -len(runs), _RUNS, runs), (by_bits, -len(bits), _BITMAP, bits)]
    if max(by_runs, by_bits) < sum(high + 1 - low for low, high in ranges):
        said.append(_mixed(ranges, cursor, size_max))
    # The form that says more, and the shorter one if both say the same.
    _, _, kind, body = max(said)
    forms = {form: letter for letter, (form, numbers) in _KINDS.items() if numbers == len(told)}
    return _framed(cursor, forms[kind], head + body)


def decode(cursor: int, text: str) -> list[tuple[int, int]] | None:
    """The settled ranges of metadata that was committed with `cursor`.

    None: nobody's, another version's, another offset's, or damaged. Then everything from the cursor
    on is to be delivered again, the record at the cursor included.
    """
    return read(cursor, text)[0]


def read(cursor: int, text: str) -> tuple[list[tuple[int, int]] | None, int]:
    """The settled ranges as `decode` has them, and the origin; origin 0: none, or not readable."""
    form, head, body = _opened(cursor, text)
    origin = int.from_bytes(head[:_NUMBER_BYTES], "big")
    if form == _BITMAP:
        return ranges_of(body, cursor), origin
    if form == _RUNS:
        return _ranges_of_runs(body, cursor), origin
    return _ranges_of_both(body, cursor) if form == _MIXED else None, origin


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


def _mixed(
    ranges: list[tuple[int, int]], cursor: int, size_max: int
) -> tuple[int, int, bytes, bytes]:
    """The first ranges as run lengths and the others as a bitmap, with as many as say most; and how
    many offsets they have. The search is O(ranges that fit).
    """
    lows = [low for low, _ in ranges]
    before = [0]  # offsets of the ranges before each
    for low, high in ranges:
        before.append(before[-1] + high + 1 - low)
    best, split, start = -1, 0, cursor  # the ranges before `split` are run lengths, up to `start`
    runs = bytearray()
    end = cursor
    for at, (low, high) in enumerate([*ranges, (OFFSET_MAX, OFFSET_MAX)]):
        space = size_max - _varint_size(len(runs)) - len(runs)
        if space < 0:
            break
        limit = end + 8 * space
        behind = bisect_left(lows, limit)
        count = before[max(behind, at)]
        if behind > at:
            count -= max(ranges[behind - 1][1] + 1 - limit, 0)
        if count > best:
            best, split, start = count, at, end
        _write_varint(runs, low - end)
        _write_varint(runs, high + 1 - low)
        end = high + 1
    if best < 0:
        return best, 0, _MIXED, b""
    runs = bytearray(_runs(ranges[:split], cursor, size_max)[0])
    out = bytearray()
    _write_varint(out, len(runs))
    out += runs
    out += bits_of(ranges[split:], start, size_max - len(out)).rstrip(b"\0")
    return best, -len(out), _MIXED, bytes(out)


def _ranges_of_both(body: bytes, cursor: int) -> list[tuple[int, int]] | None:
    size = shift = at = 0
    for byte in body:
        at += 1
        size |= (byte & 127) << shift
        shift += 7
        if byte < 128:
            break
    else:
        return None
    if at + size > len(body):
        return None
    ranges = _ranges_of_runs(body[at : at + size], cursor)
    if ranges is None:
        return None
    start = ranges[-1][1] + 1 if ranges else cursor
    return united([*ranges, *ranges_of(body[at + size :], start)])


def _ranges_of_runs(body: bytes, cursor: int) -> list[tuple[int, int]] | None:
    ranges: list[tuple[int, int]] = []
    at = cursor
    number = 0  # not an i64: any number of bytes may come
    shift = 0
    settled = False
    for byte in body:
        number |= (byte & 127) << shift
        shift += 7
        if at + number > OFFSET_MAX:
            return None
        if byte < 128:
            if settled:
                ranges.append((at, at + number - 1))
            at += number
            number = shift = 0
            settled = not settled
    return None if shift or settled else ranges


def _varint_size(value: i64) -> int:
    size = 1
    while value > 127:
        size += 1
        value >>= 7
    return size


def _write_varint(out: bytearray, value: i64) -> None:
    while value > 127:
        out.append((value & 127) | 128)
        value >>= 7
    out.append(value)
