"""The time of the first record behind a position, from a broker that answers as it is told."""

from __future__ import annotations

import threading
from typing import ClassVar

import pytest

from gateway.core.limits import LONG_STEP_BYTES
from gateway.core.reading.cache import Source
from gateway.core.wire.compress import Compression
from gateway.core.wire.errors import ErrorCode
from gateway.core.wire.records import Batch, Producer, Record, Scan, build, marker
from gateway.core.wire.schema import Message
from gateway.reading import record_times
from gateway.reading.limits import BATCHES_LOOKED_AT
from gateway.reading.reader import Reader
from gateway.reading.record_times import Seen
from gateway.upstream.errors import UpstreamError
from tests.shell.gateway.reading.test_reader import END, OUT_OF_RANGE, TP, Log, run, whole

COMMITTED, UNCOMMITTED = Source(TP, 1), Source(TP, 0)
WRITER = Producer(producer_id=7, epoch=0, base_sequence=0, transactional=True)


def made(*offsets: int, producer: Producer | None = None, aborted: bool = False) -> Message:
    """An answer with one batch; the record at offset n was made at 1000 + n ms."""
    records = [Record(at, 1_000 + at, b"k", b"v") for at in offsets]
    data = (
        build(records, base_offset=offsets[0], producer=producer)
        if producer is not None
        else build(records, base_offset=offsets[0])
    )
    entries = [{"ProducerId": 7, "FirstOffset": 0}] if aborted else None
    return whole() | {"Records": data, "AbortedTransactions": entries}


def test_the_record_at_the_position() -> None:
    log = Log([made(0, 1, 2, 3)])

    async def work(reader: Reader) -> None:
        assert await reader.records.times.look(COMMITTED, 2) == Seen(3, 2, 1_002)

    run(work, log)
    assert log.asked == 1


def test_a_record_that_compaction_took_is_not_waited_for() -> None:
    async def work(reader: Reader) -> None:
        assert await reader.records.times.look(COMMITTED, 1) == Seen(5, 4, 1_004)

    run(work, Log([made(0, 4)]))


def test_records_of_an_aborted_transaction_are_passed_and_so_is_its_marker() -> None:
    end = whole() | {"Records": marker(2, WRITER, commit=False)}

    async def work(reader: Reader) -> None:
        assert await reader.records.times.look(COMMITTED, 0) == Seen(4, 3, 1_003)

    run(work, Log([made(0, 1, producer=WRITER, aborted=True), end, made(3)]))


def test_who_reads_uncommitted_sees_them() -> None:
    async def work(reader: Reader) -> None:
        assert await reader.records.times.look(UNCOMMITTED, 0) == Seen(1, 0, 1_000)

    run(work, Log([made(0, 1, producer=WRITER, aborted=True)]))


def test_a_long_aborted_transaction_is_left_for_the_next_look() -> None:
    rows = [made(at, producer=WRITER, aborted=True) for at in range(BATCHES_LOOKED_AT + 1)]
    log = Log(rows)

    async def work(reader: Reader) -> None:
        assert await reader.records.times.look(COMMITTED, 0) == Seen(BATCHES_LOOKED_AT)

    run(work, log)
    assert log.asked == BATCHES_LOOKED_AT


def test_nothing_at_the_end_of_the_log() -> None:
    async def work(reader: Reader) -> None:
        assert await reader.records.times.look(COMMITTED, END) == Seen(END)

    run(work, Log([whole() | {"Records": b""}]))


def test_records_that_retention_took_are_passed() -> None:
    async def work(reader: Reader) -> None:
        assert await reader.records.times.look(COMMITTED, 0) == Seen(4, 3, 1_003)

    run(work, Log([OUT_OF_RANGE, made(3)], start=3))


def test_a_batch_that_cannot_be_read_is_refused() -> None:
    data = bytearray(made(0)["Records"])
    data[-1] ^= 1

    async def work(reader: Reader) -> None:
        with pytest.raises(UpstreamError, match=r"offset 0 of orders-0: wrong CRC"):
            await reader.records.times.look(COMMITTED, 0)
        with pytest.raises(UpstreamError, match="NOT_LEADER_OR_FOLLOWER"):
            await reader.records.times.look(COMMITTED, 0)

    refused = whole() | {"Records": b"", "ErrorCode": int(ErrorCode.NOT_LEADER_OR_FOLLOWER)}
    run(work, Log([whole() | {"Records": bytes(data)}, refused]))


class Noted:
    """A scan that tells in which threads its steps ran."""

    threads: ClassVar[list[int]] = []

    def __init__(self, data: bytes, *, enough: int) -> None:
        self._scan = Scan(data, enough=enough)

    @property
    def long_next(self) -> bool:
        return self._scan.long_next

    @property
    def batches(self) -> list[Batch]:
        return self._scan.batches

    def step(self, records_max: int) -> bool:
        self.threads.append(threading.get_ident())
        return self._scan.step(records_max)


def test_a_long_batch_is_decompressed_in_another_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    """256 KB of gzip that are 256 MB: the event loop was held up for 262 ms."""
    large = [Record(0, 5, b"k", bytes(LONG_STEP_BYTES))]
    data = build(large, base_offset=0, compression=Compression.GZIP)
    monkeypatch.setattr(record_times, "Scan", Noted)

    async def work(reader: Reader) -> None:
        assert await reader.records.times.look(COMMITTED, 0) == Seen(1, 0, 5)
        here = threading.get_ident()
        assert [thread == here for thread in Noted.threads] == [True, False]

    run(work, Log([whole() | {"Records": data}]))


def test_a_record_without_a_time_says_so() -> None:
    data = build([Record(0, -1, b"k", b"v")], base_offset=0)

    async def work(reader: Reader) -> None:
        assert await reader.records.times.look(COMMITTED, 0) == Seen(1, 0, -1)

    run(work, Log([whole() | {"Records": data}]))


def test_records_in_the_cache_are_not_asked_for() -> None:
    log = Log([made(0, 1, 2)])

    async def work(reader: Reader) -> None:
        times = reader.records.times
        assert times.in_cache(COMMITTED, 1) is None
        await reader.records.bytes_for(COMMITTED, [1], records_max=10)
        assert times.in_cache(COMMITTED, 1) == Seen(2, 1, 1_001)
        assert times.in_cache(COMMITTED, 3) is None

    run(work, log)
    assert log.asked == 1


def test_a_large_batch_is_one_answer() -> None:
    """A broker sends a batch whole, whatever a fetch allows."""
    data = build([Record(0, 5, b"k", bytes(LONG_STEP_BYTES))], base_offset=0)

    async def work(reader: Reader) -> None:
        assert await reader.records.times.look(COMMITTED, 0) == Seen(1, 0, 5)

    run(work, Log([whole() | {"Records": data}]))
