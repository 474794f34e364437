"""Committing cursors to a real Kafka, and their use by other tools and groups."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest
from confluent_kafka import Consumer
from confluent_kafka import TopicPartition as Place
from confluent_kafka.admin import AdminClient

from gateway.core.cluster.topology import TopicPartition
from gateway.core.wire.errors import ErrorCode
from gateway.embedded.kafka import KafkaCluster
from gateway.upstream.commits import METADATA_CHARS_MAX, REPEAT_MS_MAX, Commit, Commits
from gateway.upstream.settings import UpstreamSettings
from tests.rig.kafka import create_topic
from tests.rig.patience import wait_until
from tests.rig.upstream_side import DEADLINE_S, run, running

pytestmark = pytest.mark.integration

FreshName = Callable[[str], str]


def settings(cluster: KafkaCluster) -> UpstreamSettings:
    return UpstreamSettings(cluster.bootstrap_servers, request_timeout_ms=5_000)


def test_what_was_committed_is_read_back(
    kafka: KafkaCluster, topic: Callable[..., str], fresh_name: FreshName
) -> None:
    name, group = topic(partitions=3), fresh_name("commits")

    async def work() -> None:
        async with running(settings(kafka)) as side:
            commits = Commits(side.upstream)
            tps = [await side.partition(name, number) for number in range(3)]
            assert await commits.fetch(group, tps[0]) is None
            done = await commits.commit(
                group, [Commit(tps[0], 0, ""), Commit(tps[2], 2**40, "bits:äöü")]
            )
            assert done == [0, 0]
            first, second, third = [await commits.fetch(group, tp) for tp in tps]
            assert first is not None
            assert (first.offset, first.metadata) == (0, "")
            assert second is None
            assert third is not None
            assert (third.offset, third.metadata) == (2**40, "bits:äöü")

    run(work())
    consumer = Consumer({"bootstrap.servers": kafka.bootstrap_servers, "group.id": group})
    try:
        seen = consumer.committed([Place(name, 2)], timeout=DEADLINE_S)
        assert (seen[0].offset, seen[0].metadata) == (2**40, "bits:äöü")
    finally:
        consumer.close()


def test_a_group_of_many_partitions_is_committed_whatever_its_metadata(
    kafka: KafkaCluster, topic: Callable[..., str], fresh_name: FreshName
) -> None:
    """Together it is more than one batch of __consumer_offsets may hold."""
    count = 300
    name, group = topic(partitions=count), fresh_name("commits")

    async def work() -> None:
        async with running(settings(kafka)) as side:
            commits = Commits(side.upstream)
            first = await side.partition(name, count - 1)
            tps = [TopicPartition(name, first.topic_id, number) for number in range(count)]
            wanted = [Commit(tp, tp.partition, "x" * METADATA_CHARS_MAX) for tp in tps]
            assert await commits.commit(group, wanted) == [0] * count
            found = await commits.fetch_all(group)
            assert {place: position.offset for place, position in found.items()} == {
                (name, number): number for number in range(count)
            }

    run(work())


def test_an_error_belongs_to_its_partition(
    kafka: KafkaCluster, topic: Callable[..., str], fresh_name: FreshName
) -> None:
    name, group = topic(), fresh_name("commits")

    async def work() -> None:
        async with running(settings(kafka)) as side:
            commits = Commits(side.upstream)
            tp = await side.partition(name)
            missing = TopicPartition(fresh_name("missing"), b"\1" * 16, 0)
            done = await commits.commit(group, [Commit(missing, 1, ""), Commit(tp, 1, "")])
            assert done == [ErrorCode.UNKNOWN_TOPIC_ID, 0]

    run(work())


def test_a_topic_created_anew_gets_nothing_of_the_one_before(
    kafka: KafkaCluster, topic: Callable[..., str], fresh_name: FreshName
) -> None:
    """A commit by a node that still takes the topic for the deleted one of that name."""
    name, group = topic(), fresh_name("anew")

    def again() -> None:
        admin = AdminClient({"bootstrap.servers": kafka.bootstrap_servers})
        admin.delete_topics([name])[name].result(DEADLINE_S)
        wait_until(
            lambda: name not in admin.list_topics(timeout=DEADLINE_S).topics,
            what="topic deleted",
            deadline_s=DEADLINE_S,
        )
        create_topic(kafka.bootstrap_servers, name)

    async def work() -> None:
        async with running(settings(kafka)) as side:
            commits = Commits(side.upstream)
            before = await side.partition(name)
            assert await commits.commit(group, [Commit(before, 7, "old")]) == [0]
            await asyncio.to_thread(again)
            assert await commits.commit(group, [Commit(before, 8, "late")]) == [
                ErrorCode.UNKNOWN_TOPIC_ID
            ]
        async with running(settings(kafka)) as side:
            after = await side.partition(name)
            assert after.topic_id != before.topic_id
            commits = Commits(side.upstream)
            assert await commits.fetch(group, after) is None
            assert await commits.fetch_all(group) == {}

    run(work())


def test_metadata_may_be_as_long_as_the_broker_says_and_halves_when_it_lied(
    kafka: KafkaCluster, topic: Callable[..., str], fresh_name: FreshName
) -> None:
    name, group = topic(), fresh_name("commits")

    async def work() -> None:
        async with running(settings(kafka)) as side:
            commits = Commits(side.upstream)
            tp = await side.partition(name)
            await commits.probe_limits()
            assert commits.metadata_chars_max == METADATA_CHARS_MAX
            assert commits.repeat_ms == REPEAT_MS_MAX, "the broker keeps offsets for a week"
            longest = "x" * METADATA_CHARS_MAX
            assert await commits.commit(group, [Commit(tp, 1, longest)]) == [0]
            found = await commits.fetch(group, tp)
            assert found is not None
            assert found.metadata == longest
            done = await commits.commit(group, [Commit(tp, 2, longest + "x")])
            assert done == [ErrorCode.OFFSET_METADATA_TOO_LARGE]
            assert commits.metadata_chars_max == (METADATA_CHARS_MAX + 1) // 2
            found = await commits.fetch(group, tp)
            assert found is not None
            assert found.offset == 1

    run(work())


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_an_active_group_of_that_name_keeps_its_offsets(
    kafka: KafkaCluster, topic: Callable[..., str], fresh_name: FreshName, protocol: str
) -> None:
    name, group = topic(), fresh_name("taken")
    consumer = Consumer(
        {
            "bootstrap.servers": kafka.bootstrap_servers,
            "group.id": group,
            "group.protocol": protocol,
            "enable.auto.commit": False,
        }
    )
    assigned: list[Place] = []
    consumer.subscribe([name], on_assign=lambda _, places: assigned.extend(places))
    try:
        for _ in range(300):
            consumer.poll(0.1)
            if assigned:
                break
        assert assigned

        async def work() -> list[int]:
            async with running(settings(kafka)) as side:
                commits = Commits(side.upstream)
                tp = await side.partition(name)
                return await commits.commit(group, [Commit(tp, 5, "")])

        assert run(work()) == [ErrorCode.UNKNOWN_MEMBER_ID]
        places = consumer.committed([Place(name, 0)], timeout=DEADLINE_S)
        assert places[0].offset < 0
    finally:
        consumer.close()
