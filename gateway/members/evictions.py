"""Who is evicted from the share groups that this node coordinates, and when an empty group is
forgotten.

A member without a connection to this node is not gone while another node has one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from heapq import nsmallest

import structlog

from gateway.core.share.membership import EVERYBODY, ShareGroup
from gateway.core.share.subscriptions import names_in
from gateway.members.groups import Groups
from gateway.members.limits import EMPTY_GROUPS_MAX, EMPTY_TOPIC_NAMES_MAX, GROUP_EMPTY_MS_MAX

log = structlog.get_logger("keyway.groups")


class Evictions:
    """Evicts members. `elsewhere`: which of a group's members are connected to other nodes; None:
    there are no other nodes.
    """

    def __init__(self, groups: Groups) -> None:
        self.groups = groups
        self.elsewhere: Callable[[str, Sequence[str]], Awaitable[Iterable[str]]] | None = None
        self._on_evicted: list[Callable[[str, Sequence[str]], None]] = []
        self._empty_since_ms: dict[str, int] = {}  # the earliest first
        # When the last member of an empty group left, and the names of topics that it keeps of all.
        self._left: dict[str, tuple[int, int]] = {}
        groups.on_forgotten(self._forgotten)

    @property
    def empty_since_ms(self) -> Mapping[str, int]:
        """Of the groups that this node coordinates, as of the last tick."""
        return self._empty_since_ms

    def on_evicted(self, callback: Callable[[str, Sequence[str]], None]) -> None:
        """This node has evicted these members of a group."""
        self._on_evicted.append(callback)

    def _forgotten(self, name: str) -> None:
        self._empty_since_ms.pop(name, None)
        self._left.pop(name, None)

    async def tick(self, now_ms: int) -> None:
        """The watchdog: evicts members that are silent or gone, of one group in each turn of the
        event loop. An empty group stays until it is deleted, for as long as Kafka keeps the offsets
        of one, or until there are too many.
        """
        groups = self.groups
        listened_ms = groups.listening.tick(now_ms)
        for name in groups.names():
            group = groups.get(name)
            if groups.kept:
                return
            groups.forget_departed(name, listened_ms)
            if group is None or not groups.leads(name):
                continue  # deleted since the last turn, or of another node
            if group.members:
                self._forgotten(name)
                if group.has_due(listened_ms):
                    await self._hear_others(group, listened_ms)
                    if groups.leads(name) and not groups.kept:
                        self._evict(group, listened_ms)
                    await asyncio.sleep(0)
            elif now_ms - self._empty_since_ms.setdefault(name, now_ms) >= GROUP_EMPTY_MS_MAX:
                self._forget(name)
            else:
                self._note_who_left(group)
        self._forget_surplus()
        self._forget_who_left(listened_ms)

    def _note_who_left(self, group: ShareGroup) -> None:
        last_ms = next(reversed(group.departed.values()), 0)
        if self._left.get(group.name, (-1, 0))[0] != last_ms:
            names = names_in(topics for _, topics in group.departed)
            self._left[group.name] = last_ms, names

    def _forget_who_left(self, listened_ms: int) -> None:
        """Anybody is awaited then, when members come again."""
        excess = sum(names for _, names in self._left.values()) - EMPTY_TOPIC_NAMES_MAX
        if excess <= 0:
            return
        for name in self._empty_since_ms:
            group, (_, names) = self.groups.get(name), self._left.get(name, (0, 0))
            if names and group is not None and not group.members:
                group.departed = {EVERYBODY: listened_ms}
                self._left[name] = listened_ms, 0
                excess -= names
                if excess <= 0:
                    return

    def _forget_surplus(self) -> None:
        empty_since_ms = self._empty_since_ms
        surplus = len(empty_since_ms) - EMPTY_GROUPS_MAX
        if surplus > 0:
            for name in nsmallest(surplus, empty_since_ms, key=empty_since_ms.__getitem__):
                group = self.groups.get(name)
                if group is not None and group.members:  # since the last turn
                    self._forgotten(name)
                else:
                    self._forget(name)

    def _forget(self, name: str) -> None:
        log.info("group_forgotten", group=name)
        self.groups.forget(name)

    async def _hear_others(self, group: ShareGroup, listened_ms: int) -> None:
        gone = group.gone(listened_ms)
        if gone and self.elsewhere is not None:
            for member_id in await self.elsewhere(group.name, gone):
                group.connected_elsewhere(member_id, listened_ms)

    def _evict(self, group: ShareGroup, listened_ms: int) -> None:
        evicted = group.evict_due(listened_ms)
        for member in evicted:
            log.warning(
                "member_evicted",
                group=group.name,
                member=member.member_id,
                client_id=member.client_id,
                silent_ms=listened_ms - member.last_heartbeat_ms,
                connected=bool(member.connections),
            )
        for tell in self._on_evicted:
            tell(group.name, [member.member_id for member in evicted])
        self.groups.evicted(group, evicted)
