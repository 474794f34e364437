"""The view of the cluster: questions in portions, and watched topics."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from gateway.core.forwarding.own_answers import own_answer
from gateway.core.repartition.hiding import ShownTopic
from gateway.core.wire.errors import ErrorCode
from gateway.core.wire.schema import Message
from gateway.upstream import cluster
from gateway.upstream.cluster import Upstream
from gateway.upstream.settings import UpstreamSettings
from tests.rig.wire_frames import response


class Kafka:
    """Answers Metadata: every topic but those that begin with "no-" exists."""

    def __init__(self) -> None:
        self.asked: list[list[str]] = []

    async def call(self, _key: int, body: Message, **_: Any) -> Message:
        names = [topic["Name"] for topic in body["Topics"]]
        self.asked.append(names)
        return {
            "ErrorCode": 0,
            "ClusterId": "c",
            "Brokers": [{"NodeId": 1, "Host": "kafka", "Port": 9092}],
            "Topics": [_topic(name) for name in names],
        }


def _topic(name: str) -> Message:
    gone = name.startswith("no-")
    partition = {"PartitionIndex": 0, "LeaderId": 1, "LeaderEpoch": 0, "ErrorCode": 0}
    return {
        "Name": name,
        "TopicId": name.encode().ljust(16, b"."),
        "ErrorCode": 3 if gone else 0,
        "Partitions": [] if gone else [partition],
    }


def upstream(monkeypatch: pytest.MonkeyPatch) -> tuple[Upstream, Kafka]:
    kafka, made = Kafka(), Upstream(UpstreamSettings("kafka:9092"))
    monkeypatch.setattr(made, "call", kafka.call)
    return made, kafka


def test_many_names_are_asked_for_in_portions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster, "METADATA_TOPICS_MAX", 2)
    client, kafka = upstream(monkeypatch)
    topology = asyncio.run(client.refresh(["a", "b", "c", "no-d", "e"]))
    assert kafka.asked == [["a", "b"], ["c", "no-d"], ["e"]]
    assert list(topology.topics) == ["a", "b", "c", "no-d", "e"]
    assert list(topology.brokers) == [1]


def test_without_any_name_the_brokers_are_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    client, kafka = upstream(monkeypatch)
    assert list(asyncio.run(client.refresh()).brokers) == [1]
    assert kafka.asked == [[]]


def test_a_look_up_asks_once_and_watches_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    client, kafka = upstream(monkeypatch)

    async def work() -> None:
        found = await client.look_up(["a", "no-b", "not a name", "x" * 250])
        assert list(found) == ["a"]
        await client.refresh(["c"])

    asyncio.run(work())
    assert kafka.asked == [["a", "no-b"], ["c"]]
    assert list(client.watched) == ["c"]


def test_only_so_many_topics_are_watched(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster, "WATCHED_TOPICS_MAX", 3)
    client, _ = upstream(monkeypatch)
    client.watch(["a", "b"])
    client.watch(["b", "c", "d"])
    assert list(client.watched) == ["a", "b", "c"]
    client.unwatch(["a"])
    client.watch(["d"])
    assert list(client.watched) == ["b", "c", "d"]


def test_names_that_no_topic_has_do_not_keep_topics_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """A group that names a hundred thousand of them would be the last on its node."""
    monkeypatch.setattr(cluster, "WATCHED_TOPICS_MAX", 4)
    client, _ = upstream(monkeypatch)

    async def work() -> None:
        await client.refresh(["a", "no-b", "no-c", "no-d"])
        assert client.topology.topics["no-b"].error == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert "e" in (await client.refresh(["e", "f"])).topics
        assert list(client.watched) == ["a", "no-b", "e", "f"]
        client.watch(["g", "h", "i"])
        assert list(client.watched) == ["a", "e", "f", "g"], "topics stay"

    asyncio.run(work())


def test_a_topic_behind_many_names_that_none_has_gets_its_turn(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As after a restart, when all names are there at once."""
    monkeypatch.setattr(cluster, "WATCHED_TOPICS_MAX", 3)
    client, _ = upstream(monkeypatch)
    names = ["no-a", "no-b", "no-c", "no-d", "no-e", "orders"]

    async def work() -> None:
        assert "orders" not in (await client.refresh(names)).topics
        client.watch(names)
        assert "orders" in (await client.refresh()).topics
        for _ in range(3):
            client.watch(names)
            assert "orders" in (await client.refresh()).topics

    asyncio.run(work())


def test_what_is_told_again_is_not_made_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """20,000 partitions hold the event loop for a tenth of a second and more."""
    client, leaders = upstream(monkeypatch)[0], {"a": 1, "b": 1}

    async def call(key: int, body: Message, **_: Any) -> Message:
        names = [topic["Name"] for topic in body["Topics"]]
        topics = [_topic(name) for name in names]
        for name, topic in zip(names, topics, strict=True):
            topic["Partitions"][0]["LeaderId"] = leaders[name]
        brokers = [{"NodeId": number, "Host": "kafka", "Port": 9092} for number in (1, 2)]
        answer = {"ClusterId": "c", "Brokers": brokers, "Topics": topics}
        return own_answer(key, 12, response(key, 12, answer)[4:])

    monkeypatch.setattr(client, "call", call)

    async def work() -> None:
        first = (await client.refresh(["a", "b"])).topics
        assert await client.refresh() is client.topology
        leaders["b"] = 2
        second = (await client.refresh()).topics
        assert second["a"] is first["a"]
        assert second["b"].partitions[0].leader == 2
        client.hide({"a": ShownTopic(first["a"].topic_id, 0)})
        assert not (await client.refresh()).topics["a"].partitions
        client.hide(None)
        assert (await client.refresh()).topics["a"] == first["a"]

    asyncio.run(work())
