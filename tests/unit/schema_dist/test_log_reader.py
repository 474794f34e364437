"""A `_schemas` that was created a moment ago is waited for, without an error."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest
from confluent_kafka import KafkaError, KafkaException

from schema_dist import log_reader
from schema_dist.errors import AwayError
from schema_dist.log_reader import LogReader


class Young:
    """A consumer whose broker does not know the partition for `unknown` questions."""

    def __init__(self, unknown: int) -> None:
        self.unknown = unknown

    def list_topics(self, topic: str, **_: float) -> Any:
        return SimpleNamespace(topics={topic: SimpleNamespace(error=None, partitions={0: None})})

    def get_watermark_offsets(self, _place: object, **_: float) -> tuple[int, int]:
        if self.unknown:
            self.unknown -= 1
            raise KafkaException(KafkaError(KafkaError._UNKNOWN_PARTITION))
        return 0, 0

    def assign(self, _places: object) -> None:
        """From the beginning."""


def reader(consumer: Young, monkeypatch: pytest.MonkeyPatch) -> LogReader:
    made = LogReader({"bootstrap.servers": "127.0.0.1:1"}, "_schemas")
    made.close()
    made._consumer = cast(Any, consumer)
    made._position = 0
    monkeypatch.setattr(made, "_is_made_anew", lambda: False)
    return made


def test_a_topic_just_created_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_reader, "CREATED_POLL_S", 0.0)
    assert len(asyncio.run(reader(Young(3), monkeypatch).read())) == 0


def test_a_partition_that_stays_unknown_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_reader, "CREATED_S_MAX", 0.0)
    with pytest.raises(AwayError, match="Unknown partition"):
        asyncio.run(reader(Young(10**9), monkeypatch).read())
