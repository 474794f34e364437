"""Records of every cluster of a tree reach every other exactly once, with the flags of the tables;
copied and forged headers do not keep a record from being distributed.
"""

from __future__ import annotations

import itertools
import os
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import Consumer, TopicPartition
from pyspark.sql import SparkSession

from clusters.config import ClustersConfig
from clusters.core.copies import COPY_HEADER
from clusters.core.tree import ClusterName
from spark.produce import headers_of
from tests.rig.kafka import create_topic
from tests.rig.several_clusters import Clusters, clusters, read, running, send, wait_for

pytestmark = [
    pytest.mark.spark,
    pytest.mark.integration,
    pytest.mark.timeout(1_200),
    pytest.mark.filterwarnings("ignore"),
]

FOUR = {
    "level": 3,
    "children": [{"level": 1, "children": ["C1", "C2"]}, {"level": 1, "children": ["C3", "C4"]}],
}
FIVE = {
    "level": 3,
    "children": [
        {"level": 2, "children": ["C1", {"level": 1, "children": ["C2", "C3"]}]},
        {"level": 1, "children": ["C4", "C5"]},
    ],
}
FULL = os.environ.get("KEYWAY_TESTS_FULL") == "1"  # make distribution
RECORDS = 1_000 if FULL else 25  # of each origin
PARTITIONS = 2


@pytest.fixture(scope="module")
def five(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Clusters]:
    names = ("C1", "C2", "C3", "C4", "C5") if FULL else ("C1", "C2", "C3", "C4")
    with clusters(names, tmp_path_factory.mktemp("clusters")) as some:
        yield some


def fill(some: Clusters, config: ClustersConfig, topic: str) -> None:
    for name in config.checked_tree().clusters:
        create_topic(some.front(name), topic, partitions=PARTITIONS)
    for name in config.checked_tree().clusters:
        records = [
            {
                "key": b"%d" % (at % 7),
                "value": b"%s %d" % (name.encode(), at),
                "partition": at % 7 % PARTITIONS,
                "timestamp": 1_700_000_000_000 + at,
            }
            for at in range(RECORDS)
        ]
        send(some.front(name), topic, records)


def judge_delivery(some: Clusters, config: ClustersConfig, topic: str) -> None:
    """Each cluster has each record once, with the flags of its last hop, in its origin's order."""
    tree = config.checked_tree()
    flags = {
        (origin, hop.target): hop.flags for origin in tree.clusters for hop in tree.hops(origin)
    }
    for name in tree.clusters:
        front = some.front(name)
        found = wait_for(front, topic, RECORDS * len(tree.clusters), PARTITIONS)
        origins = Counter(str(it.origin(name, topic)) for it in found)
        assert max(origins.values()) == 1, origins.most_common(3)
        assert len(origins) == RECORDS * len(tree.clusters)
        assert {it.value for it in found} == {
            b"%s %d" % (origin.encode(), at) for origin in tree.clusters for at in range(RECORDS)
        }
        for record in found:
            origin = record.origin(name, topic).cluster
            assert record.flags == (0 if origin == name else flags[origin, ClusterName(name)])
        for origin, partition in itertools.product(tree.clusters, range(PARTITIONS)):
            offsets = [
                it.origin(name, topic).offset
                for it in found
                if it.origin(name, topic).cluster == origin and it.partition == partition
            ]
            assert offsets == sorted(offsets), f"of {origin} on {name}"


def test_four_clusters(spark: SparkSession, five: Clusters) -> None:
    config = five.write(FOUR, topics={"include": ["four"]})
    fill(five, config, "four")
    with running(spark, config, *config.checked_tree().clusters):
        judge_delivery(five, config, "four")
    judge_delivery(five, config, "four")


@pytest.mark.skipif(not FULL, reason="make distribution")
def test_five_clusters(spark: SparkSession, five: Clusters) -> None:
    config = five.write(FIVE, topics={"include": ["five"]})
    fill(five, config, "five")
    with running(spark, config, *config.checked_tree().clusters):
        judge_delivery(five, config, "five")
    judge_delivery(five, config, "five")


@pytest.mark.skipif(not FULL, reason="make distribution")
def test_every_permutation_of_targets(spark: SparkSession, five: Clusters) -> None:
    """Four of the eight links of a 4-tree have a choice, so there are 16 permutations."""
    links = (("C1", ("C3", "C4")), ("C2", ("C3", "C4")), ("C3", ("C1", "C2")), ("C4", ("C1", "C2")))
    for at, chosen in enumerate(itertools.product(*(targets for _, targets in links))):
        targets = [
            {"cluster": name, "level": 3, "targets": [target]}
            for (name, _), target in zip(links, chosen, strict=True)
        ]
        topic = f"permuted-{at}"
        config = five.write(
            FOUR,
            topics={"include": [topic]},
            targets=targets,
            messages={"status_topic": f"status-{at}"},
        )
        fill(five, config, topic)
        with running(spark, config, *config.checked_tree().clusters):
            judge_delivery(five, config, topic)
        judge_delivery(five, config, topic)


def test_headers_that_were_copied_or_forged(spark: SparkSession, five: Clusters) -> None:
    """An application at C4 writes each input record, headers and timestamp included, to another
    topic and once more to the same topic; a client forges a header. All of them are new records.
    """
    config = five.write(FOUR, topics={"include": ["in", "out"]})
    for name, topic in itertools.product(config.checked_tree().clusters, ("in", "out")):
        create_topic(five.front(name), topic)
    with running(spark, config, *config.checked_tree().clusters):
        send(five.front("C1"), "in", [{"key": b"k", "value": b"%d" % at} for at in range(5)])
        wait_for(five.front("C4"), "in", 5)
        for record in raw(five.front("C4"), "in"):
            send(five.front("C4"), "out", [record])
            send(five.front("C4"), "in", [{**record, "value": record["value"] + b" again"}])
        forged = [(COPY_HEADER, b"1-ffffffff-0000000000000000-0-0-C1/in")]
        send(five.front("C4"), "in", [{"value": b"forged", "headers": forged}])
        for name in config.checked_tree().clusters:
            values = [it.value for it in wait_for(five.front(name), "in", 11)]
            expected = [b"%d" % at for at in range(5)]
            again = [b"%d again" % at for at in range(5)]
            assert Counter(values) == Counter([*expected, *again, b"forged"]), name
            assert [it.value for it in wait_for(five.front(name), "out", 5)] == expected, name
    for name in config.checked_tree().clusters:
        assert len(read(five.front(name), "in")) == 11
        assert len(read(five.front(name), "out")) == 5


def raw(front: str, topic: str) -> list[dict[str, Any]]:
    """Every record as an application that copies headers would write it."""
    settings = {"bootstrap.servers": front, "group.id": "an-application"}
    consumer = Consumer({**settings, "enable.partition.eof": True})
    consumer.assign([TopicPartition(topic, 0, 0)])
    found: list[dict[str, Any]] = []
    try:
        while True:
            message = consumer.poll(30)
            assert message is not None
            if message.error() is not None:
                return found
            found.append(
                {
                    "key": message.key(),
                    "value": message.value(),
                    "timestamp": message.timestamp()[1],
                    "headers": headers_of(message),
                }
            )
    finally:
        consumer.close()
