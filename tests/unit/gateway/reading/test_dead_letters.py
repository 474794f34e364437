"""Dead letters for a queue of Kafka's: what is read for them, and what is told of them."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest

from dispatcher.core.model import MemberId, Reason
from dispatcher.core.steps import WriteDeadLetters
from gateway.core.cluster.topology import TopicPartition
from gateway.core.reading.cache import RecordsGone, RecordsReplaced, Source
from gateway.core.share.dead_letter_queue import ENABLED, DeadLetterQueue
from gateway.core.wire.records import Record, build
from gateway.group_log import GroupLog
from gateway.reading.dead_letters import OWN_TOPIC, DeadLetters
from gateway.reading.limits import (
    DEAD_LETTER_PARTS_MAX,
    DEAD_LETTERS_AT_ONCE,
    FAILED_GROUPS_MAX,
    LETTERS_NAMED,
    LETTERS_TOLD_MS,
)
from gateway.upstream.errors import Unreachable, UpstreamError
from tests.rig.dead_letter_queue import QUEUE, QueueKafka
from tests.rig.virtual_time import run, settle

ORDERS = Source(TopicPartition("orders", bytes(16), 0), 1)
M = MemberId("m")


class Log:
    """The records that are left of the topic."""

    def __init__(self, *left: int) -> None:
        self.left = left
        self.asked: list[list[int]] = []
        self.failure: UpstreamError | None = None
        self.replaced: set[int] = set()

    async def bytes_for(self, _source: Source, offsets: list[int], *_: int) -> bytes:
        self.asked.append(offsets)
        if self.failure is not None:
            raise self.failure
        if not self.replaced.isdisjoint(offsets):
            raise RecordsReplaced
        gone = [offset for offset in offsets if offset not in self.left]
        if gone:
            raise RecordsGone(gone)
        return build([Record(at, 1, b"k", b"%d" % at) for at in offsets], base_offset=0)


def write(
    kafka: QueueKafka, log: Log, offsets: list[int], *, copies: bool
) -> tuple[list[bool | None], DeadLetters]:
    letters = DeadLetters(cast(Any, kafka), cast(Any, log), GroupLog(lambda: 0), lambda: 7)
    count = len(offsets)
    effect = WriteDeadLetters(offsets, [1] * count, [Reason.REJECTED] * count, [M] * count)
    queue = DeadLetterQueue(QUEUE, copies)
    return asyncio.run(letters.write_offsets("g", ORDERS, QUEUE, effect, queue)), letters


def told(kafka: QueueKafka) -> list[tuple[bytes | None, bytes | None]]:
    """Offset and value of each letter."""
    records = [record for _, batch in kafka.written for record in batch]
    return [(dict(one.headers)["__dlq.errors.offset"], one.value) for one in records]


def test_records_are_read_only_to_be_copied() -> None:
    kafka, log = QueueKafka(), Log(0, 1)
    assert write(kafka, log, [0, 1], copies=False)[0] == [True, True]
    assert log.asked == []
    assert write(kafka, log, [0, 1], copies=True)[0] == [True, True]
    assert told(kafka) == [(b"0", None), (b"1", None), (b"0", b"0"), (b"1", b"1")]


def test_of_a_record_that_the_log_has_lost_the_letter_has_the_place() -> None:
    """By compaction, or retention. Without copying nothing of the log is needed at all."""
    kafka = QueueKafka()
    assert write(kafka, Log(2), [1, 2], copies=True)[0] == [True, True]
    assert told(kafka) == [(b"1", None), (b"2", b"2")]


def test_a_record_that_cannot_be_read_now_waits_for_its_copy() -> None:
    kafka, log = QueueKafka(), Log(0)
    log.failure = Unreachable("no leader")
    durable, letters = write(kafka, log, [0], copies=True)
    assert (durable, kafka.written) == ([False], [])
    assert letters.trouble("orders", QUEUE) == "no leader"


def test_what_is_not_written_is_held_and_told_until_it_is() -> None:
    kafka = QueueKafka()
    assert kafka.topic is not None
    kafka.topic[ENABLED] = "false"
    durable, letters = write(kafka, Log(), [0], copies=False)
    assert durable == [False]
    assert ENABLED in str(letters.trouble("orders", QUEUE))
    (line,) = letters.warnings()
    assert line.startswith(f"group 'g': dead letters to topic {QUEUE!r} are not written, ")
    assert ENABLED in line
    kafka.topic[ENABLED] = "true"
    effect = WriteDeadLetters([0], [1], [Reason.REJECTED], [M])
    queue = DeadLetterQueue(QUEUE, copies=False)
    assert asyncio.run(letters.write_offsets("g", ORDERS, QUEUE, effect, queue)) == [True]
    assert letters.trouble("orders", QUEUE) is None
    assert letters.warnings() == []


@pytest.mark.parametrize("copies", [False, True])
def test_more_letters_than_are_written_at_once(copies: bool) -> None:
    kafka = QueueKafka()
    offsets = list(range(1_201))
    assert write(kafka, Log(*offsets), offsets, copies=copies)[0] == [True] * 1_201
    assert [int(offset or b"") for offset, _ in told(kafka)] == offsets


def test_others_are_written_beside_one_whose_offset_another_record_has() -> None:
    offsets = list(range(DEAD_LETTERS_AT_ONCE + 2))
    log = Log(*offsets)
    log.replaced = {3}
    with pytest.raises(RecordsReplaced) as replaced:
        write(QueueKafka(), log, offsets, copies=True)
    assert replaced.value.durable == [False] * DEAD_LETTERS_AT_ONCE + [True] * 2


def test_writes_that_are_under_way_have_a_connection_each() -> None:
    """A write that waits for its replicas holds up all behind it on its connection."""

    async def work() -> None:
        kafka = QueueKafka()
        kafka.gate = asyncio.Event()
        letters = DeadLetters(cast(Any, kafka), cast(Any, Log()), GroupLog(lambda: 0), lambda: 7)
        effect = WriteDeadLetters([0], [1], [Reason.REJECTED], [M])
        queue = DeadLetterQueue(QUEUE, copies=False)
        async with asyncio.TaskGroup() as tasks:
            for _ in range(DEAD_LETTER_PARTS_MAX + 2):
                tasks.create_task(letters.write_offsets("g", ORDERS, QUEUE, effect, queue))
            await settle()
            assert len(set(kafka.lanes)) == len(kafka.lanes) == DEAD_LETTER_PARTS_MAX
            kafka.gate.set()
        assert len(kafka.written) == DEAD_LETTER_PARTS_MAX + 2

    run(work())


def test_failures_are_told_while_they_last_and_of_many_groups_some_are_named() -> None:
    now = [1_000]
    letters = DeadLetters(cast(Any, None), cast(Any, Log()), GroupLog(lambda: 0), lambda: now[0])
    effect = WriteDeadLetters([0], [1], [Reason.REJECTED], [M])

    async def fail(count: int) -> None:
        for at in range(count):
            await letters.write_offsets(f"g{at:04}", ORDERS, ORDERS.tp.topic, effect)

    asyncio.run(fail(LETTERS_NAMED + 3))
    *named, more = letters.warnings()
    assert [line.partition(":")[0] for line in named] == [f"group 'g{at:04}'" for at in range(10)]
    assert named[0].endswith(f": {OWN_TOPIC}")
    assert more == "nor are those of 3 more groups"
    now[0] += LETTERS_TOLD_MS
    assert letters.warnings() == [], "nobody has tried since"
    asyncio.run(fail(FAILED_GROUPS_MAX + 1))
    assert letters.warnings()[-1] == f"nor are those of {FAILED_GROUPS_MAX - 10} more groups"
