"""The work of one query of a link."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeVar

from spark.streaming.core.survey import Topic
from spark.streaming.orders import Partition, Taking

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class Plan:
    """The work of one query. `topics`: as the source describes them, by name; `targets`: their
    names on the target; `stopped`: the other topics, with reasons.
    """

    topics: Mapping[str, Topic]
    targets: Mapping[str, str]
    logical: Mapping[str, str]
    stopped: Mapping[str, str]
    target_ids: Mapping[str, str]  # ids of the target's topics, by name on the source
    taking: Mapping[str, Taking] = field(default_factory=dict)  # by name on the source

    def places(self) -> list[Partition]:
        return [(name, p) for name, topic in self.topics.items() for p in range(topic.partitions)]

    def same_work(self, other: Plan) -> bool:
        mine, others = (
            {name: (topic.topic_id, topic.partitions) for name, topic in plan.topics.items()}
            for plan in (self, other)
        )
        # A target's id that is learnt only now: the positions that are told need it.
        learnt = other.target_ids.keys() - self.target_ids.keys()
        return mine == others and self.stopped.keys() == other.stopped.keys() and not learnt


def by_topic(by_place: Mapping[Partition, _T]) -> dict[str, dict[int, _T]]:
    """The same values by topic, and by partition within each topic."""
    found: dict[str, dict[int, _T]] = {}
    for (name, partition), value in by_place.items():
        found.setdefault(name, {})[partition] = value
    return found
