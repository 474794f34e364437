"""The records at the end of a topic, read by one who never joins a group."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import cast

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from keyway.clusters.core.copies import COPY_HEADER, Claim, parse
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
        for message in to_the_end(consumer):
            for name, value in headers_of(message):
                if name == COPY_HEADER and value is not None and isinstance(parse(value), Claim):
                    yield value


def to_the_end(consumer: Consumer) -> Iterator[Message]:
    """The records from its position to the end of the one partition that is assigned; it must have
    `enable.partition.eof`. Raises KafkaException.
    """
    while True:
        # Not `consume`: it waits for as many as it is asked for, also behind the last.
        message = consumer.poll(ANSWER_S)
        if message is None:
            raise KafkaException(KafkaError(KafkaError._TIMED_OUT))
        error = message.error()
        if error is not None:
            if error.code() == KafkaError._PARTITION_EOF:
                return
            raise KafkaException(error)
        yield message


def headers_of(message: Message) -> list[tuple[str, bytes | None]]:
    """A record's headers, in order."""
    found = cast("list[tuple[str, bytes | None]] | None", message.headers())
    return found or []
