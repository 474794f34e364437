"""The effect that other key filters would have on a group, for an operator to see before.

The owners of keys are compared by the ring and the filters. Keys are those that have unsettled
records in memory now. A key in flight is settled where it is, whatever the filters are.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass

from dispatcher.core.model import Member
from dispatcher.core.routing.ring import NOBODY, Router
from gateway.config.groups import FilterRule
from gateway.members.groups import Groups
from gateway.members.key_filters import KeyFilters
from gateway.operations.limits import EFFECT_KEYS_AT_ONCE, EFFECT_KEYS_MAX
from gateway.windows.table import WindowTable


@dataclass(frozen=True, slots=True)
class MemberFilters:
    """The globs of a member; () = every key."""

    member_id: str
    client_id: str
    before: tuple[bytes, ...]
    after: tuple[bytes, ...]


@dataclass(frozen=True, slots=True)
class FilterEffect:
    """`known` keys were looked at: `moved` of them change their owner, `dropped` of those have none
    then, so that their records count as settled.
    """

    members: list[MemberFilters]
    known: int
    moved: int
    dropped: int


@dataclass(frozen=True, slots=True)
class FilterEffects:
    groups: Groups
    windows: WindowTable
    filters: KeyFilters

    async def of(self, group: str, rules: Iterable[FilterRule] | None) -> FilterEffect:
        """The effect of `rules`, which would be set; None: of the rules in keyway.yaml."""
        wanted = self.filters.configured(group) if rules is None else tuple(rules)
        members = self._members(group, wanted)
        after = {member.member_id: member.after for member in members}
        known = moved = dropped = 0
        routers: dict[tuple[Member, ...], tuple[Router, Router]] = {}  # one pair for each topic
        for window in self.windows.of_group(group):
            core = window.dispatcher
            if core is None or known >= EFFECT_KEYS_MAX:
                continue
            now = core.members
            if now not in routers:
                wanted_now = tuple(
                    Member(member.member_id, after.get(member.member_id, ())) for member in now
                )
                routers[now] = Router(now), Router(wanted_now)
            before, then = routers[now]
            for at, key in enumerate(core.unsettled_keys()[: EFFECT_KEYS_MAX - known], 1):
                owner = then.owner_of(key, 0)
                known += 1
                moved += owner != before.owner_of(key, 0)
                dropped += owner == NOBODY
                if at % EFFECT_KEYS_AT_ONCE == 0:
                    await asyncio.sleep(0)
            await asyncio.sleep(0)
        return FilterEffect(members, known, moved, dropped)

    def _members(self, group: str, rules: tuple[FilterRule, ...]) -> list[MemberFilters]:
        found = self.groups.get(group)
        return [
            MemberFilters(
                member_id=member.member_id,
                client_id=member.client_id,
                before=self.filters.of(group, member.client_id),
                after=self.filters.of_rules(rules, group, member.client_id),
            )
            for member in ([] if found is None else found.members.values())
        ]
