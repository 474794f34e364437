"""The holds of all windows of a node, by group, topic and partition. Empty while nothing runs."""

from __future__ import annotations

from dataclasses import dataclass, field

from dispatcher.core.hold import HELD_WHOLE, Hold
from gateway.core.repartition.record import Repartition

SharePartitionKey = tuple[str, str, int]  # group, the text of a topic's id, partition


@dataclass(slots=True)
class Holds:
    loaded: bool = False  # whether anything runs is known: no window is loaded before
    # By the text of the id of the topic that has the new partitions.
    _records: dict[str, Repartition] = field(default_factory=dict)
    _known: dict[SharePartitionKey, Hold] = field(default_factory=dict)

    def of(self, place: SharePartitionKey) -> Hold | None:
        """None: none of its records waits for those of another window."""
        if not self._records:
            return None
        group, topic_id, partition = place
        record = self._records.get(topic_id)
        if record is None or partition + record.first < record.before:
            return None
        if group in record.unordered or (record.into and group not in record.groups):
            return None
        return self._known.get(place, HELD_WHOLE)

    def hold(self, topic_id: str, record: Repartition) -> None:
        self._records[topic_id] = record

    def put(self, place: SharePartitionKey, hold: Hold) -> None:
        self._known[place] = hold

    def lift(self, topic_id: str) -> None:
        if self._records.pop(topic_id, None) is not None:
            self._known = {
                place: hold for place, hold in self._known.items() if place[1] != topic_id
            }
