"""Partition counts that nodes tell each other, over the model of topics.lua."""

from __future__ import annotations

from random import Random
from typing import Any, cast

from gateway.core.cluster.topology import PartitionInfo, Topic, Topology
from gateway.core.forwarding.metadata_answer import ListedTopic
from gateway.core.routing.topics import TopicRouting
from gateway.routing.shared_table import KEY
from gateway.routing.shared_topics import TOPICS_KEY, SharedTopics
from tests.sim.nodes.redis import Link, SharedRedis
from tests.sim.nodes.timeline import Loop, Timeline

ID = bytes(range(16))


def seen(partitions: int) -> Topology:
    parts = {at: PartitionInfo(1, 0) for at in range(partitions)}
    return Topology(topics={"orders": Topic("orders", ID, parts)})


def metadata(partitions: int) -> list[ListedTopic]:
    return [ListedTopic("orders", ID, 0, partitions)]


def test_nodes_learn_of_growth_from_each_other_and_say_each_thing_once() -> None:
    timeline = Timeline()
    redis = SharedRedis(timeline, Random(1))
    errors: list[BaseException] = []

    def generation() -> int:
        return int(redis.hashes.get(KEY, {}).get(b"generation", b"0"))

    def node() -> SharedTopics:
        topics = SharedTopics(cast(Any, Link(redis)), generation)
        loop = Loop(timeline, errors.append)
        timeline.loops.append(loop)
        loop.create_task(topics.run())
        return topics

    def pass_s(seconds: float) -> None:
        until_s = timeline.now_s + seconds
        while timeline.now_s < until_s:
            timeline.step()

    a, b = node(), node()
    a.look_at(seen(4))
    pass_s(2)
    first = generation()
    assert a.known == b.known == {ID.hex(): TopicRouting(partitions=4, version=1)}
    b.look_at(seen(4))
    pass_s(60)
    assert generation() == first > 0, "the same, seen once more, is no news"
    a.look_at(seen(8))
    pass_s(2)
    assert b.known == {ID.hex(): TopicRouting(partitions=8, version=2)}
    assert generation() > first
    assert b.shown_by(metadata(8))
    assert not b.shown_by(metadata(4)), "a broker that is behind"
    b.look_at(seen(4))
    pass_s(2)
    assert a.known == b.known == {ID.hex(): TopicRouting(partitions=8, version=2)}
    assert a.topics() == set(), "it sees that one in Kafka"
    a.look_at(Topology())
    assert a.topics() == {ID}
    timeline.loops[0].create_task(a.delete_topics([ID, bytes(16)]))
    pass_s(1)
    assert a.known == {}
    assert redis.hashes[TOPICS_KEY] == {}
    for loop in timeline.loops:
        loop.end()
    assert errors == []
