"""Ranges that are read again: a partition of which that fails keeps no other waiting."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import cast

import pytest
from confluent_kafka import Consumer, KafkaError, Message, TopicPartition
from structlog.testing import capture_logs

from keyway.clusters.core.trust import CHECKSUM
from offsets import read_again
from offsets.core.model import ReadRange, Rows, Search
from offsets.errors import ClusterAway
from offsets.partitions import Partitions
from tests.rig.offsets_in_memory import FACTS, RECORDS, MemoryClient
from tests.unit.offsets.test_followed import columns

WELL, ILL = ("flights", 0), ("flights", 1)
DENIED = KafkaError.TOPIC_AUTHORIZATION_FAILED


class Got:
    """A record of the first partition, or an error of the second."""

    def __init__(self, place: tuple[str, int], offset: int, code: int | None = None) -> None:
        self._place, self._offset, self._code = place, offset, code

    def topic(self) -> str:
        return self._place[0]

    def partition(self) -> int:
        return self._place[1]

    def offset(self) -> int:
        return self._offset

    def timestamp(self) -> tuple[int, int]:
        return 1, 1_000

    def headers(self) -> None:
        return None

    def error(self) -> KafkaError | None:
        return None if self._code is None else KafkaError(self._code)


class Scripted:
    """A consumer that has the records of WELL. Of ILL it has nothing, or an error."""

    def __init__(self, code: int | None) -> None:
        self.code = code
        self.asked: list[set[tuple[str, int]]] = []
        self._left: list[Got] = []

    def assign(self, places: list[TopicPartition]) -> None:
        asked = {(place.topic, place.partition): place.offset for place in places}
        self.asked.append(set(asked))
        self._left = [Got(WELL, at) for at in range(asked.get(WELL, RECORDS), RECORDS)]
        if ILL in asked and self.code is not None:
            self._left.insert(0, Got(ILL, 0, self.code))

    def poll(self, _wait_s: float) -> Message | None:
        return cast(Message, self._left.pop(0)) if self._left else None

    def unassign(self) -> None:
        """The next range is assigned anew."""

    def close(self) -> None:
        """It has no connection."""


def first_of(range_: ReadRange) -> Search[int]:
    rows: Rows = yield range_
    return rows.offsets[0]


@contextmanager
def followed(consumer: Scripted) -> Iterator[tuple[Partitions, MemoryClient]]:
    """Both partitions are indexed, and nothing of them is in memory, as after a restart."""
    client = MemoryClient("A", now_ms=9_000)
    partitions = Partitions(client, seals=CHECKSUM)
    partitions.follow([WELL, ILL], {"flights": FACTS})
    for place in (WELL, ILL):
        partitions._followed[place].take(columns(*range(RECORDS)), RECORDS)
        partitions._followed[place].recent_from = RECORDS
        partitions._unread.leave(place)
    partitions._again._consumer = cast(Consumer, consumer)
    try:
        yield partitions, client
    finally:
        partitions.close()


@pytest.mark.parametrize("code", [DENIED, None], ids=["denied", "silent"])
def test_groups_of_other_partitions_go_on(
    monkeypatch: pytest.MonkeyPatch, code: int | None
) -> None:
    """One partition without a leader stopped all groups of its cluster."""
    monkeypatch.setattr(read_again, "REREAD_S_MAX", 0.05)
    consumer = Scripted(code)
    with followed(consumer) as (partitions, client), capture_logs() as logs:
        monkeypatch.setattr(client, "without_leader", lambda _: set())
        searches = {at: (at, first_of(ReadRange(7, RECORDS - 1))) for at in (WELL, ILL)}
        assert partitions.all_answered(searches) == {WELL: 7}
        assert partitions.index(WELL) is not None
        assert partitions.index(ILL) is None, "its groups wait"
        assert [(line["event"], line["partition"]) for line in logs] == [
            ("range_not_read_again", "flights-1")
        ]
        with pytest.raises(ClusterAway, match="A: a range could not be read again: flights-1: "):
            partitions.answered(ILL, first_of(ReadRange(7, 9)))
        consumer.code = KafkaError._PARTITION_EOF
        partitions._again._rests[ILL] = read_again._Rest(0.0, "it has rested")
        assert partitions.index(ILL) is not None
        partitions.all_answered({ILL: (ILL, ended())})
        assert partitions._again.why_not(ILL) == ""
        assert partitions._again._rests == {}


def ended() -> Search[None]:
    rows = yield ReadRange(7, 9)
    assert not len(rows), "retention took them"


def test_nobody_waits_for_a_leader_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(read_again, "REREAD_S_MAX", 0.05)
    consumer = Scripted(None)
    with followed(consumer) as (partitions, client):
        monkeypatch.setattr(client, "without_leader", lambda _: {ILL[1]})
        for rested in range(2):
            searches = {at: (at, first_of(ReadRange(7, RECORDS - 1))) for at in (WELL, ILL)}
            assert partitions.all_answered(searches) == {WELL: 7}
            assert (ILL in consumer.asked[-1]) == (rested == 0)
            partitions._again._rests[ILL] = read_again._Rest(0.0, "it has rested")
