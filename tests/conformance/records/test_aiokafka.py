"""Record batches against aiokafka's own decoder and builder."""

from __future__ import annotations

import pytest
from aiokafka.record.default_records import DefaultRecordBatch, DefaultRecordBatchBuilder
from aiokafka.record.memory_records import MemoryRecords

from gateway.core.wire.records import Compression, Record, build, read_records, scan, select

NOW = 1_760_000_000_000
RECORDS = [
    Record(500, NOW, b"k", b"v"),
    Record(501, NOW + 3, None, b""),
    Record(502, NOW - 9, b"", None, [("h", b"1"), ("h", None), ("i", b"")]),
    *[Record(503 + i, NOW, b"key-%d" % (i % 9), b"x" * i) for i in range(300)],
]


def decoded(data: bytes) -> list[Record]:
    """All records of a run of batches, CRCs checked, as an aiokafka consumer sees them."""
    found: list[Record] = []
    batches = MemoryRecords(data)
    while batches.has_next():
        batch = batches.next_batch()
        assert isinstance(batch, DefaultRecordBatch)
        assert batch.validate_crc()
        for record in batch:
            assert record.timestamp is not None
            found.append(
                Record(record.offset, record.timestamp, record.key, record.value, record.headers)
            )
    return found


@pytest.mark.parametrize("codec", list(Compression))
def test_it_reads_what_we_send(codec: Compression) -> None:
    data = build(RECORDS, base_offset=500, compression=codec)
    assert decoded(data) == RECORDS
    (batch,) = scan(data)
    wanted = RECORDS[1:3] + RECORDS[7::4]
    sent = select(batch, [record.offset for record in wanted], records_max=20)
    assert decoded(sent) == wanted


@pytest.mark.parametrize("codec", list(Compression))
def test_we_read_what_it_builds(codec: Compression) -> None:
    builder = DefaultRecordBatchBuilder(
        magic=2,
        compression_type=int(codec),
        is_transactional=False,
        producer_id=-1,
        producer_epoch=-1,
        base_sequence=-1,
        batch_size=1 << 20,
    )
    for at, record in enumerate(RECORDS):
        appended = builder.append(
            at, record.timestamp, record.key, record.value, list(record.headers)
        )
        assert appended is not None
    expected = [
        Record(at, record.timestamp, record.key, record.value, record.headers)
        for at, record in enumerate(RECORDS)
    ]
    assert read_records(bytes(builder.build())) == expected
