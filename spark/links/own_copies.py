"""Finds out whether a target has copies of a link's records although the link has no position
there. That happens when its cluster or level has another name now, or when its positions and its
status topic were deleted. Without this look the link would copy all retained records once more.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from keyway.clusters.core.copies import Stood, judge
from keyway.clusters.core.tree import ClusterName
from keyway.clusters.core.trust import Seals
from keyway.kafka.to_ends import place_of, read_to
from spark.links.lookup import topic_id_of
from spark.streaming.kafka import KafkaSide
from spark.streaming.limits import ANSWER_S, OWN_COPIES_SCANNED_MAX, PARTITIONS_SCANNED_AT_ONCE
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
    """The topics that have a copy of the source's records among the last records of a partition
    without a position, or of which that cannot be read, each with the reason to stop it. `places`:
    by the target's topics. Raises KafkaException.
    """
    starts, ends = target.log_starts(places), target.log_ends(places)
    filled = {place: max(starts[place], ends[place] - OWN_COPIES_SCANNED_MAX) for place in places}
    filled = {place: at for place, at in filled.items() if at < ends[place]}
    found: dict[str, str] = {}
    listed = sorted(filled)
    with target.consumer(f"{group}-compare", enable_partition_eof=True) as consumer:
        for first in range(0, len(listed), PARTITIONS_SCANNED_AT_ONCE):
            chosen = listed[first : first + PARTITIONS_SCANNED_AT_ONCE]
            consumer.assign([TopicPartition(*place, filled[place]) for place in chosen])
            asked = {place: ends[place] for place in chosen}
            found |= _found(consumer, asked, source, places, seals)
    return found


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
        return copy.origin.topic_id == topic_id_of(topic.topic_id)
    return (copy.origin.cluster, copy.origin.topic) == (source, topic.logical)
