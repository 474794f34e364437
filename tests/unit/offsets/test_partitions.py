"""The partitions that are followed on one cluster."""

from __future__ import annotations

from dataclasses import replace
from typing import cast

import pytest
from confluent_kafka import KafkaError, Message
from structlog.testing import capture_logs

from keyway.clusters.core.trust import CHECKSUM
from offsets.core.model import Cut
from offsets.core.stored import packed, unpacked
from offsets.partitions import Partitions
from tests.rig.offsets_in_memory import FACTS, RECORDS, MemoryClient
from tests.unit.offsets.test_followed import columns


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


class Record:
    """As the consumer gets it; or the log's end."""

    def __init__(self, offset: int, epoch: int, error: KafkaError | None = None) -> None:
        self._offset, self._epoch, self._error = offset, epoch, error

    def topic(self) -> str:
        return "flights"

    def partition(self) -> int:
        return 0

    def offset(self) -> int:
        return self._offset

    def leader_epoch(self) -> int:
        return self._epoch

    def timestamp(self) -> tuple[int, int]:
        return 1, 1_000

    def headers(self) -> None:
        return None

    def error(self) -> KafkaError | None:
        return self._error


def records(first: int, end: int, epoch: int) -> list[Message]:
    return [cast(Message, Record(offset, epoch)) for offset in range(first, end)]


def end_at(offset: int) -> Message:
    return cast(Message, Record(offset, -1, KafkaError(KafkaError._PARTITION_EOF)))


@pytest.mark.parametrize(
    "again", [records(3, RECORDS + 9, 1), [end_at(60), *records(60, RECORDS + 9, 1)]]
)
def test_a_log_that_is_read_again_has_lost_its_end(again: list[Message]) -> None:
    """Other records had taken the places of the lost ones, and the index knew the lost ones there:
    groups were put behind records that they had not processed.
    """
    client = MemoryClient("A", now_ms=9_000)
    partitions = Partitions(client, seals=CHECKSUM)
    place = ("flights", 0)
    partitions.follow([place], {"flights": FACTS})
    partitions._take(records(0, RECORDS, 0))
    index = partitions.index(place)
    assert index is not None
    assert index.behind_last == (RECORDS, 0)
    index.forget(3)
    partitions._take(records(1, 3, 0))  # they waited in the consumer's queue
    assert partitions.index(place) is index
    with capture_logs() as logs:
        partitions._take([*records(RECORDS, RECORDS + 2, 1), end_at(RECORDS + 4), *again])
    assert [(line["event"], line["first"]) for line in logs] == [("log_was_cut", ["flights-0"])]
    assert partitions.index(place) is None
    assert partitions.outdated == {"flights"}
    partitions.follow([place], {"flights": FACTS})
    partitions._take(records(0, RECORDS, 1))
    anew = partitions.index(place)
    assert anew is not None
    assert (anew.former_end, anew.behind_last) == (RECORDS, (RECORDS, 1))
    partitions.close()


def test_a_new_leader_is_asked_whether_it_has_all_that_was_read() -> None:
    """The consumer finds it out, too, but may not be connected yet when a group is moved."""
    client = MemoryClient("A", now_ms=9_000)
    partitions = Partitions(client, seals=CHECKSUM)
    place = ("flights", 0)
    partitions.follow([place], {"flights": FACTS})
    partitions._take(records(0, RECORDS, 0))
    index = partitions.index(place)
    assert index is not None
    client.epoch = client.epoch + 1
    for is_cut, epoch in ((None, 0), (False, 1)):
        client.is_cut = is_cut
        partitions.look([place])
        assert (partitions.index(place), index.epoch) == (index, epoch)
    client.is_cut = True
    partitions.look([place])
    assert partitions.index(place) is index, "the same leader is not asked again"
    client.epoch = 2
    partitions.look([place])
    assert partitions.index(place) is None
    partitions.close()


def test_a_log_that_was_cut_is_remembered_for_the_records_in_place_of_the_lost_ones() -> None:
    client = MemoryClient("A", now_ms=9_000)
    cuts: dict[tuple[str, int], Cut] = {}
    partitions = Partitions(client, seals=CHECKSUM, cuts=cuts)
    place, life = ("flights", 0), FACTS.topic_id
    partitions.follow([place], {"flights": FACTS})
    partitions._take(records(0, RECORDS, 0))
    client.epoch, client.is_cut = 3, True
    partitions.look([place])
    assert partitions.found_cut == {place: Cut(life, RECORDS, 0)}
    cuts |= partitions.found_cut
    partitions.found_cut.clear()
    partitions.follow([place], {"flights": FACTS})
    partitions._take([*records(0, 60, 0), *records(60, RECORDS + 9, 3)])
    index = partitions.index(place)
    assert index is not None
    assert index.replaced == (60, RECORDS - 1)
    again = unpacked(packed(index))
    assert (again.cut, again.cut_at) == (index.cut, 60), "over a restart"
    client.topic_id = "second-life"
    partitions.look([place])
    assert partitions.found_cut == {}, "that is no cut"
    partitions.follow([place], {"flights": replace(FACTS, topic_id="second-life")})
    partitions._take(records(0, RECORDS, 4))
    index = partitions.index(place)
    assert index is not None
    assert index.cut is None, "of another life"
    partitions.close()
