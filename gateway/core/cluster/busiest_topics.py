"""Bytes by topic for metrics: those of a few busy topics each, those of all others together.

A counter of a metric must never fall, and a cluster has any number of topics. So a topic that is
shown counts from the moment it was chosen; before that, and after it has made room for a busier
one, its bytes count among the others. Each ranking decides about it by the bytes since the ranking
before.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from gateway.core.limits import TOPICS_SHOWN_MAX, TOPICS_WATCHED_MAX

OTHER = "other"
# A topic takes another one's place when it is so much busier: two that are alike do not take turns.
BUSIER = 2


@dataclass(slots=True)
class BusiestTopics:
    """At most `shown_max` topics are shown; of `watched_max` others the recent bytes are known."""

    shown_max: int = TOPICS_SHOWN_MAX
    watched_max: int = TOPICS_WATCHED_MAX
    others: int = 0  # bytes
    _shown: dict[str, int] = field(default_factory=dict)
    _recent: dict[str, int] = field(default_factory=dict)  # bytes since the last ranking

    def count(self, topic: str, size: int) -> None:
        if topic in self._shown:
            self._shown[topic] += size
        else:
            self.others += size
        if topic == OTHER:  # it would have the name of all others
            return
        if topic in self._recent:
            self._recent[topic] += size
        elif len(self._recent) < self.shown_max + self.watched_max:
            self._recent[topic] = size

    def rank(self) -> None:
        """Topics that wait get the free places, then those of topics that are less busy."""
        waiting = sorted(
            (name for name in self._recent if name not in self._shown),
            key=lambda name: (-self._recent[name], name),
        )
        for name in waiting:
            if len(self._shown) < self.shown_max:
                self._shown[name] = 0
                continue
            least = min(self._shown, key=lambda shown: (self._recent.get(shown, 0), shown))
            if self._recent[name] < BUSIER * max(1, self._recent.get(least, 0)):
                break
            del self._shown[least]
            self._shown[name] = 0
        self._recent.clear()

    def rows(self) -> list[tuple[str, int]]:
        """Bytes of each topic that is shown, by name, and of all others."""
        return [*sorted(self._shown.items()), (OTHER, self.others)]
