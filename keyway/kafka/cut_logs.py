"""Logs that have lost their end, as consumers of Kafka find it out (KIP-320): a position has the
epoch of a leader, and a later leader says where the records of that epoch end in its log.
librdkafka asks it (OffsetForLeaderEpoch) where a consumer begins at an offset with an epoch.
"""

from __future__ import annotations

from collections.abc import Iterable
from time import monotonic
from typing import Any, Final

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from keyway.kafka.log_ends import Partition
from keyway.kafka.to_ends import place_of

# Of the consumer that asks. It reads a record of each partition, or its end, and no more.
ASKING: Final[dict[str, Any]] = {
    "auto.offset.reset": "error",
    "isolation.level": "read_uncommitted",
    "enable.partition.eof": True,
    "fetch.message.max.bytes": 1,
}
BEHIND_A_CUT: Final = KafkaError._AUTO_OFFSET_RESET
# librdkafka looks for a coordinator also where nobody subscribes.
_NO_CONCERN = (KafkaError.GROUP_AUTHORIZATION_FAILED,)


def tried(
    consumer: Consumer, positions: Iterable[TopicPartition], *, wait_s: float
) -> dict[Partition, KafkaError | None]:
    """Whether a consumer may begin at these positions, by place: None, or Kafka's error. That is
    BEHIND_A_CUT where the log was cut before the position, or begins behind it. Raises
    KafkaException.
    """
    wanted = list(positions)
    consumer.assign(wanted)
    left = {(place.topic, place.partition) for place in wanted}
    found: dict[Partition, KafkaError | None] = {}
    end_s = monotonic() + wait_s
    while left:
        message = consumer.poll(max(0.0, end_s - monotonic()))
        if message is None:
            raise KafkaException(KafkaError(KafkaError._TIMED_OUT))
        place, error = place_of(message), message.error()
        if place in left:
            is_end = error is not None and error.code() == KafkaError._PARTITION_EOF
            found[place] = None if is_end else error
            left.discard(place)
            end_s = monotonic() + wait_s
        elif error is not None and place not in found and error.code() not in _NO_CONCERN:
            raise KafkaException(error)
    return found
