"""How nodes hear of each other's changes of members, key filters and group configs: a stream in
Redis.

Each change of a group's rows (members.lua) and of key filters adds an entry. The entry names the
rows that changed; whoever follows reads just those. What an admin set for a group in Kafka stands
in the entry itself. Each also names the entry before it. If that is not the one the reader knows,
entries are missing (trimmed, flushed, or lost in a fail-over of Redis), and the reader reads all
rows once.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import structlog
from redis.asyncio import Redis

from gateway.core.share.altered_configs import Values
from gateway.members.limits import CHANGES_KEPT_MAX, CHANGES_READ_MAX
from gateway.members.redis_table import redis_answers

log = structlog.get_logger("keyway.groups")

KEY = "keyway:share_changes"


@dataclass(slots=True)
class GroupChange:
    """What changed in one group. The rows of `members` are there, or not any more."""

    members: set[str] = field(default_factory=set)
    evicted: set[str] = field(default_factory=set)  # of the members: their coordinator evicted them

    def text(self, group: str) -> str:
        """The change as an entry has it."""
        return json.dumps(
            {"group": group, "members": sorted(self.members), "evicted": sorted(self.evicted)},
            separators=(",", ":"),
        )


@dataclass(slots=True)
class Changes:
    """All that changed until `position`, by group."""

    position: str
    groups: dict[str, GroupChange] = field(default_factory=dict)
    filters: bool = False  # the key filters of some group
    configs: dict[str, dict[str, str | None]] = field(default_factory=dict)  # Kafka's, by group
    entries: set[str] = field(default_factory=set)

    def add(self, text: bytes) -> None:
        """Raises ValueError, KeyError, TypeError for a text that no node wrote."""
        said = json.loads(text)
        if said == _FILTERS:
            self.filters = True
            return
        if _CONFIGS in said:
            for group, values in said[_CONFIGS].items():
                self.configs.setdefault(group, {}).update(values)
            return
        change = self.groups.setdefault(str(said["group"]), GroupChange())
        change.members.update(map(str, said["members"]))
        change.evicted.update(map(str, said["evicted"]))


_FILTERS = {"filters": True}
_CONFIGS = "configs"


@dataclass(frozen=True, slots=True)
class ChangeLog:
    redis: Redis

    async def newest(self) -> str:
        """The position of the last entry; "" without any. Raises TableUnavailable."""
        with redis_answers():
            found: Any = await self.redis.xrevrange(KEY, count=1)
        return found[0][0].decode() if found else ""

    async def since(self, position: str) -> Changes | None:
        """All changes after `position`. None: some are not known, or there are so many that reading
        all rows is quicker. Raises TableUnavailable.
        """
        newest = await self.newest()
        if newest == position:
            return Changes(position)
        with redis_answers():
            first = f"({position}" if position else "-"
            found: Any = await self.redis.xrange(KEY, min=first, count=CHANGES_READ_MAX)
        if len(found) == CHANGES_READ_MAX:
            return None
        changes = Changes(position)
        for entry, fields in found:
            if fields.get(b"before", b"").decode() != changes.position:
                return None
            try:
                changes.add(fields[b"change"])
            except (ValueError, KeyError, TypeError) as error:
                log.error("row_unreadable", table=KEY, name=entry.decode(), reason=repr(error))
                return None
            changes.position = entry.decode()
            changes.entries.add(changes.position)
        return None if changes.position == position else changes

    async def tell_filters(self) -> None:
        """Raises TableUnavailable. An entry that another node adds meanwhile shows as a gap."""
        await self._tell(_FILTERS)

    async def tell_configs(self, altered: Mapping[str, Values]) -> None:
        """Kafka has accepted these configs of groups. Raises TableUnavailable."""
        for group, values in altered.items():
            await self._tell({_CONFIGS: {group: dict(values)}})

    async def _tell(self, change: object) -> None:
        before = await self.newest()
        entry: dict[Any, Any] = {"before": before, "change": json.dumps(change)}
        with redis_answers():
            await self.redis.xadd(KEY, entry, maxlen=CHANGES_KEPT_MAX, approximate=True)
