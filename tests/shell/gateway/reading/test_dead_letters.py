"""Dead letters while Kafka does not take them, while the node stops, and while a topic goes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from dispatcher.core.model import MemberId, Reason
from dispatcher.core.steps import WriteDeadLetters
from gateway.core.reading.cache import Source
from gateway.core.wire.records import Record
from gateway.group_log import GroupLog
from gateway.reading.dead_letters import DeadLetter, DeadLetters
from gateway.reading.limits import DEAD_LETTER_PARTS_MAX
from gateway.reading.read_records import ReadRecords
from gateway.upstream.cluster import Upstream
from tests.rig.letters_broker import ORDERS, SHORT, WHOLE, LettersBroker
from tests.rig.loopback import run, until
from tests.rig.patience import patient_s


@asynccontextmanager
async def upstream_of(kafka: LettersBroker) -> AsyncIterator[Upstream]:
    async with kafka.broker().running(), Upstream(kafka.settings()) as upstream:
        await upstream.refresh([ORDERS.topic])
        yield upstream


def letters_of(upstream: Upstream) -> DeadLetters:
    return DeadLetters(upstream, ReadRecords(upstream), GroupLog(lambda: 0), lambda: 0)


async def write(letters: DeadLetters, topic: str, offset: int) -> list[bool | None]:
    effect = WriteDeadLetters([offset], [1], [Reason.REJECTED], [MemberId("m")])
    return await letters.write_offsets("g", Source(ORDERS, 1), topic, effect)


async def all_held(
    kafka: LettersBroker, letters: DeadLetters, tasks: asyncio.TaskGroup
) -> list[asyncio.Task[list[bool | None]]]:
    """As many writes as there may be at once, none of which Kafka takes."""
    held = [
        tasks.create_task(write(letters, SHORT, offset)) for offset in range(DEAD_LETTER_PARTS_MAX)
    ]
    await until(lambda: kafka.writes[SHORT] > 0)
    return held


def test_letters_that_kafka_does_not_take_hold_no_others_up(kafka: LettersBroker) -> None:
    async def work() -> None:
        async with upstream_of(kafka) as upstream, asyncio.TaskGroup() as tasks:
            letters = letters_of(upstream)
            held = await all_held(kafka, letters, tasks)
            async with asyncio.timeout(patient_s(5)):
                assert await write(letters, WHOLE, 9) == [True]
                assert await asyncio.gather(*held) == [[False]] * DEAD_LETTER_PARTS_MAX
            assert letters.trouble(ORDERS.topic, SHORT) is not None
            assert letters.trouble(ORDERS.topic, WHOLE) is None
            await letters.close()
            assert (kafka.letters[SHORT], kafka.letters[WHOLE]) == (0, 1)

    run(work())


def test_letters_that_wait_while_the_node_stops_are_not_begun(kafka: LettersBroker) -> None:
    """They stay held; each would make the stop longer, and the first would start a producer."""

    async def work() -> None:
        async with upstream_of(kafka) as upstream, asyncio.TaskGroup() as tasks:
            letters = letters_of(upstream)
            under_way = await all_held(kafka, letters, tasks)
            waiting = [tasks.create_task(write(letters, WHOLE, offset)) for offset in range(4, 9)]
            await asyncio.sleep(0)  # each has begun to wait
            await letters.close()
            async with asyncio.timeout(patient_s(5)):
                answers = await asyncio.gather(*under_way, *waiting)
            assert answers == [[False]] * len(answers)
            assert await write(letters, WHOLE, 9) == [False]
            assert kafka.writes[WHOLE] == 0
            assert kafka.producers() == 1

    run(work())


def test_a_topic_that_is_unwatched_while_it_is_looked_up_is_not_there(
    kafka: LettersBroker,
) -> None:
    async def work() -> None:
        async with upstream_of(kafka) as upstream, asyncio.TaskGroup() as tasks:
            letters = letters_of(upstream)
            kafka.metadata_gate = asyncio.Event()
            asked = kafka.metadata_asked
            refresh = tasks.create_task(upstream.refresh())
            await until(lambda: kafka.metadata_asked > asked)
            letter = DeadLetter(Record(0, 0, b"k", b"v"), ORDERS, "g", 1, "rejected", "m")
            written = tasks.create_task(letters.write(WHOLE, [letter]))
            await until(lambda: WHOLE in upstream.watched)
            upstream.unwatch([WHOLE])
            kafka.metadata_gate.set()
            await refresh
            assert await written == [False]
            assert letters.trouble(ORDERS.topic, WHOLE) == "the topic: UNKNOWN_TOPIC_OR_PARTITION"

    run(work())
