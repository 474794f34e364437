"""How long each group has been at work on one cluster, or idle, and which groups also go on
elsewhere while they work here.

A group is at work while it has members. Applications that assign partitions by hand (Flink, Storm)
have none: their group is at work for a while after each of its own commits.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import structlog

from offsets.core.entries import Entry, GroupPartition
from offsets.core.plan import Committed, own_work
from offsets.limits import LOGGED_PLACES_MAX
from offsets.state_topic import StateTopic

log = structlog.get_logger("keyway.offsets")


@dataclass(slots=True)
class _Spell:
    """A time in which a group commits here again and again. `elsewhere_ms`: when it committed
    elsewhere in it, for the first time.
    """

    began_ms: int
    last_ms: int
    elsewhere_ms: int | None = None


@dataclass(slots=True)
class Activity:
    state_topic: StateTopic
    now_ms: Callable[[], int]
    _since: dict[str, tuple[bool, int]] = field(default_factory=dict)  # at work, since when
    _spells: dict[str, _Spell] = field(default_factory=dict)
    # Offsets at the last look, elsewhere and here.
    _seen: dict[GroupPartition, int] = field(default_factory=dict)
    _stood: dict[GroupPartition, int] = field(default_factory=dict)

    def look(
        self,
        entries: Sequence[Entry],
        works: Callable[[str], bool],
        here: Mapping[GroupPartition, Committed],
        *,
        empty_ms: int,
        both_ms: int,
    ) -> None:
        """`works`: whether a group has members here. `here`: the positions of places that have one.
        Raises ClusterAway, NotReadable.
        """
        now, both = self.now_ms(), set()
        for group in dict.fromkeys(entry.group for entry in entries):
            if self._since.get(group, (None, 0))[0] is not works(group):
                self._since[group] = (works(group), now)
        # Before what is new elsewhere: only a commit after that shows that it works on both.
        for entry in entries:
            own = here.get(entry.place)
            if own is not None and self._committed(entry.place, own, empty_ms, both_ms):
                both.add(entry.group)
        for entry in entries:
            at_work, since = self._since[entry.group]
            went_on = self._seen.get(entry.place, entry.offset) != entry.offset
            # Its last commits elsewhere may come when it works here already, but are older.
            if at_work and went_on and entry.committed_ms > since + both_ms:
                both.add(entry.group)
            spell = self._spells.get(entry.group)
            if spell is not None and went_on and entry.committed_ms > spell.began_ms + both_ms:
                spell.elsewhere_ms = spell.elsewhere_ms or entry.committed_ms
            self._seen[entry.place] = entry.offset
        fresh = sorted(both - self.state_topic.state.both)
        if fresh:
            log.warning("groups_at_work_on_both", groups=fresh[:LOGGED_PLACES_MAX])
            self.state_topic.write_both(fresh, both=True)

    def _committed(
        self, place: GroupPartition, own: Committed, empty_ms: int, both_ms: int
    ) -> bool:
        """Notes a commit of the group itself, if there is a new one. Returns whether it comes so
        long after one elsewhere in the same spell that the group has not moved in between.
        """
        before = self._stood.get(place, own.offset)
        self._stood[place] = own.offset
        ours = self.state_topic.state.applied.get(place)
        if own.offset == before or not own_work(own, ours):
            return False
        now, spell = self.now_ms(), self._spells.get(place[0])
        if spell is None or now - spell.last_ms > empty_ms:
            spell = self._spells[place[0]] = _Spell(now, now)
        spell.last_ms = now
        if spell.elsewhere_ms is None or own.committed_ms is None:
            return False
        return own.committed_ms > spell.elsewhere_ms + both_ms

    def rested(self, group: str, empty_ms: int) -> bool:
        """Whether the group has had no members, and made no commit, for `empty_ms`."""
        at_work, since = self._since[group]
        spell = self._spells.get(group)
        last = since if spell is None else max(since, spell.last_ms)
        return not at_work and self.now_ms() - last >= empty_ms

    def forget(self, places: Iterable[GroupPartition], groups: Collection[str]) -> None:
        """`groups`: the groups that are left."""
        for place in places:
            self._seen.pop(place, None)
            self._stood.pop(place, None)
        self._spells = {group: spell for group, spell in self._spells.items() if group in groups}
        self._since = {group: state for group, state in self._since.items() if group in groups}
