"""The scan of batches in steps."""

from __future__ import annotations

from random import Random

import pytest
from crc32c import crc32c

from gateway.core.limits import (
    AS_DEAR_LZ4,
    AS_DEAR_SNAPPY,
    AS_DEAR_ZSTD,
    LONG_STEP_BYTES,
    LONG_STEP_COMPRESSED_BYTES,
)
from gateway.core.wire.errors import ErrorCode
from gateway.core.wire.records import (
    BATCH_RECORDS_MAX,
    Batch,
    Compression,
    CorruptBatch,
    Producer,
    Record,
    Scan,
    TooLargeBatch,
    build,
    marker,
    scan,
)


def records(*offsets: int) -> list[Record]:
    return [Record(at, 1_000 + at, b"key-%d" % at, b"value") for at in offsets]


WRITER = Producer(producer_id=9, epoch=2, transactional=True)
DATA = b"".join(
    [
        build(records(3, 4, 6), base_offset=3, last_offset=7),
        build([], base_offset=8),
        marker(9, WRITER, commit=True),
        build(records(10), base_offset=10),
        build(records(*range(11, 18)), base_offset=11)[:-1],  # cut off
    ]
)


def scan_all(found: Scan, records_max: int) -> None:
    while found.step(records_max):
        pass


def columns(batch: Batch) -> tuple[object, ...]:
    flags = (batch.is_control, batch.control_type, batch.size)
    return batch.header, batch.body, batch.offsets, batch.keys, batch.starts, batch.ends, flags


@pytest.mark.parametrize("records_max", [1, 2, 3, 4, 5, 100])
def test_steps_of_any_length_find_the_same(records_max: int) -> None:
    found = Scan(DATA)
    steps = 1
    while found.step(records_max):
        steps += 1
    assert steps == 5 // records_max + 1  # the marker is a record
    assert list(map(columns, found.batches)) == list(map(columns, scan(DATA)))
    assert not found.step(records_max)


def test_a_batch_is_there_when_all_its_records_are() -> None:
    found = Scan(DATA)
    assert found.step(2)
    assert found.batches == []
    assert found.step(1)
    assert [batch.offsets for batch in found.batches] == [[3, 4, 6]]


def test_enough_memory_ends_it_between_two_batches() -> None:
    """A million records without a byte of value are 7 MB, and 129 of memory."""
    size = scan(DATA)[0].size
    assert size > 2 * len(scan(DATA)[0].body)
    for enough, count in ((1, 1), (size, 1), (size + 1, 2)):
        found = Scan(DATA, enough=enough)
        scan_all(found, 2)
        assert len(found.batches) == count


@pytest.mark.parametrize("records_max", [1, 2, 100])
def test_a_fault_is_found_in_its_step(records_max: int) -> None:
    good = build(records(3, 4, 6), base_offset=3)
    for changed, said in (
        (counted(good, 2), "bytes behind the last record"),
        (counted(good, 4), "cut off"),
    ):
        found = Scan(changed)
        with pytest.raises(CorruptBatch, match=said):
            scan_all(found, records_max)
        assert found.batches == []


def test_a_batch_of_too_many_records_says_so() -> None:
    """18 million records without a byte of value are a message of 20 KB, and 2.3 GB of columns."""
    count = BATCH_RECORDS_MAX + 1
    said = "base offset 3 is too large: 1,000,001 records, more than 1,000,000"
    with pytest.raises(TooLargeBatch, match=said) as refused:
        scan(counted(build(records(3), base_offset=3), count))
    assert refused.value.code is ErrorCode.MESSAGE_TOO_LARGE


@pytest.mark.parametrize("codec", list(Compression)[1:])
def test_a_long_batch_is_decompressed_in_a_step_of_its_own(codec: Compression) -> None:
    """32 KB may be 256 MiB; the event loop goes on while another thread finds out."""
    first = build(records(0, 1), base_offset=0, compression=codec)
    long = build([Record(2, 0, b"k", bytes(LONG_STEP_BYTES))], base_offset=2, compression=codec)
    behind = build(records(3), base_offset=3, compression=codec)
    found = Scan(first + long + behind)
    assert found.step(100), "and the next step is a long one"
    assert found.long_next
    assert [batch.offsets for batch in found.batches] == [[0, 1]]
    while found.step(100):
        assert not found.long_next
    assert [batch.offsets for batch in found.batches] == [[0, 1], [2], [3]]

    refused = Scan(first + long, body_max=LONG_STEP_BYTES + 10)
    assert refused.step(100)
    assert refused.long_next
    with pytest.raises(TooLargeBatch):
        refused.step(100)


def test_a_batch_that_is_long_before_it_is_decompressed_is_not_tried() -> None:
    """Its bytes may be dear, whatever comes out of them: 1 MB of gzip takes up to 0.7 s."""
    small = build(records(0), base_offset=0, compression=Compression.GZIP)
    length = 61 - 12 + LONG_STEP_COMPRESSED_BYTES + 1
    junk = bytes(LONG_STEP_COMPRESSED_BYTES + 1)
    damaged = small[:8] + length.to_bytes(4, "big") + small[12:61] + junk
    found = Scan(counted(damaged, 1))
    assert found.step(100)
    assert found.long_next, "and nobody has noticed yet that it is damaged"
    with pytest.raises(CorruptBatch, match="gzip"):
        found.step(100)


def test_compressed_batches_that_are_long_together_are_no_single_step() -> None:
    value = Random(7).randbytes(LONG_STEP_COMPRESSED_BYTES // 3)
    batches = [
        build([Record(at, 0, b"k", value)], base_offset=at, compression=Compression.GZIP)
        for at in range(5)
    ]
    found = Scan(b"".join(batches))
    seen = []
    while found.step(100):
        assert not found.long_next, "each of them is short"
        seen.append(len(found.batches))
    assert seen == [2, 4]
    assert [batch.offsets for batch in found.batches] == [[0], [1], [2], [3], [4]]

    plain = [build([Record(at, 0, b"k", value)], base_offset=at) for at in range(5)]
    once = Scan(b"".join(plain))
    assert not once.step(100)
    assert len(once.batches) == 5


@pytest.mark.parametrize(
    ("codec", "times"),
    [
        (Compression.GZIP, 1),
        (Compression.SNAPPY, AS_DEAR_SNAPPY),
        (Compression.LZ4, AS_DEAR_LZ4),
        (Compression.ZSTD, AS_DEAR_ZSTD),
    ],
)
def test_how_much_is_long_depends_on_what_a_byte_costs_at_worst(
    codec: Compression, times: int
) -> None:
    """A topic of large batches with LZ4 or ZSTD is read without another thread."""
    most = times * LONG_STEP_COMPRESSED_BYTES
    for size, is_long in ((most - 8_192, False), (most + 8_192, True)):
        value = Random(7).randbytes(size)
        found = Scan(build([Record(0, 0, b"k", value)], base_offset=0, compression=codec))
        assert found.step(100) is is_long
        assert found.long_next is is_long
        assert found.step(100) is False
        assert [batch.offsets for batch in found.batches] == [[0]]


def counted(data: bytes, count: int) -> bytes:
    """One batch that says it has so many records."""
    changed = data[:57] + count.to_bytes(4, "big") + data[61:]
    return changed[:17] + crc32c(changed[21:]).to_bytes(4, "big") + changed[21:]
