"""Where logs end, asked of a broker that learns of the topic after the first question."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient

from gateway.core.wire.apis import ApiKey
from gateway.core.wire.errors import ErrorCode
from gateway.core.wire.schema import Message
from keyway.clusters.config import Cluster
from keyway.kafka.compacted import CompactedTopic
from keyway.kafka.log_ends import NO_LEADERS, LogEnds
from offsets.client import ClusterClient
from offsets.errors import ClusterAway
from spark.streaming.kafka import KafkaSide
from tests.rig.fake_broker import FakeBroker, ReceivedRequest, speaking
from tests.rig.patience import patient_s

TOPIC, END = "orders", 7
KNOWN = {"PartitionIndex": 0, "LeaderId": 1, "LeaderEpoch": 1}
LEADERLESS = {**KNOWN, "LeaderId": -1, "ErrorCode": int(ErrorCode.LEADER_NOT_AVAILABLE)}


class Learning:
    """A broker of one topic, which is as `topic` says."""

    def __init__(self) -> None:
        self.topic: Message = {"ErrorCode": int(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)}
        self.moved: list[ErrorCode] = []  # in place of the next ends
        self.others: list[Message] = []  # brokers
        # Its clients' telemetry is of no interest.
        self.versions = {int(partition): (0, high) for partition, high in VERSIONS.items()}
        self.broker: FakeBroker = speaking(
            {ApiKey.METADATA: self._metadata, ApiKey.LIST_OFFSETS: self._list_offsets},
            self.versions,
        )

    def learn(self) -> None:
        self.topic = {"Partitions": [KNOWN]}

    async def _metadata(self, request: ReceivedRequest) -> bytes:
        topic = {"Name": TOPIC, "TopicId": bytes(range(16)), **self.topic}
        cluster = self.broker.metadata()
        brokers = [*cluster["Brokers"], *self.others]
        return request.response({**cluster, "Brokers": brokers, "Topics": [topic]})

    async def _list_offsets(self, request: ReceivedRequest) -> bytes:
        row = {"PartitionIndex": 0, "Offset": END}
        if self.moved:
            row["ErrorCode"] = int(self.moved.pop())
        return request.response({"Topics": [{"Name": TOPIC, "Partitions": [row]}]})


VERSIONS = {ApiKey.API_VERSIONS: 3, ApiKey.METADATA: 12, ApiKey.LIST_OFFSETS: 7}


def run(work: Callable[[Learning, dict[str, Any]], None]) -> None:
    async def bounded() -> None:
        learning = Learning()
        async with asyncio.timeout(patient_s(60)), learning.broker.running() as broker:
            settings = {"bootstrap.servers": f"127.0.0.1:{broker.port}", "log_level": 2}
            await asyncio.to_thread(work, learning, settings)

    asyncio.run(bounded())


def test_a_topic_that_was_unknown_once() -> None:
    def work(learning: Learning, settings: dict[str, Any]) -> None:
        ends = LogEnds(settings, patient_s(30))
        (found,) = ends.ends([(TOPIC, 0)]).values()
        assert isinstance(found, KafkaError)
        assert found.code() == NO_LEADERS
        learning.learn()
        for _ in range(3):
            assert ends.ends([(TOPIC, 0)]) == {(TOPIC, 0): END}

    run(work)


def test_a_client_that_has_answered_is_asked_again() -> None:
    """Also the one that was handed in: a client counts as false, since it has a length."""

    def work(learning: Learning, settings: dict[str, Any]) -> None:
        learning.learn()
        for given in (None, AdminClient(settings)):
            ends = LogEnds(settings, patient_s(30), given)
            assert ends.ends([(TOPIC, 0)]) == {(TOPIC, 0): END}
            before = len(learning.broker.connections)
            for _ in range(5):
                assert ends.ends([(TOPIC, 0)]) == {(TOPIC, 0): END}
            assert len(learning.broker.connections) < before + 5

    run(work)


def test_a_leader_that_has_moved_since_the_last_question() -> None:
    def work(learning: Learning, settings: dict[str, Any]) -> None:
        learning.learn()
        ends = LogEnds(settings, patient_s(30))
        assert ends.ends([(TOPIC, 0)]) == {(TOPIC, 0): END}
        learning.moved = [ErrorCode.NOT_LEADER_OR_FOLLOWER]
        assert ends.ends([(TOPIC, 0)]) == {(TOPIC, 0): END}

    run(work)


def test_a_leader_that_does_not_answer() -> None:
    """librdkafka gives -1001 for its partitions, and no error, if another leader has answered."""

    async def silent(_: ReceivedRequest) -> None:
        return None

    async def bounded() -> None:
        learning = Learning()
        second = speaking({ApiKey.LIST_OFFSETS: silent}, learning.versions)
        async with (
            asyncio.timeout(patient_s(60)),
            learning.broker.running() as broker,
            second.running(),
        ):
            learning.others = [{"NodeId": 2, "Host": second.host, "Port": second.port}]
            learning.topic = {"Partitions": [KNOWN, {**KNOWN, "PartitionIndex": 1, "LeaderId": 2}]}
            settings = {"bootstrap.servers": f"127.0.0.1:{broker.port}", "log_level": 2}
            ends = LogEnds(settings, 2.0)
            found = await asyncio.to_thread(ends.ends, [(TOPIC, 0), (TOPIC, 1)])
            late = found[TOPIC, 1]
            assert isinstance(late, KafkaError)
            assert late.code() == KafkaError._TIMED_OUT

    asyncio.run(bounded())


def test_a_partition_that_had_no_leader() -> None:
    def work(learning: Learning, settings: dict[str, Any]) -> None:
        learning.topic = {"Partitions": [LEADERLESS]}
        ends = LogEnds(settings, patient_s(30))
        (found,) = ends.starts([(TOPIC, 0)]).values()
        assert isinstance(found, KafkaError)
        learning.learn()
        assert ends.starts([(TOPIC, 0)]) == {(TOPIC, 0): END}

    run(work)


def test_the_end_of_a_state_topic_that_was_unknown_once() -> None:
    """Made by another service, it is listed by one broker and unknown to the next."""

    def work(learning: Learning, settings: dict[str, Any]) -> None:
        topic = CompactedTopic(settings, TOPIC)
        with pytest.raises(KafkaException, match="No leaders found"):
            topic.end()
        learning.learn()
        assert topic.end() == END
        topic.close()

    run(work)


def test_partitions_of_a_topic_that_is_gone_are_left_out() -> None:
    def work(learning: Learning, settings: dict[str, Any]) -> None:
        cluster = Cluster(name="A", bootstrap_servers=settings["bootstrap.servers"])
        client = ClusterClient(cluster)
        assert client.ends([(TOPIC, 0)]) == {}
        learning.topic = {"Partitions": [LEADERLESS]}
        with pytest.raises(ClusterAway, match="A: offsets of orders: "):
            client.ends([(TOPIC, 0)])
        assert client.ends([(TOPIC, 0)], partly=True) == {}
        learning.learn()
        assert client.ends([(TOPIC, 0)]) == {(TOPIC, 0): END}

    run(work)


def test_a_partition_without_a_leader_beside_one_that_has_it() -> None:
    """The brokers of the one are away; the other's end is told all the same."""

    def work(learning: Learning, settings: dict[str, Any]) -> None:
        cluster = Cluster(name="A", bootstrap_servers=settings["bootstrap.servers"])
        learning.topic = {"Partitions": [KNOWN, {**LEADERLESS, "PartitionIndex": 1}]}
        client, both = ClusterClient(cluster), [(TOPIC, 0), (TOPIC, 1)]
        with pytest.raises(ClusterAway, match="A: offsets of orders: "):
            client.ends(both)
        assert client.ends(both, partly=True) == {(TOPIC, 0): END}
        side = KafkaSide(cluster)
        assert side.listed() == {TOPIC: 2}
        assert side.leaderless == {TOPIC: 1}
        learning.learn()
        side.listed()
        assert side.leaderless == {}

    run(work)


def test_a_partition_with_fewer_replicas_in_sync_than_it_has() -> None:
    def work(learning: Learning, settings: dict[str, Any]) -> None:
        some = {**KNOWN, "ReplicaNodes": [1, 2, 3], "IsrNodes": [1, 2]}
        few = {**some, "PartitionIndex": 1, "IsrNodes": [1]}
        side = KafkaSide(Cluster(name="A", bootstrap_servers=settings["bootstrap.servers"]))
        learning.topic = {"Partitions": [some, few]}
        side.listed()
        assert side.out_of_sync == {TOPIC: (1, 1)}
        learning.topic = {"Partitions": [some, {**few, "IsrNodes": [1, 2, 3]}]}
        side.listed()
        assert side.out_of_sync == {TOPIC: (0, 2)}
        learning.topic = {"Partitions": [KNOWN]}
        side.listed()
        assert side.out_of_sync == {}

    run(work)
