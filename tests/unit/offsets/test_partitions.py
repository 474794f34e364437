"""The rows of a followed partition."""

from __future__ import annotations

from typing import cast

import pytest
from confluent_kafka import Consumer, KafkaError, Message
from structlog.testing import capture_logs

from keyway.clusters.core.trust import CHECKSUM
from offsets.core.index import PartitionIndex
from offsets.core.model import Stream
from offsets.errors import ClusterAway
from offsets.partitions import Partitions, _Columns, _Followed
from tests.rig.offsets_in_memory import FACTS, RECORDS, MemoryClient

OWN = Stream("A", "topic", 0)


def columns(*offsets: int) -> _Columns:
    found = _Columns()
    for offset in offsets:
        found.add(offset, 1_000, OWN, offset)
    return found


def test_records_fetched_before_the_log_start_passed_them_are_left_out() -> None:
    """They waited in the consumer's queue while DeleteRecords or retention took them."""
    followed = _Followed(PartitionIndex(OWN, 0))
    followed.take(columns(0, 1), 2)
    followed.index.forget(5)
    followed.take(columns(2, 3, 4), 5)
    assert (followed.index.end, len(followed.index)) == (5, 0)
    followed.take(columns(4, 5, 6), 7)
    assert (list(followed.index.firsts), list(followed.index.records)) == ([5], [2])
    kept = followed.kept(5, 6)
    assert kept is not None
    assert list(kept.offsets) == [5, 6]


def test_a_partition_without_a_leader_stays_and_keeps_no_other_waiting() -> None:
    """One of 10,000 whose brokers were away failed every round of a cluster."""
    client = MemoryClient("A", now_ms=9_000)
    partitions = Partitions(client, seals=CHECKSUM)
    both = [("fares", 0), ("flights", 0)]
    client.leaderless = {both[0]}
    partitions.follow(both, dict.fromkeys(("fares", "flights"), FACTS))
    assert list(partitions._followed) == [both[1]], "it is followed once it has a leader"
    client.leaderless = set(both)
    assert partitions.read_to_ends(for_s=1.0), "a command plans the others"
    client.leaderless = set()
    partitions.follow(both, dict.fromkeys(("fares", "flights"), FACTS))
    client.leaderless = {both[1]}
    partitions._followed[both[1]].take(columns(*range(RECORDS)), RECORDS)
    partitions.look(both)
    assert sorted(partitions._followed) == both, "what is not told does not mean that it is gone"
    client.topic_id = "second-life"
    partitions.look(both)
    assert list(partitions._followed) == []
    partitions.close()


class Denied:
    """What a consumer gets from a topic that its user may not read."""

    def topic(self) -> str:
        return "flights"

    def partition(self) -> int:
        return 0

    def offset(self) -> int:
        return 0

    def error(self) -> KafkaError:
        return KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED)


class Again:
    """A consumer that gets nothing else."""

    def assign(self, _places: object) -> None:
        pass

    def poll(self, _wait_s: float) -> Message:
        return cast(Message, Denied())

    def unassign(self) -> None:
        pass


def test_a_range_that_may_not_be_read_again_is_waited_for_no_longer() -> None:
    """Each round of its cluster took half a minute."""
    client = MemoryClient("A", now_ms=9_000)
    partitions = Partitions(client, seals=CHECKSUM)
    partitions._again = cast(Consumer, Again())
    with pytest.raises(ClusterAway, match="Topic authorization failed"):
        partitions._read_again({("flights", 0): (0, 3)})


def test_a_topic_that_may_not_be_read_is_named_once() -> None:
    """Its groups were "not indexed yet" for good, and nothing said why."""
    client = MemoryClient("A", now_ms=9_000)
    partitions = Partitions(client, seals=CHECKSUM)
    partitions.follow([("flights", 0)], {"flights": FACTS})
    with capture_logs() as logs:
        for _ in range(2):
            partitions._take([cast(Message, Denied())])
    assert [(line["event"], line["topic"]) for line in logs] == [("topic_not_readable", "flights")]
    assert partitions.index(("flights", 0)) is None
    partitions.close()
