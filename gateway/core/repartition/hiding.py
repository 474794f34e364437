"""Partitions that upstream has and clients do not see yet, taken out of what they are shown."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from gateway.core.cluster.discovery import NO_TOPIC_ID
from gateway.core.wire.schema import Message


@dataclass(frozen=True, slots=True)
class ShownTopic:
    topic_id: bytes
    partitions: int  # from this number on they are hidden


Shown = Mapping[str, ShownTopic]  # by name; a topic that is not in it is shown whole


def hide(response: Message, shown: Shown) -> None:
    """Changes an answer of Metadata or DescribeTopicPartitions. A topic that was created anew under
    the name is another one, where the answer tells (Metadata from version 10 on).
    """
    for topic in response["Topics"]:
        known = shown.get(topic["Name"])
        if known is None or topic.get("TopicId", NO_TOPIC_ID) not in (known.topic_id, NO_TOPIC_ID):
            continue
        partitions = topic["Partitions"]
        topic["Partitions"] = [
            partition for partition in partitions if partition["PartitionIndex"] < known.partitions
        ]
