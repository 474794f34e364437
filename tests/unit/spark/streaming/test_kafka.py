"""Questions of a thousand topics to Kafka, and passwords for its Java client."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import pytest
from confluent_kafka import (
    OFFSET_BEGINNING,
    OFFSET_END,
    KafkaError,
    KafkaException,
    TopicPartition,
)

from keyway.clusters.config import Cluster
from spark.streaming.core.survey import Position
from spark.streaming.kafka import KafkaSide, jaas_text
from spark.streaming.limits import OFFSETS_AT_ONCE, POSITIONS_AT_ONCE


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("plain", '"plain"'),
        ("pässwörd€😀", '"pässwörd€😀"'),
        ('a"b\\c', '"a\\"b\\\\c"'),
        ("a\nb", '"a\\012b"'),
    ],
)
def test_a_password_as_java_s_parser_reads_it(text: str, expected: str) -> None:
    """It knows no `\\u`, so a password that JSON had escaped was another one."""
    assert jaas_text(text) == expected


PLACE = ("t", 0)


class Committing:
    """A coordinator that refuses a commit of many positions, as Kafka does: it is one batch."""

    def __init__(self) -> None:
        self.taken: dict[tuple[str, int], int] = {}

    def commit(self, offsets: list[TopicPartition], **_: object) -> list[TopicPartition]:
        if len(offsets) > POSITIONS_AT_ONCE:
            raise KafkaException(KafkaError(KafkaError.UNKNOWN))
        self.taken |= {(offset.topic, offset.partition): offset.offset for offset in offsets}
        return offsets


def test_positions_of_a_thousand_topics_are_set(monkeypatch: pytest.MonkeyPatch) -> None:
    """Kafka took 10,000 in one commit for an unknown error: no switch, no link went on."""
    coordinator = Committing()

    @contextmanager
    def consumer(_: KafkaSide, __: str) -> Iterator[Committing]:
        yield coordinator

    monkeypatch.setattr(KafkaSide, "consumer", consumer)
    side = KafkaSide(Cluster(name="a", bootstrap_servers="127.0.0.1:1"))
    places = [(f"topic-{topic}", partition) for topic in range(100) for partition in range(11)]
    side.set_positions("link", {place: Position(7, "id") for place in places})
    assert coordinator.taken == dict.fromkeys(places, 7)


class NotYet(Committing):
    """A broker that is no coordinator yet when it is asked for the first and the second time."""

    def __init__(self) -> None:
        super().__init__()
        self.asked = 0

    def commit(self, offsets: list[TopicPartition], **_: object) -> list[TopicPartition]:
        self.taken |= {(offset.topic, offset.partition): offset.offset for offset in offsets}
        return self.committed(offsets)

    def committed(self, places: list[TopicPartition], **_: object) -> list[TopicPartition]:
        self.asked += 1
        if self.asked <= 2:
            raise KafkaException(KafkaError(KafkaError.NOT_COORDINATOR))
        return [TopicPartition(place.topic, place.partition, 7) for place in places]


def test_a_coordinator_that_was_just_made_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """Commands failed on a new cluster, and a link on one that was restarted waited a second."""
    coordinator = NotYet()

    @contextmanager
    def consumer(_: KafkaSide, __: str) -> Iterator[Committing]:
        yield coordinator

    monkeypatch.setattr(KafkaSide, "consumer", consumer)
    monkeypatch.setattr("spark.streaming.kafka.sleep", lambda _: None)
    side = KafkaSide(Cluster(name="a", bootstrap_servers="127.0.0.1:1"))
    places = [("t", 0), ("t", 1)]
    assert side.positions("link", places) == dict.fromkeys(places, Position(7, ""))
    coordinator.asked = 0
    side.set_positions("link", {place: Position(8, "id") for place in places})
    assert coordinator.taken == dict.fromkeys(places, 8)
    assert coordinator.asked == 3


class Succeeded(Committing):
    """A coordinator that is none yet at the first commit. Before the next one the link's next
    process has committed.
    """

    def __init__(self) -> None:
        super().__init__()
        self.taken[PLACE] = 7

    def commit(self, offsets: list[TopicPartition], **_: object) -> list[TopicPartition]:
        if self.taken[PLACE] == 7:
            self.taken[PLACE] = 9
            raise KafkaException(KafkaError(KafkaError.NOT_COORDINATOR))
        return super().commit(offsets)

    def committed(self, places: list[TopicPartition], **_: object) -> list[TopicPartition]:
        return [
            TopicPartition(at.topic, at.partition, self.taken[at.topic, at.partition])
            for at in places
        ]


def test_a_commit_that_is_repeated_sets_no_successor_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """The positions were looked at once, and the commit was repeated for half a minute."""
    coordinator = Succeeded()

    @contextmanager
    def consumer(_: KafkaSide, __: str) -> Iterator[Committing]:
        yield coordinator

    monkeypatch.setattr(KafkaSide, "consumer", consumer)
    monkeypatch.setattr("spark.streaming.kafka.sleep", lambda _: None)
    side = KafkaSide(Cluster(name="a", bootstrap_servers="127.0.0.1:1"))
    with pytest.raises(KafkaException, match=r"moved meanwhile, .*: t-0"):
        side.set_positions("link", {PLACE: Position(8, "id")}, {PLACE: Position(7, "")})
    assert coordinator.taken == {PLACE: 9}


class Leaders:
    """A consumer that knows as many partitions as there were when it was made, as librdkafka does;
    it looks each partition of a question up in the list of all.
    """

    def __init__(self, partitions: int) -> None:
        self.partitions = partitions
        self.closed = self.away = False
        self.most = 0

    def poll(self, _: float) -> None:
        assert not self.closed

    def offsets_for_times(self, wanted: list[TopicPartition], _: float) -> list[TopicPartition]:
        self.most = max(self.most, len(wanted))
        if self.away:
            raise KafkaException(KafkaError(KafkaError._TIMED_OUT))
        if any(place.partition >= self.partitions for place in wanted):
            raise KafkaException(KafkaError(KafkaError._UNKNOWN_PARTITION))
        return [
            TopicPartition(place.topic, place.partition, 100 + place.offset) for place in wanted
        ]

    def close(self) -> None:
        self.closed = True


def test_the_end_of_a_new_partition_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    """The kept consumer never heard of it, and the link waited for ever."""
    partitions, made, levels = 600, list[Leaders](), list[object]()

    def consumer(_: KafkaSide, __: str, settings: Mapping[str, object]) -> Leaders:
        made.append(Leaders(partitions))
        levels.append(settings["isolation.level"])
        return made[-1]

    monkeypatch.setattr(KafkaSide, "_consumer", consumer)
    side = KafkaSide(Cluster(name="a", bootstrap_servers="127.0.0.1:1"))

    def places() -> list[tuple[str, int]]:
        return [("t", partition) for partition in range(partitions)]

    assert side.log_ends(places()) == dict.fromkeys(places(), 100 + OFFSET_END)
    assert side.log_starts(places()) == dict.fromkeys(places(), 100 + OFFSET_BEGINNING)
    assert [asker.most for asker in made] == [OFFSETS_AT_ONCE]
    partitions += 1
    assert side.log_ends(places()).keys() == set(places())
    assert [asker.closed for asker in made] == [True, False]
    with pytest.raises(KafkaException):
        side.log_ends([("t", partitions)])
    assert side.log_ends(places()).keys() == set(places()), "and one that fails is not kept"
    made[-1].away, count = True, len(made)
    with pytest.raises(KafkaException):
        side.log_ends(places())
    assert len(made) == count, "a cluster that is away is not waited for twice"
    assert set(levels) == {"read_committed"}
    assert side.high_watermarks(places()) == dict.fromkeys(places(), 100 + OFFSET_END)
    assert levels[count:] == ["read_uncommitted"]
