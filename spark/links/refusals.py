"""Topics that stopped because the target refused a record, and when each is tried again.

The reason stands until the very partition has been written to again: a try alone says nothing.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from spark.streaming.limits import RETRY_REFUSED_S, RETRY_REFUSED_S_MAX
from spark.streaming.orders import Place


@dataclass(slots=True)
class _Refusal:
    reason: str
    until_s: float
    wait_s: float


@dataclass(slots=True)
class Refusals:
    """Times are those of a monotonic clock."""

    _by_place: dict[Place, _Refusal] = field(default_factory=dict)

    def refused(self, place: Place, reason: str, now_s: float) -> bool:
        """Whether that is new. From try to try the wait doubles."""
        before = self._by_place.get(place)
        wait_s = min(before.wait_s * 2, RETRY_REFUSED_S_MAX) if before else RETRY_REFUSED_S
        self._by_place[place] = _Refusal(reason, now_s + wait_s, wait_s)
        return before is None or before.reason != reason

    def written(self, place: Place) -> None:
        self._by_place.pop(place, None)

    def reason(self, topic: str) -> str:
        """Empty if the topic has none."""
        found = [it.reason for (name, _), it in self._by_place.items() if name == topic]
        return found[0] if found else ""

    def waits(self, topic: str, now_s: float) -> bool:
        """Whether the topic is not to be tried yet."""
        mine = (it for (name, _), it in self._by_place.items() if name == topic)
        return any(now_s < it.until_s for it in mine)

    def try_again(self, topic: str) -> None:
        """Something has changed at the target."""
        for (name, _), it in self._by_place.items():
            if name == topic:
                it.until_s = 0.0
