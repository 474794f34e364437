"""The producer of dead letters ends its tries; aiokafka's own has none that is the last."""

from __future__ import annotations

import asyncio

import pytest

from gateway.core.wire.errors import ErrorCode
from gateway.core.wire.records import Record
from gateway.reading import letter_producer
from gateway.reading.letter_producer import LetterProducer
from gateway.upstream.errors import TimedOut
from tests.rig.letters_broker import SHORT, WHOLE, LettersBroker
from tests.rig.loopback import run, until
from tests.rig.patience import patient_s

RECORD = Record(0, 0, b"k", b"v")


def test_a_write_ends_though_kafka_asks_for_another_try(kafka: LettersBroker) -> None:
    async def work() -> None:
        async with kafka.broker().running():
            producer = await LetterProducer.started(kafka.settings())
            async with asyncio.timeout(patient_s(5)):
                reason = await producer.send(SHORT, RECORD, [])
            assert reason == "not on all in-sync replicas within 0.5 s"
            assert kafka.writes[SHORT] > 1
            assert await producer.send(WHOLE, RECORD, []) is None
            await producer.stop()

    run(work())


@pytest.mark.parametrize("answer", [ErrorCode.NOT_ENOUGH_REPLICAS, None], ids=["refused", "none"])
def test_nothing_is_left_of_a_producer_whose_letters_nobody_takes(
    kafka: LettersBroker, monkeypatch: pytest.MonkeyPatch, answer: ErrorCode | None
) -> None:
    kafka.errors[SHORT] = answer
    if answer is None:  # the request is still out by then
        monkeypatch.setattr(letter_producer, "PRODUCER_GIVE_UP_S_MAX", 0.05)

    async def work() -> None:
        async with kafka.broker().running(), asyncio.TaskGroup() as tasks:
            before = asyncio.all_tasks()
            producer = await LetterProducer.started(kafka.settings())
            sent = tasks.create_task(producer.send(SHORT, RECORD, []))
            await until(lambda: kafka.writes[SHORT] > 0)
            await producer.stop()
            await until(lambda: kafka.lines_open() == 0, within_s=2)
            writes = kafka.writes[SHORT]
            assert await sent is not None
            assert kafka.writes[SHORT] == writes, "nobody writes it later"
            await until(lambda: not asyncio.all_tasks() - before, within_s=2)

    run(work())


def test_a_producer_that_gets_no_id_is_given_up(
    kafka: LettersBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(letter_producer, "PRODUCER_START_S_MAX", 0.5)
    kafka.no_producer_id = ErrorCode.COORDINATOR_NOT_AVAILABLE

    async def work() -> None:
        async with kafka.broker().running():
            async with asyncio.timeout(patient_s(5)):
                with pytest.raises(TimedOut, match="no producer started"):
                    await LetterProducer.started(kafka.settings())
            await until(lambda: kafka.lines_open() == 0, within_s=2)

    run(work())
