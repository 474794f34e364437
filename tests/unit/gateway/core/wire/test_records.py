"""Record batches by hand: headers byte for byte, refusals, bounds. Oracles: conformance."""

from __future__ import annotations

import struct
import tracemalloc
from collections.abc import Callable

import pytest
from crc32c import crc32c

from gateway.core.limits import LONG_STEP_BYTES
from gateway.core.wire.batches import BODY_BYTES_MAX
from gateway.core.wire.errors import ErrorCode
from gateway.core.wire.long_bytes import Stretch, whole
from gateway.core.wire.records import (
    CONTROL_ABORT,
    CONTROL_COMMIT,
    CONTROL_NONE,
    HEADER_SIZE,
    Compression,
    CorruptBatch,
    Producer,
    Record,
    TooLargeBatch,
    UnsupportedMagic,
    build,
    drop_aborted,
    filtered,
    marker,
    portions,
    read_batch,
    read_records,
    scan,
    select,
    select_long,
)
from gateway.core.wire.scanning import skip_varlong, varint

WRITER = Producer(producer_id=9, epoch=2, base_sequence=17, transactional=True)


def records(*offsets: int) -> list[Record]:
    return [Record(at, 1_000 + at, b"key-%d" % at, b"value") for at in offsets]


def resealed(data: bytes, change: Callable[[bytearray], None]) -> bytes:
    """One batch after `change`, with length and CRC made right again."""
    changed = bytearray(data)
    change(changed)
    struct.pack_into(">i", changed, 8, len(changed) - 12)
    struct.pack_into(">I", changed, 17, crc32c(bytes(changed[21:])))
    return bytes(changed)


def test_columns() -> None:
    (batch,) = scan(build(records(10, 11, 15), base_offset=10, last_offset=19))
    assert batch.offsets == [10, 11, 15]
    assert batch.keys == [b"key-10", b"key-11", b"key-15"]
    assert (batch.base_offset, batch.last_offset, batch.count) == (10, 19, 3)
    assert batch.starts == [0, *batch.ends[:-1]]
    assert batch.ends[-1] == len(batch.body)
    assert batch.control_type == CONTROL_NONE
    assert batch.size > HEADER_SIZE + len(batch.body)


def test_no_key_and_an_empty_key_differ() -> None:
    data = build([Record(0, 0, None, b""), Record(1, 0, b"", None)], base_offset=0)
    assert scan(data)[0].keys == [None, b""]


def test_a_cut_off_last_batch_is_left_out() -> None:
    first, second = build(records(0), base_offset=0), build(records(1), base_offset=1)
    assert scan(b"") == []
    for cut in range(len(second)):
        assert [batch.offsets for batch in scan(first + second[:cut])] == [[0]]
    assert [batch.offsets for batch in scan(first + second)] == [[0], [1]]


def test_every_damaged_byte_behind_the_crc_is_found() -> None:
    data = build(records(0, 1), base_offset=0)
    for at in range(17, len(data)):
        damaged = bytearray(data)
        damaged[at] ^= 0x10
        with pytest.raises(CorruptBatch):
            scan(bytes(damaged))


def test_the_crc_may_be_left_unchecked() -> None:
    data = bytearray(build(records(0), base_offset=0))
    data[17] ^= 1
    assert scan(bytes(data), check_crc=False)[0].offsets == [0]


@pytest.mark.parametrize("magic", [0, 1, 3])
def test_other_magics(magic: int) -> None:
    data = bytearray(build(records(0), base_offset=0))
    data[16] = magic
    with pytest.raises(UnsupportedMagic) as refused:
        scan(bytes(data))
    assert refused.value.code == ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT


@pytest.mark.parametrize("length", [-1, 0, 13, 48])
def test_a_length_no_batch_has(length: int) -> None:
    data = bytearray(build(records(0), base_offset=0))
    struct.pack_into(">i", data, 8, length)
    with pytest.raises(CorruptBatch) as refused:
        scan(bytes(data))
    assert refused.value.code == ErrorCode.CORRUPT_MESSAGE


def test_field_values_no_batch_has() -> None:
    data = build(records(5, 6), base_offset=5)
    for layout, at, value in (
        (">q", 0, -1),
        (">q", 0, 2**63 - 1),
        (">i", 23, -1),
        (">i", 23, 0),  # the second record's delta is 1
        (">i", 57, -1),
        (">i", 57, 1),  # bytes behind the last record
        (">i", 57, 3),  # records cut off
        (">i", 57, 2**31 - 1),
    ):

        def change(
            batch: bytearray, layout: str = layout, at: int = at, value: int = value
        ) -> None:
            struct.pack_into(layout, batch, at, value)

        with pytest.raises(CorruptBatch):
            scan(resealed(data, change))


@pytest.mark.parametrize(
    "body",
    [
        b"\x01" + b"\x00" * 6,  # length -1
        b"\x7e" + b"\x00" * 6,  # longer than the batch
        b"\x0c\x00\x00\x00\x14\x00\x00",  # a key longer than its record
        b"\xff\xff\xff\xff\xff\x01" + b"\x00" * 6,  # length of six bytes
        b"\x0c\x00" + b"\x80" * 11,  # a timestamp delta of eleven bytes
        b"\x0c\x00\x00\x01\x00\x00\x00",  # delta -1
        b"\x0c",
        b"\x80",
        b"",
    ],
)
def test_record_bytes_no_record_has(body: bytes) -> None:
    def change(batch: bytearray) -> None:
        batch[HEADER_SIZE:] = body

    with pytest.raises(CorruptBatch):
        scan(resealed(build(records(0), base_offset=0), change))


def test_varints_of_32_bits() -> None:
    """As ByteUtils.readVarint: bits beyond 32 fall off, a sixth byte is refused."""
    for data, value in (
        (b"\x00", 0),
        (b"\x01", -1),
        (b"\xfe\xff\xff\xff\x0f", 2**31 - 1),
        (b"\xff\xff\xff\xff\x0f", -(2**31)),
        (b"\xff\xff\xff\xff\x7f", -(2**31)),
    ):
        assert varint(b"?" + data + b"?", 1) == (value, 1 + len(data))
    with pytest.raises(CorruptBatch, match="5 bytes"):
        varint(b"\x80\x80\x80\x80\x80\x00", 0)


def test_varints_of_64_bits_are_skipped() -> None:
    assert skip_varlong(b"?" + b"\xff" * 9 + b"\x01", 1) == 11
    with pytest.raises(CorruptBatch, match="10 bytes"):
        skip_varlong(b"\x80" * 11, 0)


def test_offsets_have_to_ascend() -> None:
    for first, second in ((1, 1), (2, 1)):
        data = build(records(0, first), base_offset=0, last_offset=5)
        other = build(records(0, second), base_offset=0, last_offset=5)
        body = scan(data)[0]
        twice = body.body[body.starts[1] :] + other[HEADER_SIZE + body.starts[1] :]

        def change(batch: bytearray, twice: bytes = twice) -> None:
            batch[HEADER_SIZE:] = twice

        with pytest.raises(CorruptBatch, match="delta"):
            scan(resealed(data, change))


def test_deltas_and_timestamps_of_full_width() -> None:
    wide = [
        Record(0, -(2**62), b"a", b""),
        Record(2**31 - 1, 2**62, b"b" * 70_000, b"", [("h" * 200, b"\x00" * 20_000)]),
    ]
    data = build(wide, base_offset=0)
    assert read_records(data) == wide
    (batch,) = scan(data)
    assert read_records(select(batch, [2**31 - 1], records_max=1)) == wide[1:]
    high = build([Record(2**62 + 7, 0, b"a", b"")], base_offset=2**62)
    assert scan(high)[0].offsets == [2**62 + 7]


@pytest.mark.parametrize("codec", [5, 6, 7])
def test_unknown_codecs(codec: int) -> None:
    def change(batch: bytearray) -> None:
        batch[22] |= codec

    with pytest.raises(CorruptBatch, match="codec"):
        scan(resealed(build(records(0), base_offset=0), change))


@pytest.mark.parametrize("codec", list(Compression)[1:])
def test_a_decompression_bomb_is_refused(codec: Compression) -> None:
    bomb = build([Record(0, 0, b"k", b"\x00" * 3_000_000)], base_offset=0, compression=codec)
    assert len(bomb) < 200_000
    with pytest.raises(TooLargeBatch, match="too large when decompressed: more than 1,000,000 by"):
        scan(bomb, body_max=1_000_000)
    assert scan(bomb)[0].offsets == [0]
    assert BODY_BYTES_MAX == 128 * 1024 * 1024


@pytest.mark.parametrize("codec", list(Compression)[1:])
def test_compressed_bytes_that_are_damaged(codec: Compression) -> None:
    data = build(records(*range(200)), base_offset=0, compression=codec)

    def cut(batch: bytearray) -> None:
        del batch[-9:]

    def blank(batch: bytearray) -> None:
        batch[HEADER_SIZE:] = b"\x00" * 50

    for damage in (cut, blank):
        with pytest.raises(CorruptBatch):
            scan(resealed(data, damage))


def test_an_empty_batch_with_a_codec_has_nothing_to_decompress() -> None:
    def change(batch: bytearray) -> None:
        batch[22] |= Compression.ZSTD
        del batch[HEADER_SIZE:]

    (batch,) = scan(resealed(build([], base_offset=3, last_offset=8), change))
    assert (batch.count, batch.base_offset, batch.last_offset) == (0, 3, 8)


def test_a_filtered_batch_keeps_its_header() -> None:
    data = build(records(20, 21, 22), base_offset=20, producer=WRITER, leader_epoch=6)
    (batch,) = scan(data)
    assert filtered(batch, [20, 21, 22]) == data
    empty = filtered(batch, [])
    assert len(empty) == HEADER_SIZE
    assert empty[0:8] == data[0:8]
    assert struct.unpack_from(">i", empty, 8) == (HEADER_SIZE - 12,)
    assert empty[12:17] == data[12:17]
    assert empty[21:57] == data[21:57]
    assert struct.unpack_from(">i", empty, 57) == (0,)
    assert scan(empty)[0].last_offset == 22


def in_a_frame(data: bytes) -> Stretch:
    return Stretch(b"before" + data + b"behind", 6, 6 + len(data))


def test_a_large_record_is_not_copied() -> None:
    """A copy of 90 MB, which one record may be, holds the event loop up for 100 ms."""
    data = build([Record(0, 0, b"key", bytes(1 << 24))], base_offset=0)
    frame = in_a_frame(data)
    tracemalloc.start()
    try:
        (batch,) = scan(frame)
        selected = select_long(batch, [0], records_max=1)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 100_000
    assert whole(selected) == data


def test_large_batches_in_a_frame() -> None:
    """Their records stand in the midst of other bytes; small batches beside them are cut out."""
    value = bytes(LONG_STEP_BYTES // 2)
    large = [Record(at, 5, b"%d" % at, value) for at in range(3, 6)]
    batches = scan(
        in_a_frame(
            b"".join(
                [
                    build(records(1, 2), base_offset=1),
                    build(large, base_offset=3),
                    build(records(7), base_offset=7),
                ]
            )
        )
    )
    assert [batch.offsets for batch in batches] == [[1, 2], [3, 4, 5], [7]]
    assert [len(batch.body) < 100 for batch in batches] == [True, False, True]
    assert read_batch(batches[1]) == large
    for wanted in ([3, 4, 5], [3, 5], [4], [4, 5]):
        shown = [record for record in large if record.offset in wanted]
        assert read_records(select_long(batches[1], wanted, records_max=2)) == shown
        assert read_records(select(batches[1], wanted, records_max=9)) == shown
        assert read_records(filtered(batches[1], wanted)) == shown
    cut_up = [read_batch(portion) for portion in portions(batches[1], 1)]
    assert cut_up == [[record] for record in large]


@pytest.mark.parametrize("too_long", [0, 1, 7])
def test_a_large_batch_ends_where_it_says(too_long: int) -> None:
    """Its last record may not go on into the bytes behind it."""
    data = bytearray(build([Record(0, 0, None, bytes(LONG_STEP_BYTES))], base_offset=0))
    assert data[-1] == 0, "no headers"
    length = int.from_bytes(data[8:12], "big") - too_long
    data[8:12] = length.to_bytes(4, "big")
    frame = Stretch(bytes(data) + b"behind", 0, len(data) + 6)
    if too_long:
        with pytest.raises(CorruptBatch, match="a record of"):
            scan(frame, check_crc=False)
    else:
        assert [batch.count for batch in scan(Stretch(frame.data, 0, len(data)))] == [1]


def test_selected_batches_byte_for_byte() -> None:
    plain = build(records(20, 21, 22, 23), base_offset=20, leader_epoch=6)
    data = build(records(20, 21, 22, 23), base_offset=20, producer=WRITER, leader_epoch=6)
    (batch,) = scan(data)
    assert select(batch, [20, 21, 22, 23], records_max=4) == plain
    assert select(batch, [], records_max=4) == b""
    first, second = scan(select(batch, [20, 22, 23], records_max=2))
    assert (first.offsets, first.base_offset, first.last_offset) == ([20, 22], 20, 22)
    assert (second.offsets, second.base_offset, second.last_offset) == ([23], 20, 23)
    for part in (first, second):
        assert part.header[12:17] == data[12:17]  # leader epoch, magic
        assert part.header[21:23] == b"\x00\x00"  # not transactional
        assert part.header[27:43] == data[27:43]  # timestamps
        assert part.header[43:57] == b"\xff" * 14  # no producer
    body = batch.body[batch.starts[0] : batch.ends[0]] + batch.body[batch.starts[2] : batch.ends[2]]
    assert first.body == body


def test_selecting_what_is_not_there_is_refused() -> None:
    (batch,) = scan(build(records(20, 21, 25), base_offset=20))
    for offsets in ([19], [22], [26], [20, 22], [21, 20], [20, 20], [25, 26]):
        with pytest.raises(ValueError, match="not in the batch"):
            select(batch, offsets, records_max=9)
        with pytest.raises(ValueError, match="not in the batch"):
            filtered(batch, offsets)
    with pytest.raises(ValueError, match="0 records"):
        select(batch, [20], records_max=0)


def test_markers() -> None:
    for commit, kind in ((True, CONTROL_COMMIT), (False, CONTROL_ABORT)):
        (batch,) = scan(marker(7, WRITER, commit=commit))
        assert batch.is_control
        assert batch.control_type == kind
        assert (batch.count, batch.offsets, batch.keys) == (0, [], [])
    assert read_records(marker(7, WRITER, commit=True)) == []


def test_a_marker_without_a_type_is_corrupt() -> None:
    for key in (None, b"\x00\x00\x00"):
        with pytest.raises(CorruptBatch, match="control"):
            scan(build([Record(0, 0, key, b"")], base_offset=0, control=True))


def test_a_control_batch_that_compaction_emptied() -> None:
    (batch,) = scan(build([], base_offset=4, producer=WRITER, control=True))
    assert batch.is_control
    assert batch.control_type == CONTROL_NONE


def test_aborted_until_the_marker_and_not_beyond() -> None:
    other = Producer(producer_id=10, epoch=0, base_sequence=0, transactional=True)
    untransactional = Producer(producer_id=9, epoch=2, base_sequence=40)
    log = b"".join(
        [
            build(records(0, 1), base_offset=0, producer=WRITER),  # committed below
            marker(2, WRITER, commit=True),
            build(records(3), base_offset=3, producer=WRITER),  # aborted
            build(records(4), base_offset=4, producer=other),  # goes through
            build(records(5), base_offset=5, producer=untransactional),
            marker(6, WRITER, commit=False),
            marker(7, other, commit=True),
            build(records(8), base_offset=8, producer=WRITER),  # the next transaction
            marker(9, WRITER, commit=True),
        ]
    )
    batches = scan(log)
    kept = drop_aborted(batches, [(9, 3)])
    assert [offset for batch in kept for offset in batch.offsets] == [0, 1, 4, 5, 8]
    assert [batch.offsets for batch in drop_aborted(batches, [])] == [[0, 1], [3], [4], [5], [8]]


def test_header_names_that_are_no_text_are_sent_as_they_are() -> None:
    data = build([Record(0, 0, b"k", b"v", [("ab", b"1"), ("ab", None)])], base_offset=0)
    at = data.index(b"ab")

    def change(batch: bytearray) -> None:
        batch[at : at + 2] = b"\xff\xfe"

    odd = resealed(data, change)
    (batch,) = scan(odd)
    assert select(batch, [0], records_max=1) == odd
    assert read_records(odd)[0].headers == [("\ufffd\ufffd", b"1"), ("ab", None)]


def test_values_and_headers_are_checked_when_they_are_read() -> None:
    data = build([Record(0, 0, b"k", b"v", [("h", b"1")])], base_offset=0)
    for at in range(HEADER_SIZE + 6, len(data)):

        def change(batch: bytearray, at: int = at) -> None:
            batch[at] = 0x3E  # 31, as a size of anything

        broken = resealed(data, change)
        if data[at] in b"v1h":
            assert read_records(broken) != read_records(data)
        else:
            with pytest.raises(CorruptBatch):
                read_records(broken)
