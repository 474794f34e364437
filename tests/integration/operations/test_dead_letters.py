"""Dead letters in a real Kafka: the record as it was, where it came from, and honest answers."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka import TopicPartition as Place
from confluent_kafka.admin import AdminClient

from dispatcher.core.model import MemberId, Reason
from dispatcher.core.steps import WriteDeadLetters
from gateway.embedded.kafka import KafkaCluster
from gateway.group_log import GroupLog
from gateway.reading import letter_producer
from gateway.reading.dead_letters import DeadLetter, DeadLetters
from gateway.upstream.settings import UpstreamSettings
from tests.rig.kafka import create_topic, produce, read_partition
from tests.rig.patience import patient_s
from tests.rig.upstream_side import DEADLINE_S, committed, run, running, until

pytestmark = pytest.mark.integration

FreshName = Callable[[str], str]


def settings(cluster: KafkaCluster) -> UpstreamSettings:
    return UpstreamSettings(cluster.bootstrap_servers, request_timeout_ms=5_000)


def exhausted(offsets: list[int]) -> WriteDeadLetters:
    count = len(offsets)
    return WriteDeadLetters(
        offsets, [5] * count, [Reason.REJECTED] * count, [MemberId("member-1")] * count
    )


def read_all(cluster: KafkaCluster, topic: str, count: int) -> list[Any]:
    consumer = Consumer({"bootstrap.servers": cluster.bootstrap_servers, "group.id": "dlq-reader"})
    try:
        consumer.assign([Place(topic, 0, 0)])
        messages = [consumer.poll(DEADLINE_S) for _ in range(count)]
        assert all(message is not None and message.error() is None for message in messages)
        return messages
    finally:
        consumer.close()


def test_the_record_goes_as_it_was_with_its_origin_behind(
    kafka: KafkaCluster, topic: Callable[..., str]
) -> None:
    name, dead = topic(), topic()
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers})
    headers: list[tuple[str, str | bytes | None]] = [("trace", b"1"), ("other", None)]
    headers += [("trace", b"2"), ("empty", b"")]
    producer.produce(name, key=b"k\xff", value=b"v\x00", headers=headers, timestamp=1_234_567)
    producer.produce(name, key=b"tombstone", value=None)
    producer.produce(name, key=None, value=b"no key")
    producer.produce(name, key=None, value=None)
    assert producer.flush(DEADLINE_S) == 0

    async def work() -> list[bool | None]:
        async with running(settings(kafka)) as side:
            letters = DeadLetters(
                side.upstream, side.reader.records, GroupLog(lambda: 0), lambda: 0
            )
            try:
                tp = await side.partition(name)
                return await letters.write_offsets(
                    "g", committed(tp), dead, exhausted([0, 1, 2, 3])
                )
            finally:
                await letters.close()

    assert run(work()) == [True] * 4
    messages = read_all(kafka, dead, 4)
    assert [(m.key(), m.value()) for m in messages] == [
        (b"k\xff", b"v\x00"),
        (b"tombstone", None),
        (None, b"no key"),
        (None, b""),
    ]
    first = messages[0]
    assert first.timestamp()[1] == 1_234_567
    assert first.headers() == [
        *headers,
        ("keyway.dlq.topic", name.encode()),
        ("keyway.dlq.partition", b"0"),
        ("keyway.dlq.offset", b"0"),
        ("keyway.dlq.group", b"g"),
        ("keyway.dlq.attempts", b"5"),
        ("keyway.dlq.reason", b"rejected"),
        ("keyway.dlq.member", b"member-1"),
    ]
    assert messages[3].headers()[-1] == ("keyway.dlq.null_value", b"true")


def test_a_missing_topic_is_not_durable_until_it_exists(
    kafka: KafkaCluster,
    topic: Callable[..., str],
    fresh_name: FreshName,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The answer comes long before a write may end."""
    monkeypatch.setattr(letter_producer, "DEAD_LETTER_WRITE_MS_MAX", 600_000)
    name, dead = topic(), fresh_name("dead")
    produce(kafka.bootstrap_servers, name, [(b"k", b"%d" % i) for i in range(3)])

    async def work() -> None:
        async with running(settings(kafka)) as side:
            letters = DeadLetters(
                side.upstream, side.reader.records, GroupLog(lambda: 0), lambda: 0
            )
            try:
                tp = await side.partition(name)
                effect = exhausted([0, 2])
                async with asyncio.timeout(patient_s(10)):
                    assert await letters.write_offsets("g", committed(tp), dead, effect) == [
                        False,
                        False,
                    ]
                await asyncio.to_thread(create_topic, kafka.bootstrap_servers, dead)

                async def written() -> bool:
                    return await letters.write_offsets("g", committed(tp), dead, effect) == [
                        True,
                        True,
                    ]

                await until(written)
            finally:
                await letters.close()

    run(work())
    assert [value for _, _, value in read_partition(kafka.bootstrap_servers, dead, 0)] == [
        b"0",
        b"2",
    ]


def test_nothing_is_written_to_where_it_comes_from(
    kafka: KafkaCluster, topic: Callable[..., str]
) -> None:
    """A group may read the topic its dead letters go to: a rejected record would come back for
    ever. It stays held, and the reason is shown.
    """
    name = topic()
    produce(kafka.bootstrap_servers, name, [(b"k", b"v")] * 2)

    async def work() -> None:
        async with running(settings(kafka)) as side:
            letters = DeadLetters(
                side.upstream, side.reader.records, GroupLog(lambda: 0), lambda: 0
            )
            tp = await side.partition(name)
            assert await letters.write_offsets("g", committed(tp), name, exhausted([0, 1])) == [
                False,
                False,
            ]
            assert letters.trouble(name, name) == "the records come from that very topic"
            assert letters.trouble("another", name) is None
            await letters.close()

    run(work())
    assert len(read_partition(kafka.bootstrap_servers, name, 0)) == 2


def test_each_record_has_its_own_answer(kafka: KafkaCluster, topic: Callable[..., str]) -> None:
    name, dead = topic(), topic(config={"max.message.bytes": "2000"})
    values = [b"small", b"x" * 50_000, b"small too"]
    produce(kafka.bootstrap_servers, name, [(b"k", value) for value in values])

    async def work() -> list[bool | None]:
        async with running(settings(kafka)) as side:
            letters = DeadLetters(
                side.upstream, side.reader.records, GroupLog(lambda: 0), lambda: 0
            )
            try:
                tp = await side.partition(name)
                one_by_one = [
                    await letters.write_offsets("g", committed(tp), dead, exhausted([offset]))
                    for offset in range(3)
                ]
                return [durable for (durable,) in one_by_one]
            finally:
                await letters.close()

    assert run(work()) == [True, False, True]


@pytest.mark.parametrize("cached", [False, True])
def test_large_ones_are_held_a_few_at_a_time(
    kafka: KafkaCluster,
    topic: Callable[..., str],
    monkeypatch: pytest.MonkeyPatch,
    *,
    cached: bool,
) -> None:
    """Not 500 whole records; one that is larger than all that may be held goes alone."""
    name, dead = topic(), topic()
    sizes = [400, 400, 400, 5_000, 400, 900, 400]
    produce(kafka.bootstrap_servers, name, [(b"k", bytes(size)) for size in sizes[:4]])
    produce(kafka.bootstrap_servers, name, [(b"k", bytes(size)) for size in sizes[4:]])
    at_once: list[int] = []
    write = DeadLetters.write

    async def seen(self: DeadLetters, to: str, letters: Sequence[DeadLetter]) -> list[bool]:
        at_once.append(sum(len(letter.record.value or b"") for letter in letters))
        return await write(self, to, letters)

    monkeypatch.setattr("gateway.reading.dead_letters.DEAD_LETTER_PART_BYTES_MAX", 1_500)
    monkeypatch.setattr(DeadLetters, "write", seen)

    async def work() -> list[bool | None]:
        async with running(settings(kafka)) as side:
            letters = DeadLetters(
                side.upstream, side.reader.records, GroupLog(lambda: 0), lambda: 0
            )
            try:
                tp = await side.partition(name)
                if cached:
                    side.reader.read_on(committed(tp), 0, len(sizes), lambda _: None)
                    await side.reader.records.bytes_for(committed(tp), list(range(len(sizes))), 10)
                return await letters.write_offsets(
                    "g", committed(tp), dead, exhausted(list(range(7)))
                )
            finally:
                await letters.close()

    assert run(work()) == [True] * 7
    assert sum(at_once) == sum(sizes)
    assert sorted(at_once)[-1] == 5_000
    assert all(held <= 1_500 for held in sorted(at_once)[:-1])
    assert len(at_once) < len(sizes), "and not one by one"
    values = [value for _, _, value in read_partition(kafka.bootstrap_servers, dead, 0)]
    assert [len(value or b"") for value in values] == sizes


def test_records_that_retention_took_are_settled(
    kafka: KafkaCluster, topic: Callable[..., str]
) -> None:
    name, dead = topic(), topic()
    produce(kafka.bootstrap_servers, name, [(b"k", b"%d" % i) for i in range(10)])
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap_servers})
    place = Place(name, 0, 8)
    admin.delete_records([place])[place].result(DEADLINE_S)

    async def work() -> list[bool | None]:
        async with running(settings(kafka)) as side:
            letters = DeadLetters(
                side.upstream, side.reader.records, GroupLog(lambda: 0), lambda: 0
            )
            try:
                tp = await side.partition(name)
                return await letters.write_offsets("g", committed(tp), dead, exhausted([3, 4, 9]))
            finally:
                await letters.close()

    assert run(work()) == [None, None, True], "two have no letter"
    assert [value for _, _, value in read_partition(kafka.bootstrap_servers, dead, 0)] == [b"9"]
