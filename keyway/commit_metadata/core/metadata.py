"""The metadata of a committed offset: settled records beyond the cursor (ARCHITECTURE, Crashes).

    "kw1:" + base64url(crc32 of cursor, kind and body (4 bytes) | kind (1 byte) | body), no padding

The body is run lengths (run_lengths.py). With kind "O" the 8 bytes of the origin come first: the
incarnation of the window that is meant (dispatcher/core/stored/reconcile.py). With kind "P" the
time follows the origin, 8 bytes of milliseconds: when the group settled the last of these records.
A commit that had to wait for Kafka is late, the position it tells of is not.

Behind the run lengths may be the leader epochs of the log that is meant, and where each begins
(dispatcher/core/epochs.py): 4 and 8 bytes each. A version that does not know of them ignores them.
The checksum binds it all to its cursor: metadata copied to another offset, as tools that reset or
clone offsets do, is ignored.

Any span of 16,384 offsets fits, and so do 1,500 unsettled records with 5,000 settled ones between
each two. If the ranges do not fit, the shortest are left out: their records are delivered again
after a loss of the store, none is lost.
"""

from __future__ import annotations

import binascii
from base64 import urlsafe_b64decode, urlsafe_b64encode
from struct import Struct
from typing import NamedTuple

from keyway.commit_metadata.core.bitmap import united
from keyway.commit_metadata.core.run_lengths import NONE, packed, ranges_in
from keyway.commit_metadata.core.run_lengths import read as read_ranges

Epochs = tuple[tuple[int, int], ...]

PREFIX = "kw1:"
_HEAD_BYTES = 5  # checksum and kind
_NUMBER_BYTES = 8  # of the origin, and of the time
_KINDS = (b"N", b"O", b"P")  # by how many numbers stand before the run lengths
_EPOCH = Struct(">iq")


def encode(
    cursor: int,
    settled: list[tuple[int, int]],
    *,
    origin: int = 0,
    settled_ms: int = 0,
    epochs: Epochs = (),
    chars_max: int = 4_095,
) -> str:
    """Metadata of at most `chars_max` characters for a commit of `cursor`. Kafka takes 4,095 with
    its default offset.metadata.max.bytes of 4,096.

    `settled` as in `Snapshot`: ascending, disjoint, inclusive; offsets below the cursor are left
    out. "" if not even the frame fits. `origin` 0 = not known; `settled_ms` 0 = not known, and only
    told beside an origin. `epochs` go before settled ranges where there is not room for both; they
    are left out if they do not fit alone.
    """
    told = [number for number in (origin, settled_ms if origin else 0) if number]
    head = b"".join([number.to_bytes(_NUMBER_BYTES, "big") for number in told])
    size_max = (chars_max - len(PREFIX)) * 6 // 8 - _HEAD_BYTES - len(head)
    if size_max < 0:
        return ""
    ranges = united([(max(low, cursor), high) for low, high in settled if high >= cursor])
    tail = b"".join([_EPOCH.pack(epoch, start) for epoch, start in epochs])
    if len(tail) + len(NONE) > size_max:
        tail = b""
    body = packed(ranges, cursor, size_max - len(tail))
    return _framed(cursor, _KINDS[len(told)], head + (body or NONE if tail else body) + tail)


def decode(cursor: int, text: str) -> list[tuple[int, int]] | None:
    """The settled ranges of metadata that was committed with `cursor`.

    None: nobody's, another version's, another offset's, or damaged. Then everything from the cursor
    on is to be delivered again, the record at the cursor included.
    """
    _, body = _opened(cursor, text)
    return None if body is None else ranges_in(body, cursor)


class Told(NamedTuple):
    """`settled` as `decode` has it. `origin` 0, no `epochs`: not told, or not readable."""

    settled: list[tuple[int, int]] | None
    origin: int
    epochs: Epochs


def read(cursor: int, text: str) -> Told:
    head, body = _opened(cursor, text)
    if body is None:
        return Told(None, 0, ())
    settled, size = read_ranges(body, cursor)
    tail = body[size:]
    readable = settled is not None and len(tail) % _EPOCH.size == 0
    epochs = tuple(
        [(epoch, start) for epoch, start in _EPOCH.iter_unpack(tail)] if readable else []
    )
    return Told(settled, int.from_bytes(head[:_NUMBER_BYTES], "big"), epochs)


class Times(NamedTuple):
    """Of a commit; 0: not told, or not readable. `settled_ms`: when the last of its records was
    settled.
    """

    origin: int
    settled_ms: int


def read_times(cursor: int, text: str) -> Times:
    """Costs less than `read`."""
    head, _ = _opened(cursor, text)
    origin, settled_ms = head[:_NUMBER_BYTES], head[_NUMBER_BYTES:]
    return Times(int.from_bytes(origin, "big"), int.from_bytes(settled_ms, "big"))


def _opened(cursor: int, text: str) -> tuple[bytes, bytes | None]:
    """The numbers before the run lengths, and those; None if the checksum is wrong."""
    if not text.startswith(PREFIX):
        return b"", None
    coded = text[len(PREFIX) :]
    try:
        data = urlsafe_b64decode(coded + "==")  # more than is missing does no harm
    except ValueError:
        return b"", None
    kind, body = data[_HEAD_BYTES - 1 : _HEAD_BYTES], data[_HEAD_BYTES:]
    if kind not in _KINDS or _framed(cursor, kind, body) != text:
        return b"", None
    head_bytes = _KINDS.index(kind) * _NUMBER_BYTES
    if len(body) < head_bytes:
        return b"", None
    return body[:head_bytes], body[head_bytes:]


def _framed(cursor: int, kind: bytes, body: bytes) -> str:
    checksum = binascii.crc32(cursor.to_bytes(8, "big") + kind + body)
    data = checksum.to_bytes(4, "big") + kind + body
    return PREFIX + urlsafe_b64encode(data).decode("ascii").rstrip("=")
