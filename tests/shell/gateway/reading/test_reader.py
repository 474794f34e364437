"""Re-reading records from a broker that knows less of the log than the one they came from."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest

from gateway.core.cluster.topology import TopicPartition
from gateway.core.limits import LONG_STEP_BYTES
from gateway.core.reading import fetch_messages
from gateway.core.reading.cache import RecordsGone, RecordsLarge, Source
from gateway.core.reading.fetch_messages import UndamagedScan
from gateway.core.reading.fetching import ReadResult
from gateway.core.wire.apis import ApiKey
from gateway.core.wire.errors import ErrorCode
from gateway.core.wire.long_bytes import whole as whole_bytes
from gateway.core.wire.records import BODY_BYTES_MAX, Compression, Record, build, read_records, scan
from gateway.core.wire.schema import Message
from gateway.reading import long_scans
from gateway.reading.reader import Reader
from gateway.upstream.cluster import EARLIEST, Upstream
from gateway.upstream.errors import UpstreamError
from gateway.upstream.settings import UpstreamSettings
from tests.rig.fake_broker import FakeBroker, ReceivedRequest, speaking
from tests.rig.loopback import until
from tests.rig.patience import patient_s

TOPIC, TOPIC_ID = "orders", bytes(range(16))
TP = TopicPartition(TOPIC, TOPIC_ID, 0)
COMMITTED = Source(TP, 1)
BATCH_BYTES = 100  # more than a batch of one of its records
END = 5  # of the log, as all in-sync replicas have it


@dataclass
class Log:
    """One partition; `fetches` are the rows of the next fetches, then the log is whole."""

    fetches: list[Message] = field(default_factory=list)
    start: int = 0
    end: int = END
    gate: asyncio.Event | None = None  # fetches wait for it
    asked: int = 0  # fetches
    epochs: list[int] = field(default_factory=list)  # that they named

    def broker(self) -> FakeBroker:
        async def metadata(request: ReceivedRequest) -> bytes:
            partition = {"PartitionIndex": 0, "LeaderId": 1, "LeaderEpoch": 1}
            topic = {"Name": TOPIC, "TopicId": TOPIC_ID, "Partitions": [partition]}
            return request.response({**broker.metadata(), "Topics": [topic]})

        broker = speaking(
            {
                ApiKey.METADATA: metadata,
                ApiKey.LIST_OFFSETS: self._list_offsets,
                ApiKey.FETCH: self._fetch,
            }
        )
        return broker

    async def _list_offsets(self, request: ReceivedRequest) -> bytes:
        asked = request.body["Topics"][0]["Partitions"][0]["Timestamp"]
        row = {"PartitionIndex": 0, "Offset": self.start if asked == EARLIEST else self.end}
        return request.response({"Topics": [{"Name": TOPIC, "Partitions": [row]}]})

    async def _fetch(self, request: ReceivedRequest) -> bytes:
        self.asked += 1
        for topic in request.body["Topics"]:
            self.epochs += [place["LastFetchedEpoch"] for place in topic["Partitions"]]
        if self.gate is not None:
            await self.gate.wait()
        row = self.fetches.pop(0) if self.fetches else whole()
        topics = [{"TopicId": TOPIC_ID, "Partitions": [{"PartitionIndex": 0, **row}]}]
        return request.response({"Responses": topics})


def whole() -> Message:
    records = [Record(offset, 0, b"k", b"%d" % offset) for offset in range(END)]
    data = build(records, base_offset=0)
    return {"HighWatermark": END, "LastStableOffset": END, "LogStartOffset": 0, "Records": data}


@asynccontextmanager
async def reading(log: Log) -> AsyncIterator[Reader]:
    """A reader that has nothing in its cache."""
    async with log.broker().running() as broker:
        settings = UpstreamSettings(f"127.0.0.1:{broker.port}", request_timeout_ms=2_000)
        async with Upstream(settings) as upstream:
            await upstream.refresh([TOPIC])
            yield Reader(upstream)


def run(work: Callable[[Reader], Any], log: Log) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(patient_s(60)), reading(log) as reader:
            await work(reader)

    asyncio.run(bounded())


LAGS: Message = {
    "HighWatermark": 2,
    "LastStableOffset": 2,
    "LogStartOffset": 0,
    "Records": b"",
}
OUT_OF_RANGE: Message = {
    "ErrorCode": int(ErrorCode.OFFSET_OUT_OF_RANGE),
    "HighWatermark": -1,
    "LastStableOffset": -1,
    "LogStartOffset": -1,
    "Records": b"",
}


@pytest.mark.parametrize("row", [LAGS, OUT_OF_RANGE], ids=["high watermark", "log end"])
def test_a_replica_that_lags_has_not_lost_what_it_does_not_show_yet(row: Message) -> None:
    """A leader that was just elected, or a follower, hides records until it has caught up."""

    async def work(reader: Reader) -> None:
        data = await reader.records.bytes_for(COMMITTED, [3, 4], records_max=10)
        assert [record.value for record in read_records(data)] == [b"3", b"4"]

    run(work, Log([row, row]))


def read_one(reader: Reader, position: int, epoch: int) -> Awaitable[ReadResult]:
    found: asyncio.Future[ReadResult] = asyncio.get_running_loop().create_future()
    reader.read_on(COMMITTED, position, 100, found.set_result, epoch)
    return found


@asynccontextmanager
async def at_work(reader: Reader) -> AsyncIterator[None]:
    work = asyncio.ensure_future(reader.run())
    try:
        yield
    finally:
        work.cancel()


def test_a_log_that_parted_from_the_one_that_was_read() -> None:
    """It has lost 3 and later. Kafka says so to whoever names the epoch of the last record."""
    parted = {**LAGS, "DivergingEpoch": {"Epoch": 2, "EndOffset": 3}}

    async def work(reader: Reader) -> None:
        reader.records.cache.add(COMMITTED, 0, scan(whole()["Records"]), END)
        async with at_work(reader):
            read = await read_one(reader, END, 4)
        assert (read.error, read.diverged_at, read.epoch) == (ErrorCode.OFFSET_OUT_OF_RANGE, 3, 2)
        assert reader.records.cache.piece(COMMITTED, 3) is None

    log = Log([parted])
    run(work, log)
    assert log.epochs == [4]


@pytest.mark.parametrize("end", [END, 2], ids=["within the log", "behind its end"])
def test_a_leader_that_does_not_know_the_epoch_is_no_word_on_the_log(
    end: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was cut off from its cluster, or was elected just now. One that stays so has lost them."""

    async def work(reader: Reader) -> None:
        async with at_work(reader):
            read = await read_one(reader, END - 1, 4)
            assert (read.error, read.offsets) == (0, [END - 1])
            monkeypatch.setattr("gateway.reading.reader.LEADER_LAGS_MS_MAX", 0)
            log.fetches += [OUT_OF_RANGE] * 2
            reader.records.cache.forget_from(COMMITTED, 0)
            read = await read_one(reader, END - 1, 4)
        assert read.error == ErrorCode.OFFSET_OUT_OF_RANGE
        assert (read.diverged_at, read.epoch) == ((END, -1) if end == END else (-1, -1))

    log = Log([OUT_OF_RANGE, OUT_OF_RANGE])
    log.end = end
    run(work, log)


def test_records_of_a_later_epoch_come_from_a_fetch_that_names_the_last_one() -> None:
    """Others have read them. For the second reader they may be of another log."""
    records = build([Record(END, 0, b"k", b"")], base_offset=END, leader_epoch=5)
    row = {**whole(), "HighWatermark": END + 1, "LastStableOffset": END + 1, "Records": records}

    async def work(reader: Reader) -> None:
        reader.records.cache.add(COMMITTED, END, scan(records), END + 1, 5)
        async with at_work(reader):
            read = await read_one(reader, END, 4)
            assert (read.offsets, read.epoch, read.error) == ([END], 5, 0)
            assert (await read_one(reader, END, 5)).offsets == [END]
            assert (await read_one(reader, END, -1)).offsets == [END]

    log = Log([row])
    run(work, log)
    assert log.epochs == [4]


def test_large_records_are_cut_out_in_turns_of_their_own() -> None:
    """Copies of 90 MB for four groups in one turn held the event loop up for 330 ms."""
    large = build([Record(0, 0, b"k", bytes(LONG_STEP_BYTES))], base_offset=0)

    async def work(reader: Reader) -> None:
        turn = 0
        cut_in: list[int] = []

        async def count() -> None:
            nonlocal turn
            while len(cut_in) < 3:
                await asyncio.sleep(0)
                turn += 1

        async def cut() -> None:
            assert (
                len(await reader.records.bytes_for(COMMITTED, [0], records_max=10))
                > LONG_STEP_BYTES
            )
            cut_in.append(turn)

        await reader.records.bytes_for(
            COMMITTED, [0], records_max=10
        )  # it is in the cache from here on
        await asyncio.gather(count(), cut(), cut(), cut())
        assert len(set(cut_in)) == 3

    run(work, Log([whole() | {"Records": large}]))


def test_many_records_are_scanned_in_turns_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """500,000 tiny records in one turn held the event loop up for 200 ms."""
    monkeypatch.setattr(fetch_messages, "LONG_STEP_RECORDS", 2)
    monkeypatch.setattr(long_scans, "SCAN_TURN_S_MAX", 0)
    turn = 0
    steps_in: list[int] = []
    step = UndamagedScan.step

    def counted(scan: UndamagedScan) -> bool:
        steps_in.append(turn)
        return step(scan)

    monkeypatch.setattr(UndamagedScan, "step", counted)

    async def work(reader: Reader) -> None:
        nonlocal turn
        reading = asyncio.ensure_future(reader.records.bytes_for(COMMITTED, [1, 3], records_max=10))
        while not reading.done():
            await asyncio.sleep(0)
            turn += 1
        assert [record.value for record in read_records(reading.result())] == [b"1", b"3"]
        assert len(set(steps_in)) == len(steps_in) == END // 2 + 1

    run(work, Log())


def test_a_long_batch_is_decompressed_in_another_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    """One of 128 MiB, which is 4 KB on the wire, held the event loop up for 160 ms."""
    value = bytes(2 * LONG_STEP_BYTES)
    large = build([Record(0, 0, b"k", value)], base_offset=0, compression=Compression.ZSTD)
    threads: list[int] = []
    step = UndamagedScan.step

    def noted(scan: UndamagedScan) -> bool:
        threads.append(threading.get_ident())
        return step(scan)

    monkeypatch.setattr(UndamagedScan, "step", noted)

    async def work(reader: Reader) -> None:
        data = await reader.records.bytes_for(COMMITTED, [0], records_max=10)
        assert [record.value for record in read_records(whole_bytes(data))] == [value]
        here = threading.get_ident()
        assert [thread == here for thread in threads] == [True, False]

    run(work, Log([whole() | {"Records": large}]))


def test_records_that_meet_a_bug_do_not_end_the_node(monkeypatch: pytest.MonkeyPatch) -> None:
    bugs = [IndexError("index out of range")]
    step = UndamagedScan.step

    def buggy(scan: UndamagedScan) -> bool:
        if bugs:
            raise bugs.pop()
        return step(scan)

    monkeypatch.setattr(UndamagedScan, "step", buggy)

    async def work(reader: Reader) -> None:
        found: list[ReadResult] = []
        running = asyncio.ensure_future(reader.run())
        reader.read_on(COMMITTED, 0, END, found.append)
        await until(lambda: len(found) > 0)
        assert found[0].offsets == list(range(END)), "tried again"
        running.cancel()

    run(work, Log())


def one_more(offset: int) -> Message:
    """The answer to a poll at the end of the log, where a record has come."""
    data = build([Record(offset, 0, b"k", b"")], base_offset=offset)
    ends = {"HighWatermark": offset + 1, "LastStableOffset": offset + 1}
    return {**whole(), **ends, "Records": data}


async def polled_once(reader: Reader, log: Log, found: list[ReadResult]) -> None:
    """What the log has is read, and a record that came then; nobody waits for the next one."""
    log.fetches += [whole(), one_more(END), one_more(END + 1)]
    reader.read_on(COMMITTED, 0, END, found.append, awaited=False)
    await until(lambda: len(found) == 1)
    reader.read_on(COMMITTED, END, END, found.append, awaited=False)
    await until(lambda: len(found) == 2)
    reader.read_on(COMMITTED, found[-1].end, END, found.append, awaited=False)


def test_a_reader_rests_between_polls_that_bring_records() -> None:
    """A producer of many small batches had a fetch for each of them, and its broker as many."""

    async def work(reader: Reader) -> None:
        found: list[ReadResult] = []
        async with at_work(reader):
            await polled_once(reader, log, found)
            await until(lambda: len(found) == 3)
        assert [read.end for read in found] == [END, END + 1, END + 2]

    log = Log()
    run(work, log)


def test_a_reader_does_not_rest_while_somebody_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gateway.core.reading.fetching.REST_MS", 600_000)

    async def work(reader: Reader) -> None:
        found: list[ReadResult] = []
        sink = found.append
        async with at_work(reader):
            await polled_once(reader, log, found)
            others: list[ReadResult] = []
            log.fetches.insert(0, whole())
            reader.read_on(Source(TP, 0), 0, END, others.append)
            await until(lambda: len(others) == 1)
            assert (len(found), log.asked) == (2, 3), "it rests"
            reader.hasten(COMMITTED, sink)
            await until(lambda: len(found) == 3)

    log = Log()
    run(work, log)


def test_what_nobody_shows_is_not_taken_for_gone() -> None:
    async def work(reader: Reader) -> None:
        with pytest.raises(UpstreamError):
            await reader.records.bytes_for(COMMITTED, [3, 4], records_max=10)

    run(work, Log([LAGS] * 100))


def test_a_failure_that_comes_when_nobody_reads_any_more_is_nobodys() -> None:
    """A topic that was deleted while it was read must not be counted as failing for ever."""
    log = Log([{**OUT_OF_RANGE, "ErrorCode": int(ErrorCode.UNKNOWN_TOPIC_ID)}] * 1_000)

    async def work(reader: Reader) -> None:
        def sink(_: ReadResult) -> None: ...

        running = asyncio.ensure_future(reader.run())
        reader.read_on(COMMITTED, 0, END, sink)
        await until(lambda: reader.failing.failing_partitions() == 1)
        log.gate = asyncio.Event()
        asked = log.asked
        await until(lambda: log.asked > asked)
        reader.stop(COMMITTED, sink)
        assert reader.failing.failing_partitions() == 0
        log.gate.set()
        await until(lambda: not reader._schedule._wants)
        assert reader.failing.failing_partitions() == 0
        assert reader.failing.unreadable(COMMITTED, 0) is None
        running.cancel()

    run(work, log)


def test_more_bytes_than_asked_for_are_refused_wherever_they_come_from() -> None:
    async def work(reader: Reader) -> None:
        for _ in ("read again", "cached"):
            one = await reader.records.bytes_for(COMMITTED, [3], 10, BATCH_BYTES)
            with pytest.raises(RecordsLarge) as large:
                await reader.records.bytes_for(COMMITTED, [0, 2, 4], 1, 2 * len(one))
            assert large.value.fitting <= 2
            everything = await reader.records.bytes_for(COMMITTED, [0, 2, 4], 1, 3 * len(one))
            assert [record.offset for record in read_records(everything)] == [0, 2, 4]
            reader.read_on(
                COMMITTED, 0, END, lambda _: None
            )  # somebody reads here: it may stay cached

    run(work, Log())


def test_what_lies_before_the_start_of_the_log_is_gone() -> None:
    async def work(reader: Reader) -> None:
        with pytest.raises(RecordsGone) as gone:
            await reader.records.bytes_for(COMMITTED, [1, 3], records_max=10)
        assert gone.value.offsets == [1]

    run(work, Log([OUT_OF_RANGE], start=2))


def part(*rows: bytes) -> Message:
    return {
        "HighWatermark": END,
        "LastStableOffset": END,
        "LogStartOffset": 0,
        "Records": b"".join(rows),
    }


def one(offset: int, size: int = 1) -> bytes:
    record = Record(offset, 0, b"k", bytes(size))
    return build([record], base_offset=offset, compression=Compression.ZSTD)


def test_who_gives_a_batch_up_reads_on_and_the_others_are_told_again() -> None:
    """Offset 1 is too large when decompressed: one sink gives it up, the other waits."""
    large = one(1, BODY_BYTES_MAX)
    log = Log([part(large)] * 4)

    async def work(reader: Reader) -> None:
        gives_up: list[ReadResult] = []
        waits: list[ReadResult] = []

        def reads_on(read: ReadResult) -> None:
            gives_up.append(read)
            if read.error:
                reader.read_on(COMMITTED, read.end, END, reads_on)

        running = asyncio.ensure_future(reader.run())
        reader.read_on(COMMITTED, 1, END, reads_on)
        reader.read_on(COMMITTED, 1, END, waits.append)
        await until(lambda: len(waits) >= 2 and len(gives_up) >= 2)
        told = ReadResult(1, 2, [], [], 0, END, int(ErrorCode.MESSAGE_TOO_LARGE))
        assert (gives_up[0], waits[:2]) == (told, [told, told])
        assert (gives_up[1].start, gives_up[1].error) == (2, 0)
        await until(lambda: waits[-1].error == 0)  # the log is whole from then on
        running.cancel()

    run(work, log)


def test_operators_see_where_a_batch_is_too_large() -> None:
    log = Log([part(one(1, BODY_BYTES_MAX))] * 1_000)

    async def work(reader: Reader) -> None:
        told: list[ReadResult] = []
        running = asyncio.ensure_future(reader.run())
        reader.read_on(COMMITTED, 1, END, told.append)
        await until(lambda: reader.failing.unreadable(COMMITTED, 1) is not None)
        unreadable = reader.failing.unreadable(COMMITTED, 1)
        assert unreadable is not None
        assert (unreadable.end, reader.failing.failing_partitions()) == (2, 1)
        assert "too large when decompressed: more than 134,217,728 bytes" in unreadable.reason
        assert reader.failing.unreadable(COMMITTED, 2) is None, "it is readable there"
        reader.stop(COMMITTED, told.append)
        running.cancel()

    run(work, log)


def test_a_failure_that_comes_when_nobody_reads_there_any_more_is_not_kept() -> None:
    """Another sink still reads the partition, at another position."""
    log = Log([part(one(1, BODY_BYTES_MAX))] * 1_000)

    async def work(reader: Reader) -> None:
        def leaves(_: ReadResult) -> None: ...

        def stays(_: ReadResult) -> None: ...

        running = asyncio.ensure_future(reader.run())
        reader.read_on(COMMITTED, 0, END, stays)
        reader.read_on(COMMITTED, 1, END, leaves)
        await until(lambda: reader.failing.unreadable(COMMITTED, 1) is not None)
        log.gate = asyncio.Event()
        asked = log.asked
        await until(lambda: log.asked > asked)
        reader.stop(COMMITTED, leaves)
        assert reader.failing.unreadable(COMMITTED, 1) is None
        log.gate.set()
        await until(lambda: not any(want.position == 1 for want in reader._schedule._wants))
        assert reader.failing.unreadable(COMMITTED, 1) is None
        reader.stop(COMMITTED, stays)
        assert reader.failing.failing_partitions() == 0
        running.cancel()

    run(work, log)
