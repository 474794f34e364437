"""The scan of record batches: one pass over all records of an answer, in steps.

A batch of hundreds of thousands of tiny records takes a tenth of a second; others go in between.
"""

from __future__ import annotations

from typing import Final, final

from crc32c import crc32c
from librt.strings import read_i16_be, read_i32_be, read_i64_be
from mypy_extensions import i64

from gateway.core.limits import (
    AS_DEAR_LZ4,
    AS_DEAR_SNAPPY,
    AS_DEAR_ZSTD,
    LONG_STEP_BYTES,
    LONG_STEP_COMPRESSED_BYTES,
)
from gateway.core.wire.batches import (
    BODY_BYTES_MAX,
    CODEC_MASK,
    CONTROL,
    CONTROL_NONE,
    HEADER_SIZE,
    UNBOUNDED,
    Batch,
    CorruptBatch,
    TooLargeBatch,
    UnsupportedMagic,
)
from gateway.core.wire.compress import (
    CannotDecompress,
    Compression,
    DecompressesTooLarge,
    decompress,
)
from gateway.core.wire.long_bytes import Stretch

# Of one batch. librdkafka puts no more together, Java fewer. Their columns take 130 MB of
# memory, while 128 MiB could be 18 million records without a byte of value.
BATCH_RECORDS_MAX: Final = 1_000_000

_OFFSET_MAX: Final = 2**63 - 1 - 2**31  # with the largest delta still an i64


def scan(
    data: bytes | Stretch,
    *,
    check_crc: bool = True,
    body_max: int = BODY_BYTES_MAX,
    enough: int = UNBOUNDED,
) -> list[Batch]:
    """The whole batches of a Fetch response's records; a cut-off last one is left out, as
    consumers do.

    `body_max` bounds each batch's decompressed records, in bytes; batches after `enough` bytes of
    memory in all are left out, too: a batch of 2 KB can be 64 MB of zeros or a million records, and
    a response of 1 MB 500 such batches. Raises CorruptBatch, TooLargeBatch, UnsupportedMagic.
    """
    found = Scan(data, check_crc=check_crc, body_max=body_max, enough=enough)
    while found.step(UNBOUNDED):
        pass
    return found.batches


@final
class Scan:
    """The same in steps. `batches` are those that have been scanned. The body of a long batch that
    is not compressed is all of the bytes it came with.
    """

    def __init__(
        self,
        data: bytes | Stretch,
        *,
        check_crc: bool = True,
        body_max: int = BODY_BYTES_MAX,
        enough: int = UNBOUNDED,
    ) -> None:
        self.batches: Final[list[Batch]] = []
        if isinstance(data, Stretch):
            self._data: bytes = data.data
            self._at: i64 = data.start
            self._end: i64 = data.end
        else:
            self._data = data
            self._at = 0
            self._end = len(data)
        self._check_crc: bool = check_crc
        self._body_max: int = body_max
        self._left: i64 = enough
        self._open: _OpenBatch | None = None
        self._compressed_left: i64 = 0  # bytes that this step may still decompress
        self._pauses: bool = False  # it has decompressed enough
        # The next step decompresses a long batch: some 100 ms, in which other threads run.
        self.long_next: bool = False

    def step(self, records_max: int) -> bool:
        """Scans so many more records, or fewer if they take long to decompress; False: there are no
        more. Raises CorruptBatch, TooLargeBatch, UnsupportedMagic.
        """
        left: i64 = records_max
        self._compressed_left = LONG_STEP_COMPRESSED_BYTES
        self._pauses = False
        while left > 0:
            batch = self._open
            if batch is None:
                batch = self._next()
                if batch is None:
                    return self.long_next or self._pauses
                self._open = batch
            count: i64 = batch.missing
            if count > left:
                count = left
            batch.scan(count)
            left -= count
            if batch.missing == 0:
                whole = batch.whole()
                self.batches.append(whole)
                self._left -= whole.size
                self._open = None
        return True

    def _next(self) -> _OpenBatch | None:
        """None: no whole batch is left, or enough has been scanned."""
        data = self._data
        at = self._at
        size = self._end
        if size - at < 17 or self._left <= 0:
            return None
        length: i64 = i64(read_i32_be(data, at + 8))
        if length < 14:  # no message of any format is shorter
            raise CorruptBatch(f"batch length {length}")
        end = at + 12 + length
        if end > size:
            return None
        magic: i64 = data[at + 16]
        if magic != 2:
            raise UnsupportedMagic(f"record batch of magic {magic}")
        if length < HEADER_SIZE - 12:
            raise CorruptBatch(f"batch length {length}")
        if self._check_crc and not self.long_next:  # else the step before has checked it
            crc: int = crc32c(memoryview(data)[at + 21 : end])
            if crc != int(read_i32_be(data, at + 17)) & 0xFFFFFFFF:
                raise CorruptBatch(f"wrong CRC at base offset {read_i64_be(data, at)}")
        header = data[at : at + 61]
        _check(header)
        if length > LONG_STEP_BYTES and i64(read_i16_be(header, 21)) & CODEC_MASK == 0:
            self._at = end
            return _OpenBatch(header, data, at + 61, end)
        body = self._decompressed(header, data[at + 61 : end])
        if body is None:
            return None
        self._at = end
        return _OpenBatch(header, body, 0, len(body))

    def _decompressed(self, header: bytes, sent: bytes) -> bytes | None:
        """None: it is left for the next step. Raises CorruptBatch, TooLargeBatch."""
        codec: i64 = i64(read_i16_be(header, 21)) & CODEC_MASK
        if codec == Compression.NONE:
            return sent
        if not self.long_next:
            cost = _dear_bytes(codec, len(sent))
            if cost > LONG_STEP_COMPRESSED_BYTES:
                self.long_next = True
                return None
            self._compressed_left -= cost
            if self._compressed_left < 0:
                self._pauses = True
                return None
        at_once = self._body_max if self.long_next else min(self._body_max, LONG_STEP_BYTES)
        try:
            body = _decompressed(header, sent, at_once)
        except TooLargeBatch:
            if at_once == self._body_max:
                raise
            self.long_next = True
            return None
        self.long_next = False
        return body


def _dear_bytes(codec: i64, count: i64) -> i64:
    """The bytes of gzip that take as long to decompress at worst."""
    if codec == Compression.LZ4:
        return count // AS_DEAR_LZ4
    if codec == Compression.ZSTD:
        return count // AS_DEAR_ZSTD
    return count // AS_DEAR_SNAPPY if codec == Compression.SNAPPY else count


def _check(header: bytes) -> None:
    """Raises CorruptBatch, TooLargeBatch."""
    base: i64 = read_i64_be(header, 0)
    last_delta: i64 = i64(read_i32_be(header, 23))
    count: i64 = i64(read_i32_be(header, 57))
    if base < 0 or base > _OFFSET_MAX or last_delta < 0 or count < 0:
        raise CorruptBatch(f"base offset {base}, last delta {last_delta}, {count} records")
    if count > BATCH_RECORDS_MAX:
        raise TooLargeBatch(
            f"the batch at base offset {base} is too large: {count:,} records,"
            f" more than {BATCH_RECORDS_MAX:,}"
        )


def _decompressed(header: bytes, sent: bytes, body_max: int) -> bytes:
    """Raises CorruptBatch, TooLargeBatch."""
    codec: i64 = i64(read_i16_be(header, 21)) & CODEC_MASK
    if codec == Compression.NONE or len(sent) == 0:
        return sent
    try:
        return decompress(int(codec), sent, body_max)
    except DecompressesTooLarge as too_large:
        base = read_i64_be(header, 0)
        raise TooLargeBatch(f"the batch at base offset {base} is {too_large}") from too_large
    except CannotDecompress as damaged:
        raise CorruptBatch(str(damaged)) from damaged


@final
class _OpenBatch:
    """A batch whose records are being scanned, in `body[start:end]`; `missing` are to come."""

    def __init__(self, header: bytes, body: bytes, start: i64, end: i64) -> None:
        attributes: i64 = i64(read_i16_be(header, 21))
        self.body: Final = body
        self._end: i64 = end
        self.missing: i64 = i64(read_i32_be(header, 57))
        self._header: Final = header
        self._control: Final[bool] = attributes & CONTROL != 0
        self._base: i64 = read_i64_be(header, 0)
        self._last_delta: i64 = i64(read_i32_be(header, 23))
        self._offsets: list[int] = []
        self._keys: list[bytes | None] = []
        self._bounds: list[int] = [int(start)]
        self._key_bytes: i64 = 0

    def scan(self, count: i64) -> None:
        """So many more records. Raises CorruptBatch."""
        try:
            self._key_bytes += _scan_records(
                self.body,
                self._end,
                self._base,
                self._last_delta,
                count,
                self._offsets,
                self._keys,
                self._bounds,
            )
        except IndexError:
            raise CorruptBatch(f"records cut off at base offset {self._base}") from None
        self.missing -= count

    def whole(self) -> Batch:
        """Raises CorruptBatch."""
        left = self._end - i64(self._bounds[-1])
        if left != 0:
            raise CorruptBatch(f"{left} bytes behind the last record")
        if self._control:
            return Batch(self._header, self.body, [], [], [0], 0, _control_type(self._keys))
        return Batch(
            self._header,
            self.body,
            self._offsets,
            self._keys,
            self._bounds,
            int(self._key_bytes),
            CONTROL_NONE,
        )


def _scan_records(
    body: bytes,
    size: i64,
    base: i64,
    last_delta: i64,
    count: i64,
    offsets: list[int],
    keys: list[bytes | None],
    bounds: list[int],
) -> i64:
    """One pass over the next records, which go to the columns and end at `size` or before. Returns
    the bytes of their keys.

    Raises CorruptBatch, and IndexError where the bytes end early.

    Varints of one byte, nearly all of them, are read in place: a call for each would cost
    interpreted code half its speed.
    """
    at: i64 = bounds[-1]
    before: i64 = -1
    if offsets:
        before = i64(offsets[-1]) - base
    key_bytes: i64 = 0
    for _ in range(count):
        length: i64 = body[at]
        at += 1
        if length >= 128:
            length, at = varint(body, at - 1)
        else:
            length = (length >> 1) ^ -(length & 1)
        end: i64 = at + length
        if length < 0 or end > size:
            raise CorruptBatch(f"a record of {length} bytes with {size - at} left")
        at += 1  # the record's attributes, unused by Kafka
        if body[at] < 128:  # timestamp delta
            at += 1
        else:
            at = skip_varlong(body, at)
        delta: i64 = body[at]
        at += 1
        if delta >= 128:
            delta, at = varint(body, at - 1)
        else:
            delta = (delta >> 1) ^ -(delta & 1)
        key_size: i64 = body[at]
        at += 1
        if key_size >= 128:
            key_size, at = varint(body, at - 1)
        else:
            key_size = (key_size >> 1) ^ -(key_size & 1)
        if delta <= before or delta > last_delta or at + key_size > end:
            raise CorruptBatch(
                f"offset delta {delta} after {before}, last is {last_delta}; "
                f"a key of {key_size} bytes, {end - at} left in its record"
            )
        before = delta
        if key_size < 0:
            keys.append(None)
        else:
            keys.append(body[at : at + key_size])
            key_bytes += key_size
        offsets.append(base + delta)
        bounds.append(end)
        at = end
    return key_bytes


def varint(data: bytes, at: i64) -> tuple[i64, i64]:
    """A zigzag varint of 32 bits at `at`, and where the next field starts. Raises CorruptBatch,
    IndexError.
    """
    value: i64 = 0
    shift: i64 = 0
    while shift <= 28:
        byte: i64 = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 128:
            value &= 0xFFFFFFFF
            return (value >> 1) ^ -(value & 1), at
        shift += 7
    raise CorruptBatch("a varint of more than 5 bytes")


def skip_varlong(data: bytes, at: i64) -> i64:
    """Where the field behind the varint of up to 64 bits at `at` starts. Raises CorruptBatch,
    IndexError.
    """
    stop: i64 = at + 10
    while at < stop:
        byte: i64 = data[at]
        at += 1
        if byte < 128:
            return at
    raise CorruptBatch("a varint of more than 10 bytes")


def _control_type(keys: list[bytes | None]) -> int:
    """Reads the type from the marker's key: version i16, type i16."""
    if not keys:
        return CONTROL_NONE  # compaction took the marker and left the batch
    key = keys[0]
    if key is None or len(key) < 4:
        raise CorruptBatch("a control record without a type")
    return int(read_i16_be(key, 2))
