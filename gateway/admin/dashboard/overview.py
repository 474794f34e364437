"""The overview: one snapshot of the node for all that look at it.

It is made when somebody asks and the last one is older than OVERVIEW_S, so a node that nobody
watches does nothing. All viewers get the same one. Each group is written once, as JSON, so that a
viewer who may see some groups only gets those without another look at the windows.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from time import monotonic

from dispatcher.store.base import WindowKey
from gateway.admin.dashboard.rows import FlowRow, GroupLine, OverviewHead, TrafficRow
from gateway.admin.health import Health
from gateway.admin.limits import (
    OVERVIEW_GROUPS_MAX,
    OVERVIEW_PAUSE_FACTOR,
    OVERVIEW_S,
    OVERVIEW_S_MAX,
    OVERVIEW_WINDOWS_AT_ONCE,
)
from gateway.admin.rows import HealthRow
from gateway.admin.tokens import ANYBODY, Caller
from gateway.core.history import Flow
from gateway.core.share.membership import ShareGroup
from gateway.members.groups import Groups
from gateway.operations.group_histories import GroupHistories
from gateway.operations.lag import Lags
from gateway.operations.lag_sums import GroupLag
from gateway.operations.portions import Portions
from gateway.windows.table import WindowTable
from gateway.windows.window import Window

Outcomes = Callable[[str], Mapping[str, int]]


@dataclass(frozen=True, slots=True)
class Snapshot:
    """JSON of the head without its closing brace (`outline`: without the parts that speak of all
    groups and clients), and of each group by name. `hidden`: the names of further groups.
    """

    head: bytes
    outline: bytes
    groups: Mapping[str, bytes]
    hidden: Sequence[str] = ()

    def text(self, caller: Caller = ANYBODY) -> bytes:
        """An Overview as JSON, with all that the caller may see."""
        shown = [row for name, row in self.groups.items() if caller.sees(name)]
        head = self.head if caller.sees_all else self.outline
        hidden = sum(map(caller.sees, self.hidden))
        return b'%b,"groups_hidden":%d,"groups":[%b]}' % (head, hidden, b",".join(shown))


@dataclass(slots=True)
class Overviews:
    groups: Groups
    windows: WindowTable
    lags: Lags
    histories: GroupHistories
    health: Callable[[], Awaitable[Health]]
    traffic: Callable[[], TrafficRow]
    outcomes: Outcomes
    clock: Callable[[], float] = monotonic  # seconds
    _latest: Snapshot | None = None
    _sums: dict[str, tuple[int, _Sums]] = field(default_factory=dict)  # by group, as of its rest
    _due_s: float = 0.0
    _making: asyncio.Lock = field(default_factory=asyncio.Lock)

    async def latest(self) -> Snapshot:
        """The latest overview: at most OVERVIEW_S old, or OVERVIEW_S_MAX where it takes long to
        make.
        """
        async with self._making:
            began_s = self.clock()
            if self._latest is None or began_s >= self._due_s:
                portions = Portions(self.clock)
                self._latest = await self._make(portions)
                pause_s = OVERVIEW_PAUSE_FACTOR * portions.worked_s
                self._due_s = self.clock() + min(OVERVIEW_S_MAX, max(OVERVIEW_S, pause_s))
            return self._latest

    async def _make(self, portions: Portions) -> Snapshot:
        self.lags.watched()
        lags = await self.lags.by_group(portions)
        names = self.groups.names()
        self._sums = {name: self._sums[name] for name in names if name in self._sums}
        rows: dict[str, bytes] = {}
        for name in names[:OVERVIEW_GROUPS_MAX]:
            group = self.groups.get(name)
            if group is not None:  # not deleted meanwhile
                line = await self._line(group, lags.get(name, GroupLag()), portions)
                rows[name] = line.model_dump_json().encode()
                await portions.give_way()
        health = await self.health()
        await portions.give_way()
        head = OverviewHead(
            at_ms=self.windows.dependencies.now_ms(),
            health=HealthRow(**health.shown()),
            traffic=self.traffic(),
            groups_hidden=0,  # each caller has a number of its own
        )
        for_some = {"health": HealthRow(**health.outlined()), "traffic": None}
        outline = head.model_copy(update=for_some)
        return Snapshot(_opened(head), _opened(outline), rows, names[OVERVIEW_GROUPS_MAX:])

    async def _line(self, group: ShareGroup, lag: GroupLag, portions: Portions) -> GroupLine:
        sums = await self._sum(group.name, portions)
        history = self.histories.of(group.name)
        return GroupLine(
            group=group.name,
            state=group.state,
            members=len(group.members),
            topics=group.topics(),
            windows=self.windows.count_of(group.name),
            waiting=sums.waiting,
            lag=lag.records,
            lag_seconds=lag.seconds,
            in_flight=sums.in_flight,
            backing_off=sums.backing_off,
            dead_lettering=sums.dead_lettering,
            parked=self._parked(group.name, sums),
            draining_keys=sums.draining_keys,
            stuck=sums.stuck,
            held=lag.held,
            outcomes=dict(self.outcomes(group.name)),
            flow=flow_row(history.flow()),
            growing=history.growing(),
            stopped=self.histories.stopped(group.name),
            catches_up_s=history.catches_up_s(),
            lately=history.lately,
        )

    def _parked(self, group: str, sums: _Sums) -> int | None:
        all_up = bool(sums.up) and not sums.waiting
        return self.windows.parked.with_others(group, sums.parked, sums.up, all_up=all_up)

    async def _sum(self, group: str, portions: Portions) -> _Sums:
        """Over the windows of a group; those of a group at rest are not asked again."""
        rest = self.windows.ticks.rest_of(group)
        known = self._sums.get(group)
        if known is not None and known[0] == rest and not self._may_be_stuck(known[1]):
            return known[1]
        sums = _Sums()
        for at, window in enumerate(self.windows.of_group(group), 1):
            sums.add(window)
            if at % OVERVIEW_WINDOWS_AT_ONCE == 0:
                await portions.give_way()
        if rest is not None:
            self._sums[group] = (rest, sums)
        return sums

    def _may_be_stuck(self, sums: _Sums) -> bool:
        """The reader and the dead letters have their troubles while a group is at rest, too."""
        failing = self.windows.dependencies.unreadables.failing_partitions()
        return failing > 0 or sums.stuck > 0 or sums.dead_lettering > 0


def flow_row(flow: Flow) -> FlowRow:
    produced, delivered, settled = (None if rate is None else round(rate, 3) for rate in flow)
    return FlowRow(produced=produced, delivered=delivered, settled=settled)


def _opened(head: OverviewHead) -> bytes:
    return head.model_dump_json(exclude={"groups_hidden"}).encode().removesuffix(b"}")


@dataclass(slots=True)
class _Sums:
    """Over the windows of a group."""

    waiting: int = 0
    up: set[WindowKey] = field(default_factory=set)
    in_flight: int = 0
    backing_off: int = 0
    dead_lettering: int = 0
    parked: int = 0
    draining_keys: int = 0
    stuck: int = 0

    def add(self, window: Window) -> None:
        core = window.dispatcher
        if core is None:
            self.waiting += 1
            return
        self.up.add(window.key)
        held = core.held()
        self.in_flight += held.in_flight
        self.backing_off += held.backing_off
        self.dead_lettering += held.dead_lettering
        self.parked += held.parked
        self.draining_keys += core.draining[0]
        undelivered = held.dead_lettering > 0 and bool(window.dead_letter_trouble)
        held_up = core.holder >= 0
        self.stuck += window.unreadable is not None or undelivered or held_up
