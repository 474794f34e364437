"""Group configs that admins set through the gateway, until brokers show them.

Kafka answers IncrementalAlterConfigs when its controller has the change. A broker that is asked
right after that may still show the old setting: its metadata is on the way. A group that opens its
first window in that moment would start at the wrong place.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

Values = Mapping[str, str | None]  # by Kafka's name of the config; None: deleted


@dataclass(slots=True)
class AlteredConfigs:
    """The configs of groups that were altered here. A change is kept for `shown_within_ms`; after
    that only the broker's answer counts. With more than `groups_max` groups the one with the oldest
    change is forgotten.
    """

    groups_max: int
    shown_within_ms: int
    _altered: dict[str, tuple[int, dict[str, str | None]]] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self._altered)

    def note(self, group: str, values: Values, now_ms: int) -> None:
        """Kafka has just accepted these values for the group."""
        _, before = self._altered.pop(group, (0, {}))
        self._altered[group] = (now_ms, {**before, **values})
        while len(self._altered) > self.groups_max:
            del self._altered[next(iter(self._altered))]

    def over(self, group: str, shown: Mapping[str, str], now_ms: int) -> dict[str, str]:
        """The settings that count for the group, where a broker shows `shown`."""
        found = self._altered.get(group)
        if found is None:
            return dict(shown)
        since_ms, values = found
        if now_ms - since_ms >= self.shown_within_ms or all(
            shown.get(name) == value for name, value in values.items()
        ):
            del self._altered[group]
            return dict(shown)
        counts = {**shown, **values}
        return {name: value for name, value in counts.items() if value is not None}

    def forget(self, group: str) -> None:
        self._altered.pop(group, None)
