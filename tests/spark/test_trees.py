"""Records of every cluster of a tree reach every other exactly once, with the flags of the tables;
copied and forged headers do not keep a record from being distributed.
"""

from __future__ import annotations

import itertools
import json
import os
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import Consumer, TopicPartition
from pyspark.sql import SparkSession
from typer.testing import CliRunner

from gateway.cli.main import app
from keyway.clusters.config import ClustersConfig
from keyway.clusters.core.copies import COPY_HEADER
from keyway.clusters.core.tree import ClusterName
from spark.links.verify import compare
from spark.streaming.read_back import headers_of
from tests.rig.kafka import create_topic
from tests.rig.patience import wait_until
from tests.rig.several_clusters import Clusters, clusters, read, running, send, wait_for

pytestmark = [
    pytest.mark.deep,
    pytest.mark.spark,
    pytest.mark.integration,
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
# Of each origin; in make campaign NAME=distribution 1,000.
RECORDS = int(os.environ.get("KEYWAY_TESTS_RECORDS", "25"))
PARTITIONS = 2


@pytest.fixture(scope="module")
def five(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Clusters]:
    names = ("C1", "C2", "C3", "C4", "C5")
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
        origins = Counter(str(copy.origin(name, topic)) for copy in found)
        assert max(origins.values()) == 1, origins.most_common(3)
        assert len(origins) == RECORDS * len(tree.clusters)
        assert {copy.value for copy in found} == {
            b"%s %d" % (origin.encode(), at) for origin in tree.clusters for at in range(RECORDS)
        }
        for record in found:
            origin = record.origin(name, topic).cluster
            assert record.flags == (0 if origin == name else flags[origin, ClusterName(name)])
        for origin, partition in itertools.product(tree.clusters, range(PARTITIONS)):
            offsets = [
                copy.origin(name, topic).offset
                for copy in found
                if copy.origin(name, topic).cluster == origin and copy.partition == partition
            ]
            assert offsets == sorted(offsets), f"of {origin} on {name}"


def test_four_clusters(spark: SparkSession, five: Clusters) -> None:
    config = five.write(FOUR, topics={"include": ["four"]})
    fill(five, config, "four")
    with running(spark, config, *config.checked_tree().clusters):
        judge_delivery(five, config, "four")
    judge_delivery(five, config, "four")


def test_five_clusters(spark: SparkSession, five: Clusters) -> None:
    config = five.write(FIVE, topics={"include": ["five"]})
    fill(five, config, "five")
    with running(spark, config, *config.checked_tree().clusters):
        judge_delivery(five, config, "five")
    judge_delivery(five, config, "five")


CHOICES = {"C1": ("C3", "C4"), "C2": ("C3", "C4"), "C3": ("C1", "C2"), "C4": ("C1", "C2")}


@pytest.mark.parametrize("chosen", list(itertools.product(*CHOICES.values())), ids="-".join)
def test_every_permutation_of_targets(
    spark: SparkSession, five: Clusters, chosen: tuple[str, ...]
) -> None:
    """Four of the eight links of a 4-tree have a choice, so there are 16 permutations."""
    name = "-".join(("permuted", *chosen))
    config = five.write(
        FOUR,
        topics={"include": [name]},
        targets=[
            {"cluster": cluster, "level": 3, "targets": [target]}
            for cluster, target in zip(CHOICES, chosen, strict=True)
        ],
        messages={"status_topic": f"_status-{name}"},
    )
    fill(five, config, name)
    with running(spark, config, *config.checked_tree().clusters):
        judge_delivery(five, config, name)
    judge_delivery(five, config, name)


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
            values = [copy.value for copy in wait_for(five.front(name), "in", 11)]
            expected = [b"%d" % at for at in range(5)]
            again = [b"%d again" % at for at in range(5)]
            assert Counter(values) == Counter([*expected, *again, b"forged"]), name
            assert [copy.value for copy in wait_for(five.front(name), "out", 5)] == expected, name
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


def command(*arguments: str) -> tuple[int, str]:
    ended = CliRunner().invoke(app, ["distribute", *arguments])
    return ended.exit_code, ended.output


def test_check_status_and_verify(spark: SparkSession, five: Clusters) -> None:
    config = five.write(FOUR, topics={"include": ["shown"]})
    for name in ("C1", "C2"):
        create_topic(five.front(name), "shown")
    code, text = command("check", str(five.path))
    assert code == 0, text
    hops = "C1 is copied from C1 to C2 (level 1), from C1 to C3 (level 3), from C3 to C4 (level 1)"
    assert "link C1-level-3: to C3 or C4" in text
    assert hops in text
    assert "C1-level-3 to C3: shown: will be created on the target" in text
    send(five.front("C1"), "shown", [{"key": b"k", "value": b"%d" % at} for at in range(7)])
    with running(spark, config, "C1", level=1):
        wait_for(five.front("C2"), "shown", 7)
        wait_until(lambda: copied_by(five, "C1-level-1") == 7, what="status", deadline_s=240)
    _, table = command("status", str(five.path))
    (row,) = (line.split() for line in table.splitlines() if line.startswith("C1-level-1"))
    assert row == ["C1-level-1", "C2", "ended", "shown", "0", "0", "0.0", "7", *"00000"]
    assert compare(spark, config, "C1", "C2", "shown")["alike"]
    # One is written twice, which is also out of order; one is new on the other side.
    (_, second, *_) = raw(five.front("C2"), "shown")
    send(five.front("C2"), "shown", [second])
    send(five.front("C2"), "shown", [{"value": b"fresh"}])
    found = compare(spark, config, "C1", "C2", "shown")
    fresh = f"0-{read(five.front('C2'), 'shown')[-1].offset}-C2/shown"
    assert not found["alike"]
    assert found["clusters"]["C2"]["twice"] == {"count": 1, "examples": ["0-1-C1/shown"]}
    assert found["clusters"]["C2"]["out_of_order"] == {"count": 1, "examples": ["0-1-C1/shown"]}
    assert found["clusters"]["C1"]["missing"] == {"count": 1, "examples": [fresh]}
    assert found["altered"]["count"] == 0


def copied_by(some: Clusters, link: str) -> int:
    _, text = command("status", str(some.path), "-o", "json")
    (found,) = (row for row in json.loads(text) if row["link"] == link)
    rows = found["topics"].get("shown", {}).get("partitions", {}).values()
    return sum(row["copied"] for row in rows)


@pytest.mark.parametrize("rewind", [False, True])
def test_a_switch_with_records_that_were_not_forwarded(
    spark: SparkSession, five: Clusters, *, rewind: bool
) -> None:
    """C1 copies to C3, which forwards 10 of 30 records to C4 and dies. Without rewind C4 lacks 20
    until C3 is back, and gets them behind newer ones. With rewind it gets them from C1 in order,
    and C3 repeats them when it is back. There is no third outcome.
    """
    topic = f"switched-{rewind}".lower()
    status = f"_status-{topic}"
    config = five.write(FOUR, topics={"include": [topic]}, messages={"status_topic": status})
    create_topic(five.front("C1"), topic)
    records = [{"value": b"%d" % at} for at in range(40)]
    send(five.front("C1"), topic, records[:10])
    with running(spark, config, "C1", level=3), running(spark, config, "C3", level=1):
        wait_for(five.front("C4"), topic, 10)
    send(five.front("C1"), topic, records[10:30])
    with running(spark, config, "C1", level=3):
        wait_for(five.front("C3"), topic, 30)
    five.gateways["C3"].kill()
    switch = ["switch", str(five.path), "--cluster", "C1", "--level", "3", "--to", "C4"]
    switch += ["--rewind"] if rewind else []
    code, text = command(*switch)
    assert code == 0, text
    assert f"{topic}-0: 20 records, from offset 10 on, are not on the rest of the subtree" in text
    assert "nothing done" in text
    assert command(*switch, "--execute")[0] == 0
    send(five.front("C1"), topic, records[30:])
    with running(spark, config, "C1", level=3):
        expected = [*range(40)] if rewind else [*range(10), *range(30, 40)]
        found = wait_for(five.front("C4"), topic, len(expected))
        assert [int(record.value or b"-1") for record in found] == expected
    five.gateways["C3"].start()
    with running(spark, config, "C3", level=1), running(spark, config, "C1", level=3):
        late = wait_for(five.front("C4"), topic, 60 if rewind else 40)
    assert [int(record.value or b"-1") for record in late] == [*expected, *range(10, 30)]
