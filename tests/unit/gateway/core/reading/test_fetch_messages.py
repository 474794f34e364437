"""Fetch answers that are damaged: the records before the damage are read."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from crc32c import crc32c

from gateway.core.cluster.topology import TopicPartition
from gateway.core.limits import FETCH_PARTITION_BYTES_MAX, LONG_STEP_RECORDS, SCAN_BYTES_MAX
from gateway.core.reading import fetch_messages
from gateway.core.reading.cache import Source
from gateway.core.reading.fetch_messages import (
    Damages,
    brings_nothing,
    end_of_first,
    shortest_first,
)
from gateway.core.reading.fetching import FetchPosition
from gateway.core.wire.errors import ErrorCode
from gateway.core.wire.records import (
    BODY_BYTES_MAX,
    Batch,
    Compression,
    CorruptBatch,
    Record,
    Scan,
    TooLargeBatch,
    build,
)
from gateway.core.wire.schema import Message

SOURCE = Source(TopicPartition("orders", bytes(16), 0), 1)
PLACE = FetchPosition(SOURCE, 4)


def batch(*offsets: int) -> bytes:
    return build([Record(at, 0, b"k", b"value") for at in offsets], base_offset=offsets[0])


def undamaged(damages: Damages, place: FetchPosition, data: bytes) -> list[Batch]:
    found = damages.undamaged(place, data)
    while found.step():
        pass
    return found.batches


def offsets(data: bytes) -> list[int]:
    return [offset for found in undamaged(Damages(), PLACE, data) for offset in found.offsets]


def flipped(data: bytes) -> bytes:
    return data[:-3] + bytes([data[-3] ^ 1]) + data[-3:][1:]


def counted_as(data: bytes, records: int) -> bytes:
    """One batch that says it has so many records."""
    changed = data[:57] + records.to_bytes(4, "big") + data[61:]
    return changed[:17] + crc32c(changed[21:]).to_bytes(4, "big") + changed[21:]


def without_length(data: bytes) -> bytes:
    return data[:8] + b"\xff\xff\xff\xff" + data[12:]


def test_no_short_answer_waits_for_a_long_one() -> None:
    """90 MB of one partition took most of a second, and three records of another came behind."""
    tps = [TopicPartition("orders", bytes(16), partition) for partition in range(4)]
    long, unknown, empty, short = (FetchPosition(Source(tp, 1), 4) for tp in tps)
    answers: dict[TopicPartition, Message] = {
        tps[0]: {"Records": batch(*range(4, 100))},
        tps[1]: {"ErrorCode": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION},
        tps[2]: {"Records": None},
        tps[3]: {"Records": batch(4)},
    }
    assert shortest_first((long, unknown, empty, short), answers) == [unknown, empty, short, long]


def test_what_is_whole_is_whole() -> None:
    assert offsets(b"") == []
    assert offsets(batch(0, 1) + batch(4, 5)) == [0, 1, 4, 5]
    assert offsets(batch(0, 1) + batch(4, 5)[:-1]) == [0, 1], "cut off, as Kafka does"


@pytest.mark.parametrize("behind", [b"", flipped(batch(9))], ids=["whole", "damaged"])
def test_batches_that_are_small_on_the_wire_only_are_read_a_few_at_a_time(behind: bytes) -> None:
    """A producer of 1 MB of zeros, a thousand times, must not take the node's memory."""
    size = SCAN_BYTES_MAX // 4
    zeros = b"".join(
        build([Record(at, 0, b"k", bytes(size))], base_offset=at, compression=Compression.ZSTD)
        for at in range(9)
    )
    assert len(zeros) < FETCH_PARTITION_BYTES_MAX // 100
    assert offsets(zeros + behind) == [0, 1, 2, 3]
    alone = build([Record(0, 0, b"k", bytes(5 * size))], base_offset=0)
    assert offsets(alone + batch(1)) == [0], "one that is larger is read alone"


@pytest.mark.parametrize("damage", [flipped, without_length])
@pytest.mark.parametrize("behind", [b"", batch(9), batch(9)[:30]], ids=["end", "batch", "cut"])
def test_the_batches_before_a_damaged_one(damage: Callable[[bytes], bytes], behind: bytes) -> None:
    bad = damage(batch(4, 5))
    assert offsets(batch(0, 1) + batch(2) + bad + behind) == [0, 1, 2]
    with pytest.raises(CorruptBatch):
        undamaged(Damages(), PLACE, bad + behind)


def bomb(first: int, count: int) -> bytes:
    """A batch that is small on the wire, and one byte too large when decompressed."""
    records = [Record(first + at, 0, b"k", bytes(BODY_BYTES_MAX // count)) for at in range(count)]
    return build(records, base_offset=first, compression=Compression.ZSTD)


def test_a_batch_too_large_when_decompressed_says_so_and_where_it_ends(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    large = bomb(6, 4)
    assert len(large) < 100_000
    assert offsets(batch(4, 5) + large + batch(10)) == [4, 5], "the records before it are read"
    damages = Damages()
    said = "the batch at base offset 6 is too large when decompressed: more than 134,217,728 bytes"
    for _ in range(2):
        with pytest.raises(TooLargeBatch, match=said) as refused:
            undamaged(damages, FetchPosition(SOURCE, 6), large + batch(10))
        assert refused.value.code is ErrorCode.MESSAGE_TOO_LARGE
        monkeypatch.setattr(fetch_messages, "Scan", None)  # not scanned a second time
    assert end_of_first(large + batch(10)) == 10
    assert end_of_first(batch(4, 5)) == 6


def test_a_damaged_batch_is_scanned_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Until it is mended, or another stands there; and wherever else is read of that log."""
    scanned: list[int] = []

    def counted(data: bytes, enough: int) -> Scan:
        scanned.append(len(data))
        return Scan(data, enough=enough)

    monkeypatch.setattr(fetch_messages, "Scan", counted)
    damages, good = Damages(), batch(4, 5)
    bad = flipped(good)
    for tries in range(3):
        with pytest.raises(CorruptBatch, match="wrong CRC at base offset 4"):
            undamaged(damages, PLACE, bad + batch(*range(9, 9 + tries + 1)))
    with pytest.raises(CorruptBatch):
        undamaged(damages, FetchPosition(SOURCE, 5), bad)
    assert len(scanned) == 1
    assert len(undamaged(damages, FetchPosition(SOURCE, 0), batch(0))) == 1
    with pytest.raises(CorruptBatch):
        undamaged(damages, PLACE, bad)
    assert len(scanned) == 2
    for _ in range(2):
        with pytest.raises(CorruptBatch, match="batch length -1"):
            undamaged(damages, PLACE, without_length(good))
    assert len(scanned) == 3
    assert len(undamaged(damages, PLACE, good)) == 1, "mended"
    assert not damages._known
    for _ in range(2):
        with pytest.raises(CorruptBatch):
            undamaged(damages, PLACE, bad)
        damages.forget(SOURCE)
    assert len(scanned) == 6


def test_a_long_batch_is_scanned_in_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetch_messages, "LONG_STEP_RECORDS", 2)
    found = Damages().undamaged(PLACE, batch(4, 5, 6) + batch(7, 8) + flipped(batch(9)))
    steps = [found.step() for _ in range(3)]
    assert steps == [True, True, False], "five records, then the damaged batch"
    assert [each.offsets for each in found.batches] == [[4, 5, 6], [7, 8]]


def test_a_fault_in_a_later_step_is_noted() -> None:
    damages = Damages()
    long = build([Record(at, 0, None, b"") for at in range(LONG_STEP_RECORDS + 1)], base_offset=0)
    data = counted_as(long, LONG_STEP_RECORDS + 2)
    found = damages.undamaged(PLACE, data)
    assert found.step()
    with pytest.raises(CorruptBatch, match="cut off"):
        found.step()
    with pytest.raises(CorruptBatch, match="cut off"):
        damages.undamaged(PLACE, data)


QUIET: Message = {"ErrorCode": 0, "Records": None, "DivergingEpoch": {"Epoch": -1, "EndOffset": -1}}


@pytest.mark.parametrize(
    ("said", "nothing"),
    [
        ({}, True),
        ({"Records": b""}, True),
        ({"Records": batch(4)}, False),
        ({"ErrorCode": int(ErrorCode.NOT_LEADER_OR_FOLLOWER)}, False),
        ({"DivergingEpoch": {"Epoch": 3, "EndOffset": 9}}, False),
    ],
)
def test_an_answer_without_records_error_or_divergence_brings_nothing(
    said: Message, nothing: bool
) -> None:
    assert brings_nothing({**QUIET, **said}) is nothing
