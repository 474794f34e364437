"""A transaction's records sent one by one, so that the target names the ones that it refuses."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from confluent_kafka import KafkaError, KafkaException

from spark.streaming.orders import REFUSALS, Partition, Writing
from spark.streaming.writers import Writer

REASON_HEADER, ORIGIN_HEADER = "keyway-refused-reason", "keyway-refused-origin"

Refusals = Mapping[int, KafkaError]  # by offset


@dataclass(slots=True)
class _Failures:
    """What became of the records that failed."""

    refused: dict[int, KafkaError] = field(default_factory=dict)
    others: list[KafkaError] = field(default_factory=list)

    def of(self, offset: int) -> Callable[[KafkaError | None, object], None]:
        def on_delivery(error: KafkaError | None, _message: object) -> None:
            if error is not None and error.code() in REFUSALS:
                self.refused.setdefault(offset, error)
            elif error is not None:
                self.others.append(error)

        return on_delivery


def sent_singly(
    writer: Writer,
    writing: Writing,
    place: Partition,
    rows: Iterable[tuple[int, tuple[Any, ...]]],
    known: Refusals,
) -> dict[int, KafkaError]:
    """Sends `rows` (offset; topic, key, value, timestamp, headers), those of `known` as the policy
    says. Returns the records that are refused, by offset; there may be more of them. Raises
    KafkaException for any other failure.
    """
    told = _Failures()
    producer = writer.producer
    for offset, (topic, key, value, timestamp_ms, headers) in rows:
        if topic is None or (offset in known and writing.on_refused == "skip"):
            continue
        where: dict[str, Any] = {"partition": place[1], "timestamp": timestamp_ms}
        if offset in known:  # The timestamp may be what is refused, so a letter has its own.
            topic, where = writing.dead_letter_topic, {}
            headers = [*headers, *_added((*place, offset), timestamp_ms, known[offset])]
        try:
            producer.produce(
                topic, value, key, headers=headers, on_delivery=told.of(offset), **where
            )
            producer.poll(0)
        except KafkaException as error:
            told.of(offset)(error.args[0], None)
        if told.refused or told.others:
            break
    writer.flush(failed=lambda: bool(told.refused or told.others))
    if told.others and not told.refused:
        raise KafkaException(told.others[0])
    return told.refused


def _added(
    source: tuple[str, int, int], timestamp_ms: int, error: KafkaError
) -> tuple[tuple[str, bytes], tuple[str, bytes]]:
    """The headers that a dead letter has besides those of its record."""
    topic, partition, offset = source
    origin = {
        "topic": topic,
        "partition": partition,
        "offset": offset,
        "timestamp_ms": timestamp_ms,
    }
    return (
        (REASON_HEADER, str(error.str()).encode()),
        (ORIGIN_HEADER, json.dumps(origin).encode()),
    )
