"""The records at the end of a topic, read by one who never joins a group."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import cast

from confluent_kafka import Message, TopicPartition

from keyway.clusters.core.copies import COPY_HEADER, Claim, parse
from keyway.kafka.to_ends import records_to
from spark.streaming.limits import ANSWER_S
from spark.streaming.writers import positions_of


def read_back(
    client: Mapping[str, str], topic: str, partition: int, records_max: int
) -> Iterator[bytes]:
    """The well-formed copy headers among the last `records_max` offsets of a partition."""
    with positions_of({**client, "enable.partition.eof": "true"}, client["group.id"]) as consumer:
        where = TopicPartition(topic, partition)
        low, high = consumer.get_watermark_offsets(where, ANSWER_S)
        consumer.assign([TopicPartition(topic, partition, max(low, high - records_max))])
        for message in records_to(consumer, {(topic, partition): high}, wait_s=ANSWER_S):
            for name, value in headers_of(message):
                if name == COPY_HEADER and value is not None and isinstance(parse(value), Claim):
                    yield value


def headers_of(message: Message) -> list[tuple[str, bytes | None]]:
    """A record's headers, in order."""
    found = cast("list[tuple[str, bytes | None]] | None", message.headers())
    return found or []
