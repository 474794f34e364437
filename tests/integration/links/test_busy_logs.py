"""Logs that are written to all the time: librdkafka never tells where they end."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from gateway.embedded.kafka import KafkaCluster
from keyway.clusters.config import Cluster
from spark.pipelines.sample import newest_records
from spark.streaming.read_back import read_back
from spark.streaming.unreadable import TIMESTAMP_MS_MAX, unreadable
from tests.rig.kafka import create_topic, produce
from tests.rig.link_by_hand import A, B, LinkByHand
from tests.rig.several_clusters import send
from tests.rig.steady_writes import steady_records

pytestmark = pytest.mark.integration


def test_the_newest_records_of_a_topic(kafka: KafkaCluster, topic: Callable[..., str]) -> None:
    """`keyway pipeline check` read on, and kept every record in memory."""
    name = topic()
    produce(kafka.bootstrap_servers, name, [(None, b"v")] * 10)
    cluster = Cluster(name="c", bootstrap_servers=kafka.bootstrap_servers)
    with steady_records(kafka.bootstrap_servers, name) as goes_on:
        found = newest_records(cluster, name, 5)
        assert goes_on(), "it did not wait for a lull"
    assert len(found) == 5
    assert [record.offset for record in found] == sorted(record.offset for record in found)[::-1]


def test_the_copies_at_the_end_of_a_target(
    kafka: KafkaCluster, tmp_path: Path, fresh_name: Callable[[str], str]
) -> None:
    """A task of `at_least_once` that was taken up never began to write."""
    link = LinkByHand(kafka.bootstrap_servers, tmp_path, fresh_name("run"))
    link.create("t", A, B)
    link.copy("t", [b"0", b"1", b"2"], B)
    name, settings = link.name(B, "t"), {**link.side(B).settings, "group.id": "any"}
    with steady_records(link.front, name) as goes_on:
        assert len(list(read_back(settings, name, 0, records_max=1_000))) == 3
        assert goes_on(), "it did not wait for a lull"


def test_a_timestamp_that_spark_cannot_read(
    kafka: KafkaCluster, tmp_path: Path, fresh_name: Callable[[str], str]
) -> None:
    """The broker's index knows the first one, which may be passed already."""
    link = LinkByHand(kafka.bootstrap_servers, tmp_path, fresh_name("run"))
    name = link.name(A, "t")
    create_topic(link.front, name, config={"message.timestamp.after.max.ms": str(2**63 - 1)})
    send(link.front, name, [{"value": b"v", "timestamp": TIMESTAMP_MS_MAX + 1}])
    with steady_records(link.front, name) as goes_on:
        assert unreadable(link.source, {(name, 0): 0}) == {(name, 0): 0}
        assert unreadable(link.source, {(name, 0): 1}) == {}
        assert goes_on(), "it did not wait for a lull"
