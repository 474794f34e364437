"""The upstream's only broker is killed and comes back: tails, commits and dead letters go on."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial

import pytest

from dispatcher.core.model import MemberId, Reason
from dispatcher.core.steps import WriteDeadLetters
from gateway.core.cluster.topology import TopicPartition
from gateway.embedded.kafka import KafkaCluster
from gateway.group_log import GroupLog
from gateway.reading.dead_letters import DeadLetters
from gateway.upstream.commits import Commit, Commits
from gateway.upstream.errors import UpstreamError
from gateway.upstream.settings import UpstreamSettings
from tests.rig.kafka import create_topic, produce, read_partition
from tests.rig.upstream_side import Collector, Side, blocking, committed, run, running, until

pytestmark = [pytest.mark.deep, pytest.mark.integration]

METADATA_CHARS = 1_000


def exhausted(offset: int) -> WriteDeadLetters:
    return WriteDeadLetters([offset], [5], [Reason.REJECTED], [MemberId("m")])


class Everything:
    """All that the gateway keeps doing with its upstream, on one partition."""

    def __init__(self, side: Side, tp: TopicPartition, dead: str) -> None:
        self.side = side
        self.commits = Commits(side.upstream)
        self.letters = DeadLetters(
            side.upstream, side.reader.records, GroupLog(lambda: 0), lambda: 0
        )
        self.tail = Collector(side.reader, tp).start()
        self.tp = tp
        self.dead = dead

    async def commit(self, offset: int) -> int:
        commit = Commit(self.tp, offset, "x" * METADATA_CHARS)
        (code,) = await self.commits.commit("group", [commit])
        return code

    async def write(self, offset: int) -> bool:
        (durable,) = await self.letters.write_offsets(
            "group", committed(self.tp), self.dead, exhausted(offset)
        )
        return durable is True


def test_everything_goes_on_after_a_restart(fresh_name: Callable[[str], str]) -> None:
    name, dead = fresh_name("source"), fresh_name("dead")
    limit = {"offset.metadata.max.bytes": str(METADATA_CHARS)}
    with KafkaCluster(1, properties=limit) as cluster:
        bootstrap = cluster.bootstrap_servers
        for topic in (name, dead):
            create_topic(bootstrap, topic)
        settings = UpstreamSettings(bootstrap, request_timeout_ms=5_000)

        async def work() -> None:
            async with running(settings) as side:
                all_of_it = Everything(side, await side.partition(name), dead)
                try:
                    await before_and_after(cluster, side, all_of_it)
                finally:
                    await all_of_it.letters.close()

        run(work())
        values = [value for _, _, value in read_partition(bootstrap, dead, 0)]
        assert values == [b"before", b"after"]


async def before_and_after(cluster: KafkaCluster, side: Side, gateway: Everything) -> None:
    bootstrap, name = cluster.bootstrap_servers, gateway.tp.topic
    await gateway.commits.probe_limits()
    assert gateway.commits.metadata_chars_max == METADATA_CHARS
    await asyncio.to_thread(produce, bootstrap, name, [(b"k", b"before")])
    await gateway.tail.reached(1)

    async def committed(offset: int) -> bool:
        return await gateway.commit(offset) == 0

    # The very first group of the cluster: its offsets topic is being created meanwhile.
    await until(partial(committed, 1))
    assert await gateway.write(0)

    await blocking(cluster.brokers[0].kill)
    with pytest.raises(UpstreamError):
        await side.upstream.refresh()
    assert await gateway.commit(1) != 0
    assert not await gateway.write(0)
    await blocking(cluster.restart)

    await asyncio.to_thread(produce, bootstrap, name, [(b"k", b"after")])
    await gateway.tail.reached(2)
    assert gateway.tail.offsets == [0, 1]
    assert not any(result.error for result in gateway.tail.results)

    async def written() -> bool:
        return await gateway.write(1)

    await until(partial(committed, 2))
    found = await gateway.commits.fetch("group", gateway.tp)
    assert found is not None
    assert (found.offset, found.metadata) == (2, "x" * METADATA_CHARS)
    await until(written)
