"""How long each group has been at work on one cluster, or idle, and which groups also go on
elsewhere while they work here.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field

import structlog

from offsets.core.entries import Entry, GroupPartition
from offsets.limits import LOGGED_PLACES_MAX
from offsets.state_topic import StateTopic

log = structlog.get_logger("keyway.offsets")


@dataclass(slots=True)
class Activity:
    state_topic: StateTopic
    now_ms: Callable[[], int]
    _since: dict[str, tuple[bool, int]] = field(default_factory=dict)  # at work, since when
    # Offsets elsewhere at the last look.
    _seen: dict[GroupPartition, int] = field(default_factory=dict)

    def look(self, entries: Sequence[Entry], works: Callable[[str], bool], *, both_ms: int) -> None:
        """`works`: whether a group has members here. Raises ClusterAway, NotReadable."""
        now, both = self.now_ms(), set()
        for group in dict.fromkeys(entry.group for entry in entries):
            if self._since.get(group, (None, 0))[0] is not works(group):
                self._since[group] = (works(group), now)
        for entry in entries:
            at_work, since = self._since[entry.group]
            went_on = self._seen.get(entry.place, entry.offset) != entry.offset
            # Its last commits elsewhere may come when it works here already, but are older.
            if at_work and went_on and entry.committed_ms > since + both_ms:
                both.add(entry.group)
            self._seen[entry.place] = entry.offset
        fresh = sorted(both - self.state_topic.state.both)
        if fresh:
            log.warning("groups_at_work_on_both", groups=fresh[:LOGGED_PLACES_MAX])
            self.state_topic.write_both(fresh, both=True)

    def rested(self, group: str, empty_ms: int) -> bool:
        """Whether the group has had no members for `empty_ms`."""
        at_work, since = self._since[group]
        return not at_work and self.now_ms() - since >= empty_ms

    def forget(self, places: Iterable[GroupPartition], groups: Collection[str]) -> None:
        """`groups`: the groups that are left."""
        for place in places:
            self._seen.pop(place, None)
        self._since = {group: state for group, state in self._since.items() if group in groups}
