"""Kafka's record batches (magic 2), as other parts of the gateway use them.

`scan` turns a Fetch response's records into batches with columns, `drop_aborted` leaves out records
of aborted transactions, `select` and `filtered` cut records out of a batch without re-encoding
them. `read_records` and `build` handle whole records; they are for dead letters, audits and tests,
and not made for speed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from crc32c import crc32c

from gateway.core.wire.batches import (
    BODY_BYTES_MAX,
    CONTROL,
    CONTROL_ABORT,
    CONTROL_COMMIT,
    CONTROL_NONE,
    HEADER_SIZE,
    LOG_APPEND_TIME,
    TRANSACTIONAL,
    Batch,
    CorruptBatch,
    TooLargeBatch,
    UnsupportedMagic,
    drop_aborted,
    filtered,
    portions,
    select,
    select_long,
)
from gateway.core.wire.compress import Compression, compress
from gateway.core.wire.long_bytes import LongBytes, Stretch, whole
from gateway.core.wire.scanning import BATCH_RECORDS_MAX, Scan, scan

__all__ = [
    "BATCH_RECORDS_MAX",
    "BODY_BYTES_MAX",
    "CONTROL_ABORT",
    "CONTROL_COMMIT",
    "CONTROL_NONE",
    "HEADER_SIZE",
    "NO_PRODUCER",
    "Batch",
    "Compression",
    "CorruptBatch",
    "Header",
    "HeaderStart",
    "Producer",
    "Record",
    "RecordStart",
    "Scan",
    "TooLargeBatch",
    "UnsupportedMagic",
    "build",
    "drop_aborted",
    "filtered",
    "marker",
    "portions",
    "read_batch",
    "read_records",
    "record_start",
    "scan",
    "select",
    "select_long",
    "timestamp_at",
]

Header = tuple[str, bytes | None]

_NO_TIMESTAMP: Final = -1
_TIMESTAMP_END_MAX: Final = 5 + 1 + 10  # of a record: length, attributes, timestamp delta


@dataclass(frozen=True)
class Record:
    """One record. `timestamp` in ms since the epoch; headers in order, names may repeat."""

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: list[Header] = field(default_factory=list)


@dataclass(frozen=True)
class HeaderStart:
    """The beginning of a header; `value_bytes` is the size of the whole value. None: it is null."""

    name: str
    value: bytes | None
    value_bytes: int


@dataclass(frozen=True)
class RecordStart:
    """The beginning of a record: all but its key. `value_bytes` is the size of the whole value, -1
    if it is null; `headers` are the first of `headers_count`.
    """

    timestamp: int
    value: bytes
    value_bytes: int
    headers: list[HeaderStart]
    headers_count: int


@dataclass(frozen=True)
class Producer:
    """The producer of a batch; -1 everywhere if it is neither idempotent nor transactional."""

    producer_id: int = -1
    epoch: int = -1
    base_sequence: int = -1
    transactional: bool = False


NO_PRODUCER: Final = Producer()


def read_records(data: bytes | Stretch | LongBytes) -> list[Record]:
    """Every record of the whole batches in `data`, without control records. Raises CorruptBatch.

    Header names that are no UTF-8 come back with replacement characters, as in the Java client.
    """
    records: list[Record] = []
    for batch in scan(whole(data) if isinstance(data, LongBytes) else data):
        records.extend(read_batch(batch))
    return records


def read_batch(batch: Batch) -> list[Record]:
    """The records of a scanned batch; none for a control batch. Raises CorruptBatch."""
    records: list[Record] = []
    for at, offset in enumerate(batch.offsets):
        fields = _Fields(batch.body, batch.starts[at], batch.ends[at])
        timestamp = _timestamp(batch, fields)
        fields.varint()  # the offset delta
        key = fields.sized()
        value = fields.sized()
        headers: list[Header] = []
        for _ in range(fields.size("headers")):
            name = fields.take(fields.size("header name"))
            headers.append((name.decode(errors="replace"), fields.sized()))
        fields.end()
        records.append(Record(offset, timestamp, key, value, headers))
    return records


def record_start(
    batch: Batch, at: int, headers_max: int, bytes_max: int, value_bytes_max: int = 0
) -> RecordStart:
    """The beginning of the batch's record number `at`: at most this many headers, this many bytes
    of each header's name and value, and this many of the record's value. Nothing else is copied.
    Raises CorruptBatch.
    """
    fields = _Fields(batch.body, batch.starts[at], batch.ends[at])
    timestamp = _timestamp(batch, fields)
    fields.varint()  # the offset delta
    fields.start(fields.varint(), 0)  # the key
    size = fields.varint()
    start = fields.start(size, value_bytes_max)
    count = fields.size("headers")
    first: list[HeaderStart] = []
    for _ in range(min(count, headers_max)):
        name = fields.start(fields.size("header name"), bytes_max)
        value_bytes = fields.varint()
        value = fields.start(value_bytes, bytes_max)
        first.append(
            HeaderStart(
                name.decode(errors="replace"),
                None if value_bytes < 0 else value,
                max(value_bytes, 0),
            )
        )
    return RecordStart(timestamp, start, size, first, count)


def timestamp_at(batch: Batch, at: int) -> int:
    """The timestamp of the batch's record number `at`, in ms since the epoch; -1: it has none."""
    head = batch.body[batch.starts[at] : batch.starts[at] + _TIMESTAMP_END_MAX]
    return _timestamp(batch, _Fields(head, 0, len(head)))


def _timestamp(batch: Batch, fields: _Fields) -> int:
    """Reads the beginning of a record, up to its timestamp."""
    fields.varint()  # the record's length
    fields.take(1)  # its attributes, unused by Kafka
    delta = fields.varint()
    if int.from_bytes(batch.header[21:23], "big") & LOG_APPEND_TIME:
        return batch.max_timestamp
    return _wrap64(int.from_bytes(batch.header[27:35], "big", signed=True) + delta)


def _wrap64(number: int) -> int:
    """Overflows as Java's long does: a timestamp may be that far from its batch's base."""
    return (number + 2**63) % 2**64 - 2**63


class _Fields:
    """Reads the fields of one record, `data[at:end]`, in order."""

    def __init__(self, data: bytes, at: int, end: int) -> None:
        self.data = data
        self.at = at
        self.stop = end

    def take(self, size: int) -> bytes:
        return self.start(size, size)

    def start(self, size: int, bytes_max: int) -> bytes:
        """The first bytes of a field of so many; a negative size is that of null."""
        if size <= 0:
            return b""
        if size > self.stop - self.at:
            raise CorruptBatch(f"a field of {size} bytes, {self.stop - self.at} left")
        first = self.data[self.at : self.at + min(size, bytes_max)]
        self.at += size
        return first

    def varint(self) -> int:
        """A zigzag varint of up to 64 bits."""
        value = 0
        for shift in range(0, 70, 7):
            byte = self.take(1)[0]
            value |= (byte & 0x7F) << shift
            if byte < 128:
                value &= 0xFFFFFFFFFFFFFFFF
                return (value >> 1) ^ -(value & 1)
        raise CorruptBatch("a varint of more than 10 bytes")

    def size(self, what: str) -> int:
        size = self.varint()
        if size < 0:
            raise CorruptBatch(f"{size} for the size of {what}")
        return size

    def sized(self) -> bytes | None:
        size = self.varint()
        return None if size < 0 else self.take(size)

    def end(self) -> None:
        if self.at != self.stop:
            raise CorruptBatch(f"{self.stop - self.at} bytes behind the last field")


def build(
    records: Sequence[Record],
    *,
    base_offset: int,
    compression: Compression = Compression.NONE,
    last_offset: int | None = None,
    log_append_time: int | None = None,
    leader_epoch: int = -1,
    producer: Producer = NO_PRODUCER,
    control: bool = False,
) -> bytes:
    """One batch with these records, offsets ascending from `base_offset`.

    `last_offset` is the last record's unless given (a batch may be empty or end in a gap, as after
    compaction); `log_append_time` (ms) replaces all timestamps.
    """
    base_timestamp = records[0].timestamp if records else _NO_TIMESTAMP
    body = b"".join([_record(record, base_offset, base_timestamp) for record in records])
    if last_offset is None:
        last_offset = records[-1].offset if records else base_offset
    max_timestamp = max([record.timestamp for record in records], default=_NO_TIMESTAMP)
    attributes = int(compression) | (TRANSACTIONAL if producer.transactional else 0)
    if log_append_time is not None:
        attributes |= LOG_APPEND_TIME
        max_timestamp = log_append_time
    if control:
        attributes |= CONTROL
    checked = b"".join(
        [
            attributes.to_bytes(2, "big"),
            (last_offset - base_offset).to_bytes(4, "big"),
            base_timestamp.to_bytes(8, "big", signed=True),
            max_timestamp.to_bytes(8, "big", signed=True),
            producer.producer_id.to_bytes(8, "big", signed=True),
            producer.epoch.to_bytes(2, "big", signed=True),
            producer.base_sequence.to_bytes(4, "big", signed=True),
            len(records).to_bytes(4, "big"),
            compress(compression, body),
        ]
    )
    front = [
        base_offset.to_bytes(8, "big"),
        (len(checked) + 9).to_bytes(4, "big"),
        leader_epoch.to_bytes(4, "big", signed=True),
        b"\x02",
        crc32c(checked).to_bytes(4, "big"),
    ]
    return b"".join([*front, checked])


def marker(offset: int, producer: Producer, *, commit: bool, timestamp: int = 0) -> bytes:
    """The control batch that ends a transaction of `producer`."""
    kind = CONTROL_COMMIT if commit else CONTROL_ABORT
    key = b"\x00\x00" + kind.to_bytes(2, "big")
    value = b"\x00" * 6  # version, coordinator epoch
    record = Record(offset, timestamp, key, value)
    return build([record], base_offset=offset, producer=producer, control=True)


def _record(record: Record, base_offset: int, base_timestamp: int) -> bytes:
    parts = [
        b"\x00",
        _varint(_wrap64(record.timestamp - base_timestamp)),
        _varint(record.offset - base_offset),
        _sized(record.key),
        _sized(record.value),
        _varint(len(record.headers)),
    ]
    for name, value in record.headers:
        parts.append(_sized(name.encode()))
        parts.append(_sized(value))
    body = b"".join(parts)
    return _varint(len(body)) + body


def _sized(data: bytes | None) -> bytes:
    return _varint(-1) if data is None else _varint(len(data)) + data


def _varint(value: int) -> bytes:
    rest = (value << 1) ^ (value >> 63)
    rest &= 0xFFFFFFFFFFFFFFFF
    encoded = bytearray()
    while rest >= 128:
        encoded.append((rest & 0x7F) | 0x80)
        rest >>= 7
    encoded.append(rest)
    return bytes(encoded)
