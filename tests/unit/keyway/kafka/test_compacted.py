"""A state topic over a scripted client: nothing is lost, neither by a full queue nor by a fault."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from keyway.kafka import compacted
from keyway.kafka.compacted import CompactedTopic

EOF = KafkaError._PARTITION_EOF


class Bounded:
    """A producer whose queue holds 100,000 records, as librdkafka's."""

    def __init__(self, _settings: object) -> None:
        self.queued = self.sent = 0
        made.append(self)

    def produce(self, *_record: object, on_delivery: Callable[..., None]) -> None:
        del on_delivery
        if self.queued == 100_000:
            raise BufferError("Local: Queue full")
        self.queued += 1

    def poll(self, _seconds: float) -> int:
        self.sent += 1
        self.queued -= 1
        return 1

    def flush(self, _seconds: float) -> int:
        self.sent += self.queued
        self.queued = 0
        return 0


made: list[Bounded] = []


def test_more_records_than_a_producer_queues(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compacted, "Producer", Bounded)
    CompactedTopic({}, "t").write((b"%d" % at, b"") for at in range(100_007))
    assert made.pop().sent == 100_007


class Log(CompactedTopic):
    """Reads `records`, three messages at a time."""

    def __init__(self, *records: object) -> None:
        super().__init__({}, "t")
        self.records = list(records)
        self.starts: list[int] = []

    def end(self) -> int:
        return len(self.records)

    def _reading(self) -> Any:
        self.starts.append(self._position)
        return SimpleNamespace(at=self._position, close=lambda: None)


def message(log: Log, at: int) -> Any:
    record = "marker" if at == len(log.records) else log.records[at]
    code = EOF if record == "marker" else record if isinstance(record, int) else None
    found = None if code is None else KafkaError(code)
    # A marker is no message: behind the last record only the partition's end is told.
    offset = len(log.records) if code == EOF else at
    return SimpleNamespace(
        error=lambda: found, offset=lambda: offset, key=lambda: b"k", value=lambda: log.records[at]
    )


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> Callable[[Log], list[object]]:
    def reading(log: Log) -> list[object]:
        def consumed(consumer: SimpleNamespace, _wait_s: float) -> list[Any]:
            places = range(consumer.at, min(consumer.at + 3, len(log.records) + 1))
            consumer.at += 3
            return [message(log, at) for at in places]

        monkeypatch.setattr(compacted, "consumed", consumed)
        taken: list[object] = []
        log.read(lambda _key, value: taken.append(value))
        return taken

    return reading


def test_the_next_read_goes_on(read: Callable[[Log], list[object]]) -> None:
    log = Log(b"a", b"b", b"c", b"d")
    assert read(log) == [b"a", b"b", b"c", b"d"]
    assert read(log) == []
    log.records = [b"new"]  # the topic was deleted and made anew
    assert read(log) == [b"new"]
    assert log.starts == [0, 0]


def test_a_marker_behind_the_last_record(read: Callable[[Log], list[object]]) -> None:
    """Of a transaction: no message comes for it."""
    assert read(Log(b"a", b"b", "marker")) == [b"a", b"b"]


def test_a_fault_in_a_batch_skips_no_record(read: Callable[[Log], list[object]]) -> None:
    denied = KafkaError.TOPIC_AUTHORIZATION_FAILED
    log = Log(b"a", denied, b"c")
    with pytest.raises(KafkaException):
        read(log)
    log.records[1] = b"b"
    assert read(log) == [b"b", b"c"]
    assert log.starts == [0, 1]
