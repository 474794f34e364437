"""The share groups of several nodes: those that this node coordinates, and copies of the others.

The members of a group belong to the owner of its coordinator's virtual broker. That node alone
hears their heartbeats, evicts them and saves them in Redis; all others copy them from there. A copy
may be late by a moment: then a window does not know a member yet, and gives it no keys. When the
coordinator's virtual broker gets another owner, that node goes on with the members as they were
saved. None of them is evicted before the grace of a restart is over.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from heapq import nsmallest
from typing import Protocol

import structlog

from gateway.core.routing.ownership import Standing
from gateway.core.share.errors import GroupError
from gateway.core.wire.errors import ErrorCode
from gateway.members.carried_elsewhere import CarriedElsewhere
from gateway.members.change_log import ChangeLog, GroupChange
from gateway.members.evictions import Evictions
from gateway.members.fenced_rows import Writer
from gateway.members.key_filters import KeyFilters
from gateway.members.limits import (
    COORDINATOR_ASKED_MS,
    COORDINATOR_KEPT_MS,
    COORDINATORS_ASKED_AT_ONCE,
    COPY_LOOK_MS,
    COPY_WAIT_S_MAX,
    RESTART_GRACE_MS,
)
from gateway.members.redis_table import TableUnavailable
from gateway.members.saved_members import SavedGroup, SavedMembers
from gateway.routing.lost_cancel import cancelled
from gateway.routing.owners import Owners
from gateway.upstream.errors import UpstreamError

log = structlog.get_logger("keyway.groups")


class NotCoordinator(GroupError):
    code = ErrorCode.NOT_COORDINATOR


class CoordinatorNotKnown(GroupError):
    code = ErrorCode.COORDINATOR_NOT_AVAILABLE


class Coordinators(Protocol):
    """gateway.upstream.cluster.Upstream"""

    def coordinator(self, group: str) -> Awaitable[int]: ...
    def known_coordinator(self, group: str) -> int | None: ...
    def forget_coordinator(self, group: str) -> None: ...
    def look_for_coordinators(self, groups: Sequence[str]) -> Awaitable[None]: ...
    def request_refresh(self) -> None: ...


class Coordination(Protocol):
    def leads(self, group: str) -> bool:
        """This node coordinates the group."""
        ...

    async def check(self, group: str, broker: int | None) -> None:
        """Raises GroupError if heartbeats of the group belong to another node."""
        ...

    async def await_member(self, group: str, member_id: str) -> None:
        """A member fetches that is not known here: it may have joined at another node."""
        ...


class EveryGroup:
    """The coordination of a node that stands alone: it has every group."""

    def leads(self, group: str) -> bool:  # noqa: ARG002
        return True

    async def check(self, group: str, broker: int | None) -> None: ...

    async def await_member(self, group: str, member_id: str) -> None: ...


class SharedCoordination:
    def __init__(
        self,
        evictions: Evictions,
        saved: SavedMembers,
        filters: KeyFilters,
        changes: ChangeLog,
        carried: CarriedElsewhere,
        owners: Owners,
        upstream: Coordinators,
        now_ms: Callable[[], int],
    ) -> None:
        groups = evictions.groups
        self._groups = groups
        self._saved = saved
        self._filters = filters
        self._log = changes
        self._carried = carried
        self._owners = owners
        self._upstream = upstream
        self._now_ms = now_ms
        self._led: dict[str, int] = {}  # groups, by which virtual broker
        self._asked_ms: dict[str, int] = {}  # when a member was at another broker than its own
        self._known_ms: dict[str, int] = {}  # since when a coordinator counts, of known groups
        self._unused_ms: dict[str, int] = {}  # since when a name that is led is no group
        self._position: str | None = None  # in the log of changes; None: all rows are to be read
        self._told: set[str] = set()  # entries of this node there, which it has not read yet
        self._awaited_s = 0.0  # until then nobody reads because a member is awaited
        self._reading = asyncio.Lock()
        self._look = asyncio.Event()
        groups.leads = self.leads
        evictions.elsewhere = self._elsewhere
        groups.carried.take_touched()
        saved.share(Writer(*owners.identity), self._led.get, self._told.add)
        owners.on_change(self._owners_changed)
        owners.on_let_go(self._let_go)

    def leads(self, group: str) -> bool:
        return group in self._led

    async def check(self, group: str, broker: int | None) -> None:
        coordinator = await self._coordinator(group)
        if broker not in (None, coordinator):
            # Which of the two is out of date, the client or this node?
            now_ms = self._now_ms()
            if now_ms - self._asked_ms.get(group, 0) >= COORDINATOR_ASKED_MS:
                self._asked_ms[group] = now_ms
                self._upstream.forget_coordinator(group)
                coordinator = await self._coordinator(group)
        if self._owners.standing(coordinator) is not Standing.OWNED:
            self._owners.look_soon()
            raise NotCoordinator("Another node coordinates the group.")
        if group not in self._led:
            await self._lead(group, coordinator)
        if self._owners.standing(coordinator) is not Standing.OWNED:
            raise NotCoordinator("Another node coordinates the group since a moment ago.")
        self._led[group] = coordinator  # both may be this node's, the old one and the new

    async def _coordinator(self, group: str) -> int:
        try:
            return await self._upstream.coordinator(group)
        except UpstreamError as error:
            raise CoordinatorNotKnown(str(error)) from error

    async def await_member(self, group: str, member_id: str) -> None:
        if self.leads(group):
            return
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(COPY_WAIT_S_MAX):
                while self._groups.member(group, member_id) is None:
                    if loop.time() >= self._awaited_s:  # one reads for all that wait
                        self._awaited_s = loop.time() + COPY_LOOK_MS / 1000 / 4
                        await self._read()
                    else:
                        await asyncio.sleep(COPY_LOOK_MS / 1000 / 16)
        except (TimeoutError, TableUnavailable):
            return  # it is told that it is no member

    # ---------------------------------------------------------------------------------- the copies

    async def start(self) -> None:
        """Reads all groups. Redis answered a moment ago."""
        try:
            await self._read()
        except TableUnavailable as error:
            log.warning("saved_members_not_loaded", reason=str(error))

    async def follow_forever(self) -> None:
        while not cancelled():
            try:
                async with asyncio.timeout(COPY_LOOK_MS / 1000):
                    await self._look.wait()
                self._look.clear()
            except TimeoutError:
                pass
            try:
                await self._read()
                await self._carried.tell(self._groups.carried.take_touched(), self._connected)
            except TableUnavailable:
                continue  # the window store logs that Redis is away
            await self._review()

    async def _read(self) -> None:
        """Copies what changed in the groups of others. Raises TableUnavailable."""
        async with self._reading:
            told = frozenset(self._told)
            changes = None if self._position is None else await self._log.since(self._position)
            if changes is None or not told <= changes.entries:  # Redis has lost some
                await self._read_all()
                return
            changed = {
                name: change for name, change in changes.groups.items() if not self._is_own(name)
            }
            saved = await self._saved.reread(changed) if changed else {}
            if changes.filters:
                await self._filters.reread(self._groups.filters_changed)
            await self._groups.settings.heard(changes.configs)
            self._told -= changes.entries
            if self._position is not None:  # else a group that was led is to be read meanwhile
                self._position = changes.position
            self._copy(saved, changes.groups)

    def _is_own(self, name: str) -> bool:
        """This node knows better than Redis what the group is."""
        if name not in self._led:
            return False
        return self._groups.get(name) is not None or self._saved.writes(name)

    def _connected(self, name: tuple[str, str]) -> bool:
        member = self._groups.member(*name)
        return member is not None and bool(member.connections)

    async def _elsewhere(self, group: str, member_ids: Sequence[str]) -> Iterable[str]:
        """The members that another node has a connection of. While Redis does not answer, that may
        be all of them.
        """
        try:
            return await self._carried.find(group, member_ids)
        except TableUnavailable:
            return member_ids

    async def _read_all(self) -> None:
        told = frozenset(self._told)
        position = await self._log.newest()  # Changes since then are read, perhaps, twice.
        saved: dict[str, SavedGroup | None] = dict.fromkeys(self._groups.names())
        saved |= await self._saved.reload()
        await self._filters.reread(self._groups.filters_changed)
        self._position = position
        self._told -= told
        self._copy(saved, {})
        for name in self._led:  # Redis may have lost rows that were written.
            group = self._groups.get(name)
            if group is not None:
                self._saved.changed(group)

    def _copy(
        self, saved: Mapping[str, SavedGroup | None], changes: Mapping[str, GroupChange]
    ) -> None:
        new_topics = False
        for name, group in saved.items():
            if self._is_own(name):
                continue
            known = self._groups.get(name)
            topics = set() if known is None else set(known.topics())
            if group is not None:
                evicted = changes[name].evicted if name in changes else ()
                self._groups.copy(name, group, self._now_ms(), evicted)
                new_topics = new_topics or not topics.issuperset(self._groups.topics(name))
            elif known is not None:
                self._groups.drop_copy(name, self._now_ms())
        if new_topics:
            self._upstream.request_refresh()

    async def _review(self) -> None:
        """Which groups are this node's, by their coordinators? Does not wait for one that Kafka
        does not name: that can take as long as a broker is away.
        """
        names = self._groups.names()
        self._drop_unused(self._now_ms())
        await self._look_for_coordinators(names)
        for name in names:
            coordinator = self._upstream.known_coordinator(name)
            if coordinator is None:
                continue
            standing = self._owners.standing(coordinator)
            if standing is Standing.OWNED and name not in self._led:
                with suppress(CoordinatorNotKnown):  # Redis is away: the next look tries again
                    await self._lead(name, coordinator)
            elif standing is Standing.OWNED:
                self._led[name] = coordinator
            elif standing is Standing.ELSEWHERE and name in self._led:
                self._lead_no_more(name)

    def _drop_unused(self, now_ms: int) -> None:
        """What is remembered of names that are no group (any more), also in Redis."""
        asked_ms, unused_ms = self._asked_ms, self._unused_ms
        self._asked_ms = {
            name: at_ms for name, at_ms in asked_ms.items() if now_ms - at_ms < COORDINATOR_ASKED_MS
        }
        unused = [name for name in self._led if self._groups.get(name) is None]
        self._unused_ms = {name: unused_ms.get(name, now_ms) for name in unused}
        for name, since_ms in self._unused_ms.items():
            if now_ms - since_ms >= COORDINATOR_KEPT_MS and not self._saved.writes(name):
                del self._led[name]

    async def _look_for_coordinators(self, names: list[str]) -> None:
        """Asks for the coordinators that are not known, or were asked for long ago, some at a time.
        Two nodes with different answers would both take themselves for the one that hears the
        members.
        """
        now_ms, known_ms = self._now_ms(), self._known_ms
        self._known_ms = known_ms = {name: known_ms.get(name, now_ms) for name in names}
        old = [
            name
            for name in names
            if now_ms - known_ms[name] >= COORDINATOR_KEPT_MS
            or self._upstream.known_coordinator(name) is None
        ]
        doubted = nsmallest(COORDINATORS_ASKED_AT_ONCE, old, key=known_ms.__getitem__)
        known_ms |= dict.fromkeys(doubted, now_ms)
        await self._upstream.look_for_coordinators(doubted)

    def _owners_changed(self) -> None:
        for name, broker in list(self._led.items()):
            if self._owners.standing(broker) is Standing.ELSEWHERE:
                self._lead_no_more(name)
        self._look.set()

    def _lead_no_more(self, name: str) -> None:
        self._led.pop(name)
        self._saved.superseded(name)
        self._position = None  # Changes of its next coordinator may have been passed over.
        log.info("group_led_elsewhere", group=name)

    async def _lead(self, name: str, coordinator: int) -> None:
        """From now on the group is this node's, with the members as they were saved."""
        try:
            await self._read()
        except TableUnavailable as error:
            raise CoordinatorNotKnown("The members of the group are not available.") from error
        if name in self._led or self._owners.standing(coordinator) is not Standing.OWNED:
            return  # meanwhile
        self._led[name] = coordinator
        members = self._groups.take_over(name, self._now_ms(), RESTART_GRACE_MS)
        if members:
            log.info("group_led", group=name, members=members)

    async def _let_go(self, _brokers: frozenset[int]) -> None:
        """Gives groups up. What is not saved yet is saved before another node reads it."""
        try:
            await self._saved.flush()
        except TableUnavailable as error:
            log.warning("members_not_saved", reason=str(error))
