"""Record batches of magic 2: columns, aborted filter, slicing. scanning.py fills the columns.

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

from collections.abc import Iterator
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

from gateway.core.limits import LONG_STEP_BYTES
from gateway.core.wire.errors import ErrorCode, WireError
from gateway.core.wire.long_bytes import LongBytes, together, whole


class CorruptBatch(WireError):
    """Bytes that are no record batch, or one that was damaged."""

    code: ClassVar[ErrorCode] = ErrorCode.CORRUPT_MESSAGE


class UnsupportedMagic(CorruptBatch):
    """A message of the formats before Kafka 0.11 (magic 0, 1), which Kafka 4 no longer writes; or
    of a later one.
    """

    code: ClassVar[ErrorCode] = ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT


class TooLargeBatch(CorruptBatch):
    """An undamaged batch of more than BATCH_RECORDS_MAX records, or of more than `body_max` bytes
    when decompressed.
    """

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


@final
class Batch:
    """One scanned batch, decompressed. `offsets` ascending; `keys`, `starts`, `ends` equally
    long.

    Record i is `body[starts[i]:ends[i]]`; of a long batch the body may hold other bytes around its
    records. All four columns are empty for a control batch, whose
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
        self.leader_epoch: Final[int] = int(read_i32_be(header, 12))  # -1 = not known
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


def portions(batch: Batch, records_max: int) -> Iterator[Batch]:
    """The batch in portions of at most `records_max` records, each with bytes of its own, so that
    they can be held and let go one by one. A portion ends where the next one begins: together they
    cover all offsets of the batch, also where compaction left gaps.
    """
    if batch.count <= records_max:
        yield batch
        return
    total: i64 = batch.count
    at: i64 = 0
    while at < total:
        stop: i64 = at + i64(records_max)
        if stop > total:
            stop = total
        last: int = batch.last_offset if stop == total else batch.offsets[stop] - 1
        yield _portion(batch, at, stop, last)
        at = stop


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
    """`select_long`, as bytes."""
    return whole(select_long(batch, offsets, records_max=records_max))


def select_long(batch: Batch, offsets: list[int], *, records_max: int) -> bytes | LongBytes:
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
    parts: list[bytes | memoryview] = []
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
    return together(parts)


def filtered(batch: Batch, keep: list[int]) -> bytes:
    """One uncompressed batch with the records at the offsets `keep` (ascending), possibly none,
    as compaction leaves it.

    The last offset delta and the producer's fields stay: positions advance over the whole batch.
    Raises ValueError for an offset that the batch does not have.
    """
    parts: list[bytes | memoryview] = []
    runs = _runs(batch, keep, 0, len(keep))
    last_delta: i64 = i64(batch.last_offset) - i64(batch.base_offset)
    _write(parts, batch, runs, len(keep), last_delta, keep_producer=True)
    return b"".join(parts)


def _runs(batch: Batch, offsets: list[int], at: i64, stop: i64) -> list[bytes | memoryview]:
    """The bytes of the records offsets[at:stop], one slice for each run of neighbours."""
    held = batch.offsets
    runs: list[bytes | memoryview] = []
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
            runs.append(_run(batch, first, behind))
        first = _find(held, offset, behind)
        behind = first + 1
    if behind > first:
        runs.append(_run(batch, first, behind))
    return runs


def _run(batch: Batch, first: i64, behind: i64) -> bytes | memoryview:
    """The bytes of the records number [first:behind]; a long run is not copied."""
    body = batch.body
    start: i64 = batch.starts[first]
    end: i64 = batch.ends[behind - 1]
    if end - start == len(body):
        return body
    if end - start > LONG_STEP_BYTES:
        return memoryview(body)[start:end]
    return body[start:end]


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
    parts: list[bytes | memoryview],
    batch: Batch,
    runs: list[bytes | memoryview],
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
