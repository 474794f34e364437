"""Finds out whether a target has copies of a link's records although the link has no position
there. That happens when its cluster or level has another name now, or when its positions and its
status topic were deleted. Without this look the link would copy all retained records once more.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from keyway.clusters.core.copies import Stood, as_in_headers, judge
from keyway.clusters.core.tree import ClusterName
from keyway.clusters.core.trust import Seals
from keyway.kafka.to_ends import place_of, read_to
from spark.streaming.kafka import KafkaSide, parted
from spark.streaming.limits import (
    ANSWER_S,
    OWN_COPIES_SCANNED_BACK,
    OWN_COPIES_SCANNED_MAX,
    PARTITIONS_SCANNED_AT_ONCE,
)
from spark.streaming.orders import Partition
from spark.streaming.read_back import headers_of

REASON = (
    "the target has copies of its records, but the link has no position there: was the cluster or"
    " its level renamed? `keyway distribute run --from-start` copies all records again"
)
NOT_READABLE = (
    "the link has no position on the target, and may not read there whether the target has copies"
    " of its records: grant READ, or say with `keyway distribute run --from-start` that it has none"
)


@dataclass(frozen=True, slots=True)
class Fresh:
    """A topic of the source of which the link has no position in some partition."""

    logical: str
    topic_id: str


def topics_copied_before(
    target: KafkaSide,
    group: str,
    source: ClusterName,
    places: Mapping[Partition, Fresh],
    seals: Seals,
) -> dict[str, str]:
    """Topics to stop, each with the reason: in a partition without a position there are copies of
    the source's records, or the partition cannot be read. `places` are the target's partitions.
    Raises KafkaException.
    """
    starts, ends = target.log_starts(places), target.log_ends(places)
    left = {place: looked_at(starts[place], ends[place]) for place in places}
    found: dict[str, str] = {}
    with target.consumer(f"{group}-compare", enable_partition_eof=True) as consumer:
        while left := {at: spans for at, spans in left.items() if spans and at[0] not in found}:
            for chosen in parted(sorted(left), PARTITIONS_SCANNED_AT_ONCE):
                spans = {place: left[place].pop(0) for place in chosen}
                consumer.assign([TopicPartition(*at, first) for at, (first, _) in spans.items()])
                asked = {place: end for place, (_, end) in spans.items()}
                found |= _found(consumer, asked, source, places, seals)
    return found


def looked_at(start: int, end: int) -> list[tuple[int, int]]:
    """The spans of a log from `start` to `end` that are looked at: its end, then spans that are
    each twice as far from the end, up to its start. While the link was away the target's own
    producers may have written on. Copies are found if they are as many as what is behind them.
    """
    first = max(start, end - OWN_COPIES_SCANNED_MAX)
    spans, back = [(first, end)] if first < end else [], OWN_COPIES_SCANNED_MAX
    while first > start:
        back *= 2
        first = max(start, end - back)
        spans.append((first, first + OWN_COPIES_SCANNED_BACK))
    return spans


def _found(
    consumer: Consumer,
    ends: Mapping[Partition, int],
    source: ClusterName,
    places: Mapping[Partition, Fresh],
    seals: Seals,
) -> dict[str, str]:
    found: dict[str, str] = {}
    for message in read_to(consumer, ends, wait_s=ANSWER_S):
        place, error = place_of(message), message.error()
        if error is not None:
            if error.code() != KafkaError.TOPIC_AUTHORIZATION_FAILED:
                raise KafkaException(error)
            found[place[0]] = NOT_READABLE
        elif place[0] not in found and _is_own(message, source, places[place], seals):
            found[place[0]] = REASON
    return found


def _is_own(message: Message, source: ClusterName, topic: Fresh, seals: Seals) -> bool:
    """The topic's id shows it even where the cluster has another name now."""
    stood = Stood(topic.logical, message.timestamp()[1], message.key(), message.value())
    copy = judge(headers_of(message), stood, seals=seals).copy
    if copy is None:
        return False
    if copy.origin.topic_id:
        return copy.origin.topic_id == as_in_headers(topic.topic_id)
    return (copy.origin.cluster, copy.origin.topic) == (source, topic.logical)
