"""Reads partitions to the ends that they had at one moment.

librdkafka tells that a partition has ended (`_PARTITION_EOF`) when a fetch of it brings nothing. A
fetch waits for records, so that never happens to a partition that is written to all the time. A
reader is through with a partition at the first record at or behind the last offset before the end.
Where nothing follows the end, its last offsets may be markers and aborted records, which no reader
gets: then librdkafka's word counts.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping

from confluent_kafka import Consumer, KafkaError, KafkaException, Message

from keyway.kafka.log_ends import Partition

NOT_KNOWN = 2**63 - 1  # the end of a partition without a leader: librdkafka's word alone counts


class Unread:
    """Partitions that are not read to their ends yet."""

    def __init__(self, ends: Mapping[Partition, int] | None = None) -> None:
        self.ends = dict(ends or {})

    def read(self, place: Partition, message: Message) -> None:
        """The message, also one that tells an end, was taken."""
        error, offset = message.error(), message.offset()
        if error is None and offset is not None:
            self.reached(place, offset + 1)
        elif error is not None and error.code() == KafkaError._PARTITION_EOF:
            self.leave(place)

    def reached(self, place: Partition, position: int) -> None:
        if position >= self.ends.get(place, NOT_KNOWN):
            self.leave(place)

    def leave(self, place: Partition) -> None:
        self.ends.pop(place, None)


def read_to(
    consumer: Consumer, ends: Mapping[Partition, int] | Unread, *, wait_s: float
) -> Iterator[Message]:
    """The records of the assigned partitions before `ends`. A message with an error is the last of
    its partition; the caller judges it. The consumer must have `enable.partition.eof`. Raises
    KafkaException, also if nothing of what is left comes for `wait_s`; `ends` as Unread has those.
    """
    unread = ends if isinstance(ends, Unread) else Unread(ends)
    until = time.monotonic() + wait_s
    while unread.ends:
        # Not `consume`: it waits for as many as it is asked for, also behind the last.
        message = consumer.poll(max(0.0, until - time.monotonic()))
        if message is not None and place_of(message) in unread.ends:
            until = time.monotonic() + wait_s
            if _is_before_the_end(unread, message):
                yield message
        elif time.monotonic() >= until:  # Others may go on behind their ends all that time.
            raise KafkaException(KafkaError(KafkaError._TIMED_OUT))


def _is_before_the_end(unread: Unread, message: Message) -> bool:
    """Whether it is a record before the end, or an error."""
    place, error, offset = place_of(message), message.error(), message.offset()
    end = unread.ends[place]
    unread.read(place, message)
    if error is None:
        return offset is not None and offset < end
    unread.leave(place)
    return error.code() != KafkaError._PARTITION_EOF


def records_to(
    consumer: Consumer, ends: Mapping[Partition, int], *, wait_s: float
) -> Iterator[Message]:
    """As `read_to`, the records alone. Raises KafkaException, also for an error of a partition."""
    for message in read_to(consumer, ends, wait_s=wait_s):
        if (error := message.error()) is not None:
            raise KafkaException(error)
        yield message


def place_of(message: Message) -> Partition:
    return str(message.topic()), int(message.partition() or 0)
