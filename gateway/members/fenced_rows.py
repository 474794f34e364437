"""Rows of share groups as several nodes write them: the store takes them from one node only.

That is the owner of the virtual broker which coordinates the group (members.lua asks the owners
that all nodes agree on, in the same Redis). A node that was away and has not heard of its successor
is refused by the store, not by its own clock.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from importlib import resources
from typing import NamedTuple

from redis.asyncio import Redis

from gateway.members.change_log import KEY as LOG_KEY
from gateway.members.change_log import GroupChange
from gateway.members.limits import CHANGES_KEPT_MAX, TABLE_NAMES_AT_ONCE
from gateway.members.redis_table import redis_answers
from gateway.routing.shared_table import KEY as ROUTING_KEY

_REFUSED = -1
_SCRIPT = resources.files("gateway.members").joinpath("members.lua").read_text()


class Writer(NamedTuple):
    """One process of a node, as it shows itself among the others."""

    node: str
    incarnation: str


class RowChange(NamedTuple):
    """`text`: None: the row is deleted."""

    table: str  # "members", "groups"
    field: str
    text: str | None

    def arguments(self) -> tuple[str, str, str, str]:
        verb = "delete" if self.text is None else "set"
        return self.table, verb, self.field, self.text or ""


@dataclass(slots=True)
class GroupRows:
    """The rows of one group that change, and what other nodes are told of them."""

    rows: list[RowChange] = field(default_factory=list)
    members: list[str | None] = field(default_factory=list)  # of each row; None: the group's own
    evicted: set[str] = field(default_factory=set)

    def add(self, row: RowChange, member: str | None = None, *, evicted: bool = False) -> None:
        self.rows.append(row)
        self.members.append(member)
        if evicted and member is not None:
            self.evicted.add(member)

    def told(self, first: int, count: int) -> GroupChange:
        """The changes of a portion of the rows."""
        members = {member for member in self.members[first : first + count] if member is not None}
        return GroupChange(members, members & self.evicted)


@dataclass(frozen=True, slots=True)
class FencedRows:
    """`led_at`: the virtual broker by which this node coordinates a group; None: another one does.
    `keys`: of members and groups. `told`: hears the id of each entry in the log of changes.
    """

    redis: Redis
    keys: tuple[str, str]
    writer: Writer
    led_at: Callable[[str], int | None]
    told: Callable[[str], None]

    async def write(self, group: str, changes: GroupRows) -> bool:
        """A portion at a time; False: another node coordinates the group, and the rest is not
        written. Raises TableUnavailable; then some of it may be written.
        """
        for at in range(0, len(changes.rows), TABLE_NAMES_AT_ONCE):
            broker = self.led_at(group)
            if broker is None:
                return False
            portion = changes.rows[at : at + TABLE_NAMES_AT_ONCE]
            told = changes.told(at, TABLE_NAMES_AT_ONCE).text(group)
            who = (*self.writer, str(broker), told, str(CHANGES_KEPT_MAX))
            arguments = [text for change in portion for text in change.arguments()]
            with redis_answers():
                answer = await self.redis.eval(
                    _SCRIPT, 4, ROUTING_KEY, *self.keys, LOG_KEY, *who, *arguments
                )
            if answer == _REFUSED:
                return False
            self.told(answer.decode())
        return True
