"""Answers of Kafka that do not come."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager

import pytest
from confluent_kafka import KafkaError, KafkaException, TopicPartition

from keyway.clusters.config import Cluster
from spark.streaming import kafka
from spark.streaming.core.survey import Position
from spark.streaming.kafka import KafkaSide, answered, jaas_text
from spark.streaming.limits import POSITIONS_AT_ONCE


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


def test_no_answer_is_an_error_of_kafka(monkeypatch: pytest.MonkeyPatch) -> None:
    """A TimeoutError ended the link, where a cluster that is away is waited for."""
    monkeypatch.setattr(kafka, "ANSWER_S", 0.01)
    with pytest.raises(KafkaException) as raised:
        answered(Future[None]())
    assert raised.value.args[0].code() == KafkaError._TIMED_OUT
    come = Future[int]()
    come.set_result(4)
    assert answered(come) == 4


class Committing:
    """A coordinator that refuses a commit of many positions, as Kafka does: it is one batch."""

    def __init__(self) -> None:
        self.taken: dict[tuple[str, int], int] = {}

    def commit(self, offsets: list[TopicPartition], **_: object) -> list[TopicPartition]:
        if len(offsets) > POSITIONS_AT_ONCE:
            raise KafkaException(KafkaError(KafkaError.UNKNOWN))
        self.taken |= {(it.topic, it.partition): it.offset for it in offsets}
        return offsets


def test_positions_of_a_thousand_topics_are_set(monkeypatch: pytest.MonkeyPatch) -> None:
    """Kafka took 10,000 in one commit for an unknown error: no switch, no link went on."""
    coordinator = Committing()

    @contextmanager
    def consumer(_: KafkaSide, __: str) -> Iterator[Committing]:
        yield coordinator

    monkeypatch.setattr(KafkaSide, "consumer", consumer)
    side = KafkaSide(Cluster(name="a", bootstrap_servers="127.0.0.1:1"))
    places = [(f"topic-{topic}", it) for topic in range(100) for it in range(11)]
    side.set_positions("link", {it: Position(7, "id") for it in places})
    assert coordinator.taken == dict.fromkeys(places, 7)
