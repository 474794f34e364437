"""When a reader is through with a partition, without Kafka."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import repeat
from types import SimpleNamespace
from typing import Protocol, cast

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Message

from keyway.kafka import to_ends
from keyway.kafka.to_ends import read_to, records_to

EOF = KafkaError._PARTITION_EOF
Came = tuple[str, int, int | None]  # topic, offset, the error's code


class Told:
    """A record, an end or an error of partition 0."""

    def __init__(self, came: Came) -> None:
        self._topic, self._offset, self._code = came

    def topic(self) -> str:
        return self._topic

    def partition(self) -> int:
        return 0

    def offset(self) -> int:
        return self._offset

    def error(self) -> KafkaError | None:
        return None if self._code is None else KafkaError(self._code)


class Polled:
    """A consumer; each poll takes a second of `now_s`."""

    def __init__(self, came: Iterable[Came]) -> None:
        self._left = iter(came)
        self.now_s = 0.0

    def poll(self, _wait_s: float) -> Message | None:
        self.now_s += 1.0
        came = next(self._left, None)
        return None if came is None else cast(Message, Told(came))


class Reading(Protocol):
    def __call__(self, came: Iterable[Came], **ends: int) -> list[Came]: ...


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> Reading:
    """What comes up to the ends of the topics; it waits for 10 s."""

    def reading(came: Iterable[Came], **ends: int) -> list[Came]:
        consumer = Polled(came)
        monkeypatch.setattr(to_ends, "time", SimpleNamespace(monotonic=lambda: consumer.now_s))
        places = {(topic, 0): end for topic, end in ends.items()}
        found: list[Came] = []
        for message in read_to(cast(Consumer, consumer), places, wait_s=10.0):
            error, offset = message.error(), message.offset()
            assert offset is not None
            found.append((str(message.topic()), offset, None if error is None else error.code()))
        return found

    return reading


def records(topic: str, *offsets: int) -> list[Came]:
    return [(topic, offset, None) for offset in offsets]


def test_the_last_record_before_the_end(read: Reading) -> None:
    """A log that is written to all the time has no end for librdkafka."""
    ended = read(records("t", *range(100)), t=3)
    assert ended == records("t", 0, 1, 2)


def test_a_record_behind_markers_at_the_end(read: Reading) -> None:
    assert read(records("t", 0, 1, 4, 5), t=4) == records("t", 0, 1)


def test_markers_at_the_end_and_nothing_behind(read: Reading) -> None:
    ended = read([*records("t", 0, 1), ("t", 4, EOF)], t=4)
    assert ended == records("t", 0, 1)


def test_nothing_is_left_to_read(read: Reading) -> None:
    assert read([]) == []
    assert read([("t", 0, EOF)], t=0) == []


def test_each_partition_has_its_end(read: Reading) -> None:
    came = [*records("busy", 0, 1, 2, 3), *records("slow", 0), ("slow", 1, EOF)]
    ended = read(came, busy=2, slow=1)
    assert ended == [*records("busy", 0, 1), *records("slow", 0)]


def test_an_error_ends_its_partition_alone(read: Reading) -> None:
    denied = ("mute", 0, KafkaError.TOPIC_AUTHORIZATION_FAILED)
    came = [denied, *records("t", 0)]
    assert read(came, mute=9, t=1) == came


def test_silence_is_a_failure(read: Reading) -> None:
    with pytest.raises(KafkaException, match="_TIMED_OUT"):
        read(repeat(("busy", 7, None)), busy=3, silent=1)
    with pytest.raises(KafkaException, match="_TIMED_OUT"):
        read([], silent=1)


def test_of_the_records_alone_an_error_is_a_failure() -> None:
    consumer = cast(Consumer, Polled([("t", 0, KafkaError._TRANSPORT)]))
    with pytest.raises(KafkaException, match="_TRANSPORT"):
        list(records_to(consumer, {("t", 0): 1}, wait_s=1.0))
