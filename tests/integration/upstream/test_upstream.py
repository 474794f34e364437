"""The gateway's own client against a real Kafka: topology, coordinators, configs, SASL and TLS."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import Callable
from functools import partial

import pytest

from gateway.core.cluster.topology import Topology
from gateway.core.wire.apis import ApiKey
from gateway.core.wire.errors import ErrorCode
from gateway.embedded.kafka import KafkaCluster
from gateway.upstream.cluster import EARLIEST, LATEST
from gateway.upstream.configs import group_config, share_version
from gateway.upstream.errors import Refused, Unreachable
from gateway.upstream.ping import ping_forever
from gateway.upstream.settings import (
    UpstreamSettings,
)
from tests.rig.kafka import create_topic, produce, set_group_config
from tests.rig.patience import patient_s
from tests.rig.upstream_side import DEADLINE_S, blocking, run, running, until

pytestmark = pytest.mark.integration

FreshName = Callable[[str], str]


def test_topology_of_two_brokers_and_who_hears_of_changes(
    kafka_pair: KafkaCluster, fresh_name: FreshName
) -> None:
    name = fresh_name("spread")
    bootstrap = kafka_pair.bootstrap_servers
    create_topic(bootstrap, name, assignment=[[1, 2], [2, 1]])

    async def work() -> None:
        async with running(UpstreamSettings(bootstrap)) as side:
            changes: list[Topology] = []
            side.upstream.on_topology(changes.append)
            tp = await side.partition(name, 1)
            topology = side.upstream.topology
            assert {b.id: b.port for b in topology.brokers.values()} == {
                b.node_id: b.port for b in kafka_pair.brokers
            }
            assert [part.leader for part in topology.topics[name].partitions.values()] == [1, 2]
            assert topology.names[tp.topic_id] == name
            seen = len(changes)
            assert seen >= 1
            await side.upstream.refresh()
            assert len(changes) == seen

            await blocking(kafka_pair.brokers[1].kill)
            try:
                async with asyncio.timeout(patient_s(DEADLINE_S)):
                    while 2 in side.upstream.topology.brokers:
                        side.upstream.request_refresh()
                        await asyncio.sleep(0.1)
                assert changes[-1] == side.upstream.topology
                with pytest.raises(Unreachable):
                    await side.upstream.call(ApiKey.METADATA, {"Topics": []}, broker_id=2)
            finally:
                await blocking(partial(kafka_pair.restart, kafka_pair.brokers[1]))

    run(work())


def test_a_broker_that_hangs_is_found_long_before_a_request_gives_up(
    kafka_pair: KafkaCluster,
) -> None:
    """A stopped process keeps its connections: nothing but silence tells of it."""
    hanging = kafka_pair.brokers[1]

    async def work() -> None:
        async with running(UpstreamSettings(kafka_pair.bootstrap_servers)) as side:

            async def silent() -> bool:
                return set(side.upstream.silent_brokers()) == {2}

            async def both_answer() -> bool:
                side.upstream.request_refresh()  # the controller may have left the hanging one out
                brokers = set(side.upstream.topology.brokers)
                return brokers == {1, 2} and not side.upstream.silent_brokers()

            await until(both_answer)
            pinging = asyncio.ensure_future(ping_forever(side.upstream))
            assert hanging.child is not None
            os.kill(hanging.child.pid, signal.SIGSTOP)
            try:
                await until(silent)
                # The other one is asked from now on.
                await side.upstream.call(ApiKey.METADATA, {"Topics": []})
            finally:
                os.kill(hanging.child.pid, signal.SIGCONT)
            await until(both_answer)
            pinging.cancel()

    run(work())


def test_offsets_are_asked_of_each_leader(kafka_pair: KafkaCluster, fresh_name: FreshName) -> None:
    name = fresh_name("offsets")
    bootstrap = kafka_pair.bootstrap_servers
    create_topic(bootstrap, name, assignment=[[1], [2]])
    produce(bootstrap, name, [(b"k", b"v")] * 3, partition=0)
    produce(bootstrap, name, [(b"k", b"v")] * 5, partition=1)

    async def work() -> None:
        async with running(UpstreamSettings(bootstrap)) as side:
            upstream = side.upstream
            assert await upstream.list_offsets(name, [0, 1], LATEST) == {0: 3, 1: 5}
            assert await upstream.list_offsets(name, [0, 1], EARLIEST) == {0: 0, 1: 0}
            in_an_hour = int(time.time_ns() // 1_000_000) + 3_600_000
            assert await upstream.list_offsets(name, [0], in_an_hour) == {0: -1}
            for topic, partition in ((name, 2), (fresh_name("missing"), 0)):
                with pytest.raises(Refused) as refused:
                    await upstream.list_offsets(topic, [0, partition], LATEST)
                assert refused.value.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    run(work())


def test_group_config_is_what_was_set_for_the_group(
    kafka: KafkaCluster, fresh_name: FreshName
) -> None:
    group, other = fresh_name("configured"), fresh_name("plain")
    set_group_config(kafka.bootstrap_servers, group, {"share.auto.offset.reset": "earliest"})

    async def work() -> None:
        async with running(UpstreamSettings(kafka.bootstrap_servers)) as side:

            async def configured() -> bool:
                found = await group_config(side.upstream, group)
                return found == {"share.auto.offset.reset": "earliest"}

            await until(configured)
            assert await group_config(side.upstream, other) == {}

    run(work())


def test_share_version_is_the_level_that_the_cluster_works_with(kafka: KafkaCluster) -> None:
    """Not the highest that its brokers support."""

    async def work() -> int:
        async with running(UpstreamSettings(kafka.bootstrap_servers)) as side:
            return await share_version(side.upstream)

    assert run(work()) == int(kafka.share_groups)


def test_coordinators_are_remembered_until_forgotten(
    kafka_pair: KafkaCluster, fresh_name: FreshName
) -> None:
    async def work() -> None:
        async with running(UpstreamSettings(kafka_pair.bootstrap_servers)) as side:
            groups = [fresh_name("coordinated") for _ in range(30)]
            found = {group: await side.upstream.coordinator(group) for group in groups}
            # All on one broker, if the other was away not long ago.
            assert set(found.values()) <= {1, 2}
            for group in groups:
                with pytest.raises(StopIteration) as answered:  # at once: it waits for nobody
                    side.upstream.coordinator(group).send(None)
                assert answered.value.value == found[group]
            side.upstream.forget_coordinator(groups[0])
            assert await side.upstream.coordinator(groups[0]) == found[groups[0]]

            side.upstream._coordinators |= dict.fromkeys(groups[:9], -7)  # of long ago
            await side.upstream.look_for_coordinators(groups[:20])
            for group in groups:  # at once: all were in one answer
                with pytest.raises(StopIteration) as looked_for:
                    side.upstream.coordinator(group).send(None)
                assert looked_for.value.value == found[group]

    run(work())
