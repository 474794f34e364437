"""Record batches of magic 2: scan, aborted filter, slicing; all that is done per record.

A batch is scanned once: one pass yields the offset, the key and the place of every record; values
and headers are never read. Slices are cut out of the scanned bytes, so every record leaves the
gateway with the bytes that its producer sent; only the batch header is written anew. Layout of the
header, big endian:

    0 baseOffset i64 | 8 batchLength i32 | 12 partitionLeaderEpoch i32 | 16 magic i8
    17 crc u32 (of all behind it) | 21 attributes i16 | 23 lastOffsetDelta i32
    27 baseTimestamp i64 | 35 maxTimestamp i64 | 43 producerId i64 | 51 producerEpoch i16
    53 baseSequence i32 | 57 recordsCount i32 | 61 records

Source: Kafka's message format documentation and DefaultRecordBatch of kafka-clients 4.3.1.
"""

from __future__ import annotations

from typing import ClassVar, Final, final

from crc32c import crc32c
from librt.strings import (
    BytesWriter,
    read_i16_be,
    read_i32_be,
    read_i64_be,
    write_i16_be,
    write_i32_be,
    write_i64_be,
)
from mypy_extensions import i16, i32, i64

from gateway.core.wire.compress import (
    CannotDecompress,
    Compression,
    DecompressesTooLarge,
    decompress,
)
from gateway.core.wire.errors import ErrorCode, WireError


class CorruptBatch(WireError):
    """Bytes that are no record batch, or one that was damaged."""

    code: ClassVar[ErrorCode] = ErrorCode.CORRUPT_MESSAGE


class UnsupportedMagic(CorruptBatch):
    """A message of the formats before Kafka 0.11 (magic 0, 1), which Kafka 4 no longer writes; or
    of a later one.
    """

    code: ClassVar[ErrorCode] = ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT


class TooLargeBatch(CorruptBatch):
    """An undamaged batch whose decompressed records are of more than `body_max` bytes."""

    code: ClassVar[ErrorCode] = ErrorCode.MESSAGE_TOO_LARGE


HEADER_SIZE: Final = 61
# Of one batch, decompressed. Kafka holds producers to 1 MiB (compressed) unless told otherwise.
BODY_BYTES_MAX: Final = 128 * 1024 * 1024

UNBOUNDED: Final = 2**62

CODEC_MASK: Final = 0x07
LOG_APPEND_TIME: Final = 0x08
TRANSACTIONAL: Final = 0x10
CONTROL: Final = 0x20

CONTROL_NONE: Final = -1
CONTROL_ABORT: Final = 0
CONTROL_COMMIT: Final = 1

# Memory of a scanned record beside its bytes: four list slots, two ints and the head of its key.
_RECORD_OVERHEAD: Final = 4 * 8 + 2 * 32 + 33
_OFFSET_MAX: Final = 2**63 - 1 - 2**31  # with the largest delta still an i64


@final
class Batch:
    """One scanned batch, decompressed. `offsets` ascending; `keys`, `starts`, `ends` equally
    long.

    Record i is `body[starts[i]:ends[i]]`. All four columns are empty for a control batch, whose
    `control_type` is CONTROL_ABORT, CONTROL_COMMIT or a later Kafka's own number; CONTROL_NONE
    otherwise. `size` is the memory held, in bytes.
    """

    def __init__(
        self,
        header: bytes,
        body: bytes,
        offsets: list[int],
        keys: list[bytes | None],
        bounds: list[int],
        key_bytes: int,
        control_type: int,
    ) -> None:
        attributes: int = read_i16_be(header, 21)
        self.header: Final = header
        self.body: Final = body
        self.offsets: Final = offsets
        self.keys: Final = keys
        # Records lie without gaps: the end of one is the start of the next, and the very same int
        # object.
        self.starts: Final = bounds[:-1]
        self.ends: Final = bounds[1:]
        self.base_offset: Final[int] = read_i64_be(header, 0)
        self.last_offset: Final[int] = self.base_offset + int(read_i32_be(header, 23))
        self.count: Final[int] = len(offsets)
        self.max_timestamp: Final[int] = read_i64_be(header, 35)
        self.producer_id: Final[int] = read_i64_be(header, 43)
        self.is_control: Final[bool] = attributes & CONTROL != 0
        self.is_transactional: Final[bool] = attributes & TRANSACTIONAL != 0
        self.control_type: Final = control_type
        self.size: Final[int] = (
            HEADER_SIZE + len(body) + key_bytes + _RECORD_OVERHEAD * len(offsets)
        )

    def __repr__(self) -> str:
        kind = "control, " if self.is_control else ""
        return f"Batch({self.base_offset}..{self.last_offset}, {kind}{self.count} records)"


def scan(
    data: bytes,
    *,
    check_crc: bool = True,
    body_max: int = BODY_BYTES_MAX,
    enough: int = UNBOUNDED,
) -> list[Batch]:
    """The whole batches of a Fetch response's records; a cut-off last one is left out, as
    consumers do.

    `body_max` bounds each batch's decompressed records, in bytes; batches after `enough` bytes in
    all are left out, too: a batch of 2 KB can be 64 MB of zeros, and a response of 1 MB 500 such
    batches. Raises CorruptBatch, TooLargeBatch, UnsupportedMagic.
    """
    batches: list[Batch] = []
    _scan_into(batches, data, check_crc, body_max, enough)
    return batches


def scan_undamaged(data: bytes, enough: int) -> list[Batch]:
    """As `scan`, up to the first batch that is damaged: those before it can be read like any
    other. Raises CorruptBatch if it is the very first.
    """
    batches: list[Batch] = []
    try:
        _scan_into(batches, data, True, BODY_BYTES_MAX, enough)
    except CorruptBatch:
        if not batches:
            raise
    return batches


def _scan_into(
    batches: list[Batch], data: bytes, check_crc: bool, body_max: int, enough: int
) -> None:
    at: i64 = 0
    size: i64 = len(data)
    left: i64 = enough
    while size - at >= 17 and left > 0:
        length: i64 = i64(read_i32_be(data, at + 8))
        if length < 14:  # no message of any format is shorter
            raise CorruptBatch(f"batch length {length}")
        end = at + 12 + length
        if end > size:
            break
        magic: i64 = data[at + 16]
        if magic != 2:
            raise UnsupportedMagic(f"record batch of magic {magic}")
        if length < HEADER_SIZE - 12:
            raise CorruptBatch(f"batch length {length}")
        if check_crc:
            crc: int = crc32c(memoryview(data)[at + 21 : end])
            if crc != int(read_i32_be(data, at + 17)) & 0xFFFFFFFF:
                raise CorruptBatch(f"wrong CRC at base offset {read_i64_be(data, at)}")
        batch = _scan_batch(data[at : at + 61], data[at + 61 : end], body_max)
        batches.append(batch)
        left -= len(batch.body)
        at = end


def _scan_batch(header: bytes, sent: bytes, body_max: int) -> Batch:
    attributes: i64 = i64(read_i16_be(header, 21))
    base: i64 = read_i64_be(header, 0)
    last_delta: i64 = i64(read_i32_be(header, 23))
    count: i64 = i64(read_i32_be(header, 57))
    if base < 0 or base > _OFFSET_MAX or last_delta < 0 or count < 0:
        raise CorruptBatch(f"base offset {base}, last delta {last_delta}, {count} records")
    body = sent
    if attributes & CODEC_MASK != Compression.NONE and len(sent) > 0:
        try:
            body = decompress(int(attributes & CODEC_MASK), sent, body_max)
        except DecompressesTooLarge as too_large:
            raise TooLargeBatch(f"the batch at base offset {base} is {too_large}") from too_large
        except CannotDecompress as damaged:
            raise CorruptBatch(str(damaged)) from damaged
    offsets: list[int] = []
    keys: list[bytes | None] = []
    bounds: list[int] = [0]
    try:
        key_bytes = _scan_records(body, base, last_delta, count, offsets, keys, bounds)
    except IndexError:
        raise CorruptBatch(f"records cut off at base offset {base}") from None
    if attributes & CONTROL != 0:
        control_type = _control_type(keys)
        return Batch(header, body, [], [], [0], 0, control_type)
    return Batch(header, body, offsets, keys, bounds, int(key_bytes), CONTROL_NONE)


def _scan_records(
    body: bytes,
    base: i64,
    last_delta: i64,
    count: i64,
    offsets: list[int],
    keys: list[bytes | None],
    bounds: list[int],
) -> i64:
    """One pass over the records; fills the columns. Returns the bytes of all keys.

    Raises CorruptBatch, and IndexError where the bytes end early.

    Varints of one byte, nearly all of them, are read in place: a call for each would cost
    interpreted code half its speed.
    """
    at: i64 = 0
    size: i64 = len(body)
    before: i64 = -1
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
    if at != size:
        raise CorruptBatch(f"{size - at} bytes behind the last record")
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
    """Of the marker's key: version i16, type i16."""
    if not keys:
        return CONTROL_NONE  # compaction took the marker and left the batch
    key = keys[0]
    if key is None or len(key) < 4:
        raise CorruptBatch("a control record without a type")
    return int(read_i16_be(key, 2))


def drop_aborted(batches: list[Batch], aborted: list[tuple[int, int]]) -> list[Batch]:
    """The batches a read_committed consumer sees, without control batches.

    `batches` are those of one Fetch response, `aborted` its AbortedTransactions as (producer id,
    first offset). Kafka's consumer does the same (CompletedFetch): a transaction is aborted
    from its first offset to its ABORT marker.
    """
    waiting = sorted([(first, producer) for producer, first in aborted], reverse=True)
    open_aborts: set[int] = set()
    kept: list[Batch] = []
    for batch in batches:
        while waiting and waiting[-1][0] <= batch.last_offset:
            open_aborts.add(waiting.pop()[1])
        if batch.is_control:
            if batch.control_type == CONTROL_ABORT:
                open_aborts.discard(batch.producer_id)
        elif not (batch.is_transactional and batch.producer_id in open_aborts):
            kept.append(batch)
    return kept


def portions(batch: Batch, records_max: int) -> list[Batch]:
    """The batch in portions of at most `records_max` records, each with bytes of its own, so that
    they can be held and let go one by one. A portion ends where the next one begins: together they
    cover all offsets of the batch, also where compaction left gaps.
    """
    if batch.count <= records_max:
        return [batch]
    found: list[Batch] = []
    total: i64 = batch.count
    at: i64 = 0
    while at < total:
        stop: i64 = at + i64(records_max)
        if stop > total:
            stop = total
        last: int = batch.last_offset if stop == total else batch.offsets[stop] - 1
        found.append(_portion(batch, at, stop, last))
        at = stop
    return found


def _portion(batch: Batch, at: i64, stop: i64, last_offset: int) -> Batch:
    """The records [at:stop] of the batch, as a batch with the same base offset."""
    header = BytesWriter()
    header.write(batch.header[:23])
    write_i32_be(header, i32(last_offset - batch.base_offset))
    header.write(batch.header[27:])
    shift: int = batch.starts[at]
    bounds: list[int] = [0, *[end - shift for end in batch.ends[at:stop]]]
    keys = batch.keys[at:stop]
    key_bytes: i64 = 0
    for key in keys:
        if key is not None:
            key_bytes += len(key)
    body = batch.body[shift : batch.ends[stop - 1]]
    offsets = batch.offsets[at:stop]
    return Batch(header.getvalue(), body, offsets, keys, bounds, int(key_bytes), CONTROL_NONE)


def select(batch: Batch, offsets: list[int], *, records_max: int) -> bytes:
    """Uncompressed batches that hold exactly the records at `offsets` (ascending), each at most
    `records_max` of them.

    Base offset, deltas, timestamps, leader epoch and the LogAppendTime bit are upstream's, the
    last offset delta is that of the last record in each batch. These batches go to share
    consumers, which know nothing of transactions: the gateway has left out aborted records, so the
    batches carry no producer id, epoch, sequence or transactional bit. Raises ValueError for an
    offset that the batch does not have.
    """
    if records_max < 1:
        raise ValueError(f"{records_max} records per batch")
    parts: list[bytes] = []
    total: i64 = len(offsets)
    at: i64 = 0
    while at < total:
        stop: i64 = at + i64(records_max)
        if stop > total:
            stop = total
        last_delta: i64 = i64(offsets[stop - 1]) - i64(batch.base_offset)
        runs = _runs(batch, offsets, at, stop)
        _write(parts, batch, runs, stop - at, last_delta, keep_producer=False)
        at = stop
    return b"".join(parts)


def filtered(batch: Batch, keep: list[int]) -> bytes:
    """One uncompressed batch with the records at the offsets `keep` (ascending), possibly none,
    as compaction leaves it.

    The last offset delta and the producer's fields stay: positions advance over the whole batch.
    Raises ValueError for an offset that the batch does not have.
    """
    parts: list[bytes] = []
    runs = _runs(batch, keep, 0, len(keep))
    last_delta: i64 = i64(batch.last_offset) - i64(batch.base_offset)
    _write(parts, batch, runs, len(keep), last_delta, keep_producer=True)
    return b"".join(parts)


def _runs(batch: Batch, offsets: list[int], at: i64, stop: i64) -> list[bytes]:
    """The bytes of the records offsets[at:stop], one slice for each run of neighbours."""
    held = batch.offsets
    starts = batch.starts
    ends = batch.ends
    body = batch.body
    runs: list[bytes] = []
    size: i64 = len(held)
    first: i64 = 0  # of the run, an index of `held`
    behind: i64 = 0  # the run's last + 1
    while at < stop:
        offset: i64 = i64(offsets[at])
        at += 1
        if behind < size and i64(held[behind]) == offset:
            behind += 1
            continue
        if behind > first:
            runs.append(body[starts[first] : ends[behind - 1]])
        first = _find(held, offset, behind)
        behind = first + 1
    if behind > first:
        runs.append(body if behind - first == size else body[starts[first] : ends[behind - 1]])
    return runs


def _find(held: list[int], offset: i64, low: i64) -> i64:
    """Index of `offset`, at or behind `low`. Where no offset is missing that is a subtraction."""
    high: i64 = len(held)
    if low < high:
        guess: i64 = low + offset - i64(held[low])
        if low <= guess < high and i64(held[guess]) == offset:
            return guess
        while low < high:
            middle: i64 = (low + high) >> 1
            if i64(held[middle]) < offset:
                low = middle + 1
            else:
                high = middle
        if low < len(held) and i64(held[low]) == offset:
            return low
    raise ValueError(f"offset {offset} is not in the batch, or not in ascending order")


def _write(
    parts: list[bytes],
    batch: Batch,
    runs: list[bytes],
    count: i64,
    last_delta: i64,
    *,
    keep_producer: bool,
) -> None:
    """Appends a batch of these records to `parts`: its header up to the CRC, then all behind it."""
    header = batch.header
    checked = BytesWriter()
    mask: i16 = ~CODEC_MASK if keep_producer else ~(CODEC_MASK | TRANSACTIONAL)
    write_i16_be(checked, read_i16_be(header, 21) & mask)
    write_i32_be(checked, i32(last_delta))
    checked.write(header[27:43])
    if keep_producer:
        checked.write(header[43:57])
    else:
        write_i64_be(checked, -1)
        write_i16_be(checked, -1)
        write_i32_be(checked, -1)
    write_i32_be(checked, i32(count))
    fields = checked.getvalue()
    # Records are copied once, into the answer: 90 MB hold the loop up for 80 ms.
    crc: int = crc32c(fields)
    size: i64 = len(fields)
    for run in runs:
        crc = crc32c(run, crc)
        size += len(run)
    front = BytesWriter()
    front.write(header[0:8])
    write_i32_be(front, i32(size + 9))  # epoch, magic and CRC are counted too
    front.write(header[12:17])
    write_i32_be(front, i32(crc if crc < 0x80000000 else crc - 0x100000000))
    front.write(fields)
    parts.append(front.getvalue())
    parts += runs
