"""Answers that have none of the partitions: of fetches that a quota of Kafka holds up (those have a
wait), and of those that meet a bug.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

import pytest

from gateway.core.cluster.topology import TopicPartition
from gateway.core.reading.fetch_messages import answers_by_partition
from gateway.core.reading.fetching import Fetch
from gateway.core.wire.records import read_records
from gateway.core.wire.schema import Message
from gateway.reading.reader import Reader
from tests.rig.fake_broker import ReceivedRequest
from tests.shell.gateway.reading.test_reader import COMMITTED, END, Log, at_work, read_one, run


@dataclass
class Throttled(Log):
    quotas: int = 2  # of the next fetches so many are beyond it

    async def _fetch(self, request: ReceivedRequest) -> bytes:
        if self.quotas == 0:
            return await super()._fetch(request)
        self.asked += 1
        self.quotas -= 1
        return request.response({"ThrottleTimeMs": 10, "Responses": []})


def test_a_fetch_beyond_a_quota_is_sent_again() -> None:
    """It ended the node."""

    async def work(reader: Reader) -> None:
        async with at_work(reader):
            read = await read_one(reader, 0, -1)
        assert (read.error, read.offsets) == (0, list(range(END)))

    log = Throttled()
    run(work, log)
    assert log.asked == 3


def test_a_quota_is_no_word_on_the_topic() -> None:
    """Only an unknown topic that stays so is given up, and the operator reads why it waits."""

    async def work(reader: Reader) -> None:
        async with at_work(reader):
            reading = asyncio.ensure_future(read_one(reader, 0, -1))
            while reader.failing.unreadable(COMMITTED, 0) is None:
                assert not reading.done()
                await asyncio.sleep(0.01)
            why = reader.failing.unreadable(COMMITTED, 0)
            assert why is not None
            assert "broker 1 holds up the gateway's reads for 10 ms" in why.reason
            assert "THROTTLING_QUOTA_EXCEEDED" in why.reason
            log.quotas = 0
            assert (await reading).error == 0
            assert reader.failing.unreadable(COMMITTED, 0) is None

    log = Throttled(quotas=1_000)
    run(work, log)


def test_records_that_have_left_the_cache_are_read_again_beyond_a_quota() -> None:
    async def work(reader: Reader) -> None:
        data = await reader.records.bytes_for(COMMITTED, [3, 4], records_max=10)
        assert [record.value for record in read_records(data)] == [b"3", b"4"]

    run(work, Throttled())


def test_an_answer_that_meets_a_bug_does_not_end_the_node(monkeypatch: pytest.MonkeyPatch) -> None:
    bugs = [KeyError("Records")]

    def buggy(fetch: Fetch, response: Message) -> dict[TopicPartition, Message]:
        if bugs:
            raise bugs.pop()
        return answers_by_partition(fetch, response)

    monkeypatch.setattr("gateway.reading.refetch.answers_by_partition", buggy)

    async def work(reader: Reader) -> None:
        async with at_work(reader):
            read = await read_one(reader, 0, -1)
        assert read.offsets == list(range(END)), "tried again"

    run(work, Log())
