"""Topics as routing content: how many partitions each has, and its routing version.

The version grows with the number of partitions, because then keys change their partitions. A topic
has its id here: one that is created anew under its name is another topic.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicRouting:
    partitions: int
    version: int = 1


def changed(known: Mapping[str, TopicRouting], seen: Mapping[str, int]) -> dict[str, TopicRouting]:
    """The content of the topics that are not as `known`, by what a node has seen in Kafka. Kafka
    takes no partition away: who sees fewer than are known looks at an older Kafka.
    """
    found: dict[str, TopicRouting] = {}
    for topic, partitions in seen.items():
        before = known.get(topic)
        if before is None:
            found[topic] = TopicRouting(partitions=partitions)
        elif partitions > before.partitions:
            found[topic] = TopicRouting(partitions=partitions, version=before.version + 1)
    return found


def reflects(known: Mapping[str, TopicRouting], shown: Mapping[str, int]) -> bool:
    """Metadata with these numbers of partitions shows what is known, or later content."""
    return all(
        topic not in known or partitions >= known[topic].partitions
        for topic, partitions in shown.items()
    )
