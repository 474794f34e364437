"""Record batches: any records survive, any bytes are either batches or refused as corrupt."""

from __future__ import annotations

import contextlib
import struct
from itertools import pairwise

from crc32c import crc32c
from hypothesis import given
from hypothesis import strategies as st

from gateway.core.wire.records import (
    HEADER_SIZE,
    Compression,
    CorruptBatch,
    HeaderStart,
    Record,
    build,
    drop_aborted,
    filtered,
    portions,
    read_batch,
    read_records,
    record_start,
    scan,
    select,
    timestamp_at,
)

some_bytes = st.none() | st.binary(max_size=150)
headers = st.lists(st.tuples(st.text(max_size=4), st.none() | st.binary(max_size=4)), max_size=3)
codecs = st.sampled_from(list(Compression))


@st.composite
def batches_of(draw: st.DrawFn) -> tuple[int, list[Record]]:
    """A base offset and records behind it, with gaps."""
    base = draw(st.integers(0, 2**62))
    deltas = sorted(draw(st.sets(st.integers(0, 2**31 - 1) | st.integers(0, 300), max_size=20)))
    records = [
        Record(
            base + delta,
            draw(st.integers(-(2**61), 2**61)),
            draw(some_bytes),
            draw(some_bytes),
            draw(headers),
        )
        for delta in deltas
    ]
    return base, records


@given(batches_of(), codecs)
def test_what_is_built_is_read(drawn: tuple[int, list[Record]], codec: Compression) -> None:
    base, records = drawn
    data = build(records, base_offset=base, compression=codec)
    assert read_records(data) == records
    (batch,) = scan(data)
    assert batch.keys == [record.key for record in records]
    assert batch.offsets == [record.offset for record in records]
    times = [timestamp_at(batch, at) for at in range(batch.count)]
    assert times == [record.timestamp for record in records]


@given(batches_of(), codecs, st.integers(0, 3), st.integers(0, 5))
def test_the_start_of_a_record(
    drawn: tuple[int, list[Record]], codec: Compression, headers_max: int, bytes_max: int
) -> None:
    base, records = drawn
    (batch,) = scan(build(records, base_offset=base, compression=codec))
    for at, record in enumerate(records):
        found = record_start(batch, at, headers_max, bytes_max, bytes_max)
        assert found.timestamp == record.timestamp
        size = -1 if record.value is None else len(record.value)
        assert (found.value, found.value_bytes) == ((record.value or b"")[:bytes_max], size)
        assert found.headers_count == len(record.headers)
        assert found.headers == [
            HeaderStart(
                name.encode()[:bytes_max].decode(errors="replace"),
                None if value is None else value[:bytes_max],
                len(value or b""),
            )
            for name, value in record.headers[:headers_max]
        ]


@given(batches_of(), codecs, st.integers(1, 8))
def test_portions_are_the_batch(
    drawn: tuple[int, list[Record]], codec: Compression, records_max: int
) -> None:
    base, records = drawn
    (batch,) = scan(build(records, base_offset=base, compression=codec))
    found = list(portions(batch, records_max))
    assert [record for portion in found for record in read_batch(portion)] == records
    assert all(portion.count <= records_max for portion in found)
    assert found[-1].last_offset == batch.last_offset
    for portion, following in pairwise(found):
        assert portion.last_offset + 1 == following.offsets[0]
        assert portion.base_offset == batch.base_offset
    for portion in found:
        offsets = list(portion.offsets)
        assert select(portion, offsets, records_max=9) == select(batch, offsets, records_max=9)


@given(batches_of(), codecs, st.integers(1, 8), st.data())
def test_any_selection(
    drawn: tuple[int, list[Record]], codec: Compression, records_max: int, data: st.DataObject
) -> None:
    base, records = drawn
    (batch,) = scan(build(records, base_offset=base, compression=codec))
    wanted = [record for record in records if data.draw(st.booleans())]
    offsets = [record.offset for record in wanted]
    parts = scan(select(batch, offsets, records_max=records_max))
    assert [record for part in parts for record in read_batch(part)] == wanted
    assert [part.count for part in parts[:-1]] == [records_max] * (len(parts) - 1)
    assert all(part.last_offset == part.offsets[-1] for part in parts)
    (kept,) = scan(filtered(batch, offsets))
    assert read_batch(kept) == wanted
    assert kept.last_offset == batch.last_offset


@given(st.binary(max_size=200))
def test_any_bytes(data: bytes) -> None:
    with contextlib.suppress(CorruptBatch):
        for batch in scan(data, check_crc=False):
            read_batch(batch)


@given(batches_of(), codecs, st.data())
def test_any_damage(
    drawn: tuple[int, list[Record]], codec: Compression, data: st.DataObject
) -> None:
    """Under a right CRC, as a broken producer would send it: batches, or CorruptBatch, never
    else.
    """
    base, records = drawn
    damaged = bytearray(build(records, base_offset=base, compression=codec))
    for _ in range(data.draw(st.integers(1, 3))):
        damaged[data.draw(st.integers(0, len(damaged) - 1))] = data.draw(st.integers(0, 255))
    del damaged[data.draw(st.integers(HEADER_SIZE, len(damaged))) :]
    struct.pack_into(">i", damaged, 8, len(damaged) - 12)
    struct.pack_into(">I", damaged, 17, crc32c(bytes(damaged[21:])))
    with contextlib.suppress(CorruptBatch):
        for batch in drop_aborted(scan(bytes(damaged), body_max=1 << 20), []):
            read_batch(batch)
            sent = select(batch, batch.offsets, records_max=3)
            assert [at for part in scan(sent) for at in part.offsets] == batch.offsets


@given(batches_of(), st.data())
def test_chunks_of_a_log(drawn: tuple[int, list[Record]], data: st.DataObject) -> None:
    """Cut anywhere, a run of batches gives its whole ones."""
    base, records = drawn
    one = build(records, base_offset=base)
    cut = data.draw(st.integers(0, 3 * len(one)))
    assert len(scan((one * 3)[:cut])) == cut // len(one)
