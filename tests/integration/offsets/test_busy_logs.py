"""Logs that are written to all the time: librdkafka never tells where they end."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from contextlib import closing

import pytest
from confluent_kafka import Consumer, TopicPartition

from gateway.embedded.kafka import KafkaCluster
from keyway.clusters.config import Cluster
from keyway.clusters.core.trust import CHECKSUM
from offsets.client import ClusterClient
from offsets.commits import TailedCommits
from offsets.partitions import Partitions
from tests.rig.kafka import produce
from tests.rig.steady_writes import steady_records, steady_writes

pytestmark = pytest.mark.integration
RECORDS = 100


@pytest.fixture
def client(kafka: KafkaCluster) -> ClusterClient:
    return ClusterClient(Cluster(name="A", bootstrap_servers=kafka.bootstrap_servers))


def test_a_topic_is_indexed(
    kafka: KafkaCluster, client: ClusterClient, topic: Callable[..., str]
) -> None:
    """Its groups were not distributed as long as somebody wrote, and nothing told it."""
    name = topic()
    produce(kafka.bootstrap_servers, name, [(None, b"v")] * RECORDS)
    with (
        closing(Partitions(client, seals=CHECKSUM)) as partitions,
        steady_records(kafka.bootstrap_servers, name) as goes_on,
    ):
        partitions.follow([(name, 0)], client.facts([name]))
        while partitions.behind and goes_on():
            partitions.read(for_s=0.1)
        index = partitions.index((name, 0))
        assert goes_on(), "it did not wait for a lull"
        assert index is not None
        assert index.end >= RECORDS
        assert partitions.read_to_ends(for_s=60.0), "as a command does"
        assert goes_on()


def test_commits_are_read(
    kafka: KafkaCluster,
    client: ClusterClient,
    topic: Callable[..., str],
    fresh_name: Callable[[str], str],
) -> None:
    """One group that commits all the time kept all others from being distributed."""
    name, group, numbers = topic(), fresh_name("group"), itertools.count()
    settings = {"bootstrap.servers": kafka.bootstrap_servers, "group.id": group}
    committing = Consumer({**settings, "enable.auto.commit": False})

    def commit() -> None:
        at = TopicPartition(name, 0, next(numbers))
        committing.commit(offsets=[at], asynchronous=False)

    source = TailedCommits(client, lambda wanted: wanted == group)
    with closing(committing), closing(source), steady_writes(commit) as goes_on:
        while not source.caught_up and goes_on():
            source.poll()
        assert goes_on(), "it did not wait for a lull"
        assert source.latest((group, name, 0)) is not None
