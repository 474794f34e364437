"""The topics that stopped because the target refused a record, or because the source has a damaged
one, and when each is tried again.

The reason stands until that very partition has been written to again: an attempt alone says
nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Set
from dataclasses import dataclass, field

from spark.streaming.limits import RETRY_REFUSED_S, RETRY_REFUSED_S_MAX
from spark.streaming.orders import Partition


@dataclass(slots=True)
class _Refusal:
    reason: str
    until_s: float
    wait_s: float


@dataclass(slots=True)
class Refusals:
    """Times are those of a monotonic clock."""

    _by_topic: dict[str, dict[int, _Refusal]] = field(default_factory=dict)  # and partition

    def refused(self, place: Partition, reason: str, now_s: float) -> bool:
        """Notes a refusal. Returns whether it is new. The wait doubles from attempt to attempt."""
        topic, partition = place
        mine = self._by_topic.setdefault(topic, {})
        before = mine.get(partition)
        wait_s = min(before.wait_s * 2, RETRY_REFUSED_S_MAX) if before else RETRY_REFUSED_S
        mine[partition] = _Refusal(reason, now_s + wait_s, wait_s)
        return before is None or before.reason != reason

    def written(self, place: Partition) -> None:
        self._by_topic.get(place[0], {}).pop(place[1], None)

    def reason(self, topic: str) -> str:
        """Why the topic stopped; empty if it did not."""
        return next((refusal.reason for refusal in self._of(topic)), "")

    def waits(self, topic: str, now_s: float) -> bool:
        """Whether the topic is not to be tried yet."""
        return any(now_s < refusal.until_s for refusal in self._of(topic))

    def try_again(self, topic: str) -> None:
        """Lets the topic be tried at once, because something has changed at the target."""
        for refusal in self._of(topic):
            refusal.until_s = 0.0

    def keep(self, topics: Set[str]) -> None:
        """Forgets all topics but these: the others are no longer followed."""
        self._by_topic = {
            topic: refusals
            for topic, refusals in self._by_topic.items()
            if topic in topics and refusals
        }

    def _of(self, topic: str) -> Iterable[_Refusal]:
        return self._by_topic.get(topic, {}).values()
