"""Partitions without writers, polled by the thousand: what an answer that brings nothing costs."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from functools import partial

from gateway.core.cluster.topology import TopicPartition
from gateway.core.reading.cache import Source
from gateway.core.reading.fetching import ReadResult
from gateway.core.wire.apis import ApiKey
from gateway.core.wire.records import Record, build
from gateway.core.wire.schema import Message
from gateway.reading.limits import TURN_ANSWERS
from gateway.reading.reader import Reader
from gateway.upstream.cluster import Upstream
from gateway.upstream.settings import UpstreamSettings
from tests.rig.fake_broker import FakeBroker, ReceivedRequest, speaking
from tests.rig.patience import patient_s

TOPIC, TOPIC_ID = "orders", bytes(range(16))
PARTITIONS = 4 * TURN_ANSWERS
BUSY = 7  # has a record in the second answer
END = 5


class Turns:
    """Counts the turns of the event loop."""

    def __init__(self) -> None:
        self.count = 0

    async def run(self) -> None:
        while True:
            self.count += 1
            await asyncio.sleep(0)


def row(partition: int, records: bytes = b"") -> Message:
    ends = {"HighWatermark": END, "LastStableOffset": END, "LogStartOffset": 2}
    return {"PartitionIndex": partition, **ends, "Records": records}


def broker_of(turns: Turns, at_fetches: list[int], polled: asyncio.Event) -> FakeBroker:
    async def metadata(request: ReceivedRequest) -> bytes:
        partitions = [
            {"PartitionIndex": at, "LeaderId": 1, "LeaderEpoch": 1} for at in range(PARTITIONS)
        ]
        topic = {"Name": TOPIC, "TopicId": TOPIC_ID, "Partitions": partitions}
        return request.response({**broker.metadata(), "Topics": [topic]})

    async def fetch(request: ReceivedRequest) -> bytes:
        asked = [
            one["Partition"] for topic in request.body["Topics"] for one in topic["Partitions"]
        ]
        if len(asked) < PARTITIONS - 1:
            await asyncio.sleep(0.01)  # a poll
        else:
            at_fetches.append(turns.count)
        rows = [row(at) for at in asked]
        if len(at_fetches) >= 2 and BUSY in asked:
            records = build([Record(END, 0, b"k", b"v")], base_offset=END)
            rows[asked.index(BUSY)] = row(BUSY, records)
        if len(at_fetches) >= 3:
            polled.set()
        topics = [{"TopicId": TOPIC_ID, "Partitions": rows}]
        return request.response({"Responses": topics})

    broker = speaking({ApiKey.METADATA: metadata, ApiKey.FETCH: fetch})
    return broker


async def polls() -> tuple[list[int], dict[int, ReadResult], Reader]:
    """The turns at each fetch of all partitions, and what was read of each."""
    turns, at_fetches, polled = Turns(), list[int](), asyncio.Event()
    read: dict[int, ReadResult] = {}
    async with asyncio.timeout(patient_s(60)):
        async with broker_of(turns, at_fetches, polled).running() as broker:
            settings = UpstreamSettings(f"127.0.0.1:{broker.port}", request_timeout_ms=20_000)
            async with Upstream(settings) as upstream:
                await upstream.refresh([TOPIC])
                reader = Reader(upstream)
                for at in range(PARTITIONS):
                    source = Source(TopicPartition(TOPIC, TOPIC_ID, at), 1)
                    reader.read_on(source, END, 100, partial(read.__setitem__, at))
                tasks = [asyncio.ensure_future(work) for work in (reader.run(), turns.run())]
                await polled.wait()
                for task in tasks:
                    task.cancel()
                    with suppress(asyncio.CancelledError):
                        await task
    return at_fetches, read, reader


def test_answers_that_bring_nothing_take_one_turn_for_hundreds() -> None:
    at_fetches, read, reader = asyncio.run(polls())
    assert at_fetches[1] - at_fetches[0] < PARTITIONS / 4, "not a turn for each partition"
    assert list(read) == [BUSY]
    assert read[BUSY].offsets == [END]
    source = Source(TopicPartition(TOPIC, TOPIC_ID, PARTITIONS - 1), 1)
    assert reader.records.bounds_of(source) == (2, END), "the bounds of quiet logs are known"
