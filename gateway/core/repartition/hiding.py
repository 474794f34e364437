"""Partitions that upstream has and clients do not see yet, taken out of what they are shown."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from gateway.core.cluster.discovery import NO_TOPIC_ID
from gateway.core.repartition.record import Phase, Repartition
from gateway.core.wire.errors import ErrorCode
from gateway.core.wire.schema import Message


@dataclass(frozen=True, slots=True)
class ShownTopic:
    topic_id: bytes  # NO_TOPIC_ID: whatever it has
    partitions: int  # from this number on they are hidden; 0: there is no such topic


Shown = Mapping[str, ShownTopic]  # by name; a topic that is not in it is shown whole


def shown_of(records: Iterable[Repartition]) -> tuple[dict[str, ShownTopic], list[str]]:
    """What clients see of the topics of these, and the names of those of which it is not all."""
    shown, hiding = {}, []
    for record in records:
        if not (record.runs or (record.phase is Phase.ABORTED and not record.into)):
            continue
        shown[record.topic] = ShownTopic(bytes.fromhex(record.topic_id), record.shown)
        if record.into:
            count = record.after - record.before if record.shows_new else 0
            shown[record.into] = ShownTopic(bytes.fromhex(record.into_id) or NO_TOPIC_ID, count)
        if not record.shows_new:
            hiding.append(record.new_topic)
    return shown, hiding


def hide(response: Message, shown: Shown, *, leave_out: bool = False) -> None:
    """Changes an answer of Metadata or DescribeTopicPartitions. A topic that was created anew under
    the name is another one, where the answer tells (Metadata from version 10 on). `leave_out`: of a
    topic that is hidden whole there is no row, as it may be an answer about all topics; clients
    take it for an unknown one then, too.
    """
    for topic in list(response["Topics"]):
        known = shown.get(topic["Name"])
        if known is None or not _is_it(topic.get("TopicId", NO_TOPIC_ID), known):
            continue
        if topic["ErrorCode"] == ErrorCode.TOPIC_AUTHORIZATION_FAILED:
            continue  # whether there is one is not this client's business
        if known.partitions == 0:
            if leave_out:
                response["Topics"].remove(topic)
            topic |= {
                "ErrorCode": int(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
                "TopicId": NO_TOPIC_ID,
                "Partitions": [],
            }
        partitions = topic["Partitions"]
        topic["Partitions"] = [
            partition for partition in partitions if partition["PartitionIndex"] < known.partitions
        ]


def _is_it(topic_id: bytes, known: ShownTopic) -> bool:
    return NO_TOPIC_ID in (topic_id, known.topic_id) or topic_id == known.topic_id
