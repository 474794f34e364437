"""The name of a Key-Shared group is taken at every node, whichever coordinates the group."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka import Consumer, TopicPartition

from gateway.core.wire.apis import ApiKey
from gateway.core.wire.errors import ErrorCode
from gateway.embedded.kafka import KafkaCluster
from tests.chaos.nodes.site import Nodes
from tests.integration.upstream.test_two_brokers import places_on
from tests.rig.clients.share_members import ShareHost, consume_all
from tests.rig.clients.wire_client import ShareSession, WireClient
from tests.rig.kafka import create_topic, produce
from tests.rig.patience import wait_until

pytestmark = pytest.mark.integration


def commit_error(address: str, group: str, topic: str) -> int:
    """What a simple consumer's commit gets there, also from who does not coordinate the group."""
    part = {"PartitionIndex": 0, "CommittedOffset": 3, "CommittedMetadata": ""}
    body = {"GroupId": group, "Topics": [{"Name": topic, "Partitions": [part]}]}
    with WireClient(address) as line:
        answer = line.call(ApiKey.OFFSET_COMMIT, 9, body)
    return int(answer["Topics"][0]["Partitions"][0]["ErrorCode"])


def test_also_at_a_node_that_does_not_coordinate_the_group(
    kafka_pair: KafkaCluster, fresh_name: Callable[[str], str], tmp_path: Path
) -> None:
    topic, group = fresh_name("topic"), fresh_name("group")
    create_topic(kafka_pair.bootstrap_servers, topic)
    nodes = Nodes(tmp_path, kafka_pair, "ab")
    refused = int(ErrorCode.GROUP_ID_NOT_FOUND)
    with nodes.running("ab"):
        a, b = (nodes.nodes[name] for name in "ab")

        def refused_by_both() -> bool:
            return all(commit_error(node.bootstrap, group, topic) == refused for node in (a, b))

        with ShareSession(a.bootstrap, group, topic).join() as member:
            wait_until(refused_by_both, what="the commit refused by both nodes", deadline_s=20)
            member.leave()
        assert refused_by_both(), "also while it is empty"
        a.stop()
        a.start()
        assert commit_error(a.bootstrap, group, topic) == refused, "Redis remembers it"


def test_what_both_nodes_had_settled_is_there_for_consumers_and_nothing_else_counts(
    kafka_pair: KafkaCluster,
    fresh_name: Callable[[str], str],
    librdkafka_host: ShareHost,
    tmp_path: Path,
) -> None:
    topic, group = fresh_name("topic"), fresh_name("group")
    create_topic(kafka_pair.bootstrap_servers, topic, assignment=[[1], [2]])
    places = [TopicPartition(topic, partition) for partition in (0, 1)]
    nodes = Nodes(tmp_path, kafka_pair, "ab")

    def put(count: int) -> None:
        for partition in (0, 1):
            records = [(b"k%d" % at, b"%d" % at) for at in range(count)]
            produce(kafka_pair.bootstrap_servers, topic, records, partition=partition)

    def consumed() -> set[tuple[int, int]]:
        """All there is, by a consumer; each partition gets ten records."""
        config = {
            "bootstrap.servers": nodes.bootstrap,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
        consumer, came = Consumer(config), set[tuple[int, int]]()
        consumer.subscribe([topic])

        def all_came() -> bool:
            found = consumer.poll(0.2)
            if found is not None and found.error() is None:
                came.add((int(found.partition() or 0), int(found.offset() or 0)))
            return len(came) >= 20

        wait_until(all_came, what="20 records for a consumer", deadline_s=60)
        consumer.commit(asynchronous=False)
        consumer.close()
        return came

    def numbers(first: int) -> set[tuple[int, int]]:
        return {(place.partition, at) for place in places for at in range(first, first + 10)}

    with nodes.running("ab"):
        put(10)
        assert consumed() == numbers(0)
        put(10)
        member = librdkafka_host.member(nodes.bootstrap, group, [topic])
        ends = places_on(kafka_pair.bootstrap_servers, topic, 2)
        consume_all([member], {place for place in ends if place[2] >= 10})
        member.close()
        put(10)
        assert consumed() == numbers(20), "the share member's last commit was not due yet"
        put(10)
        again = librdkafka_host.member(nodes.bootstrap, group, [topic])
        came: set[tuple[int, int]] = set()
        while len(came) < 20:
            came |= {(record.partition, record.offset) for record in again.poll_some()}
        again.close()
        assert came == numbers(30), "the consumers' positions count"
