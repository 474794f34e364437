"""Records that Spark cannot read at all. Its timestamps are microseconds in 64 bits, so Kafka's
source fails with "long overflow" on a record of the year 294,247 or later, without a word of where
it is. The broker's index of timestamps says which partitions have one; there it is looked for.
Where a batch of records is damaged on the broker's disk, Java's client names partition and offset.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from itertools import islice
from typing import NamedTuple

from confluent_kafka import TopicPartition

from keyway.kafka.to_ends import records_to
from spark.streaming.kafka import KafkaSide
from spark.streaming.limits import ANSWER_S, UNREADABLE_SCANNED_MAX
from spark.streaming.orders import Partition

OVERFLOW = "long overflow"  # what Spark says
TIMESTAMP_MS_MAX = (2**63 - 1) // 1_000
_DAMAGED = re.compile(
    r"for partition (\S+)-([0-9]+) at offset ([0-9]+) is invalid"
)  # Kafka's words


class Damage(NamedTuple):
    """A batch of records whose checksum is wrong. All before `offset` can be read."""

    place: Partition
    offset: int
    words: str


def damaged(fault: str) -> Damage | None:
    """The batch, if one is the fault."""
    found = _DAMAGED.search(fault)
    return None if found is None else Damage((found[1], int(found[2])), int(found[3]), fault)


def unreadable(side: KafkaSide, starts: Mapping[Partition, int]) -> dict[Partition, int]:
    """The offset of the first such record from `starts` on, for the places that have one. Raises
    KafkaException.
    """
    found: dict[Partition, int] = {}
    with side.consumer("keyway-unreadable", enable_partition_eof=True) as consumer:
        asked = [TopicPartition(*place, TIMESTAMP_MS_MAX + 1) for place in starts]
        suspects = {
            (answer.topic, answer.partition): answer.offset
            for answer in consumer.offsets_for_times(asked, ANSWER_S)
            if answer.error is None and answer.offset >= 0
        }
        ends = side.log_ends(suspects)
        for place, first in suspects.items():
            # The index knows the first of the whole log, which may be passed already.
            consumer.assign([TopicPartition(*place, max(first, starts[place]))])
            records = records_to(consumer, {place: ends[place]}, wait_s=ANSWER_S)
            for message in islice(records, UNREADABLE_SCANNED_MAX):
                offset = message.offset()
                if offset is not None and message.timestamp()[1] > TIMESTAMP_MS_MAX:
                    found[place] = offset
                    break
    return found


def firsts(
    odd: Mapping[Partition, int], damage: Mapping[Partition, Damage]
) -> dict[Partition, int]:
    """The first offset of each place that Spark cannot read."""
    found = dict(odd)
    for place, batch in damage.items():
        found[place] = min(batch.offset, found.get(place, batch.offset))
    return found


def told(partition: int, offset: int) -> str:
    return (
        f"the timestamp at offset {offset} of partition {partition} is more than"
        f" {TIMESTAMP_MS_MAX} ms, which Spark cannot read; `on_refused: skip` leaves it out"
    )
