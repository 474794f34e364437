"""The watchdog: ticks windows in which something is due, drops idle ones, evicts members."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

import structlog

from dispatcher.core.model import MemberId
from gateway.members.evictions import Evictions
from gateway.members.limits import TICK_MS
from gateway.windows.committing import Committer
from gateway.windows.limits import OFFSETS_PER_TICK, TICKED_AT_ONCE, TOPIC_UNUSED_MS
from gateway.windows.table import WindowTable

log = structlog.get_logger("keyway.windows")


@dataclass(frozen=True, slots=True)
class Watchdog:
    table: WindowTable
    evictions: Evictions
    committer: Committer

    async def watch_forever(self) -> None:
        dependencies = self.table.dependencies
        swept_ms = dependencies.now_ms()
        while True:
            await asyncio.sleep(TICK_MS / 1000)
            dependencies.log.write_due()
            now_ms = dependencies.now_ms()
            if now_ms - swept_ms >= TOPIC_UNUSED_MS:
                swept_ms = now_ms
                self._sweep_topics()
            await self._tick(now_ms)
            # Members evicted now were not held up by their locks before.
            await self.evictions.tick(now_ms)
            await self._drop_idle(now_ms)

    async def _tick(self, now_ms: int) -> None:
        """The windows in which something has happened, or is due."""
        table, ready = self.table, self.table.dependencies.ready
        waiting: dict[tuple[str, int], frozenset[MemberId]] = {}
        left = TICKED_AT_ONCE
        for window in table.ticks.take(now_ms):
            if table.find(window.key) is window:
                self.committer.look_at(window)
                place = (window.key.group, window.leader)
                if place not in waiting:
                    waiting[place] = ready.waiting(*place)
                table.ticks.rests(window, window.tick(now_ms, waiting[place]), now_ms)
                # A member that falls silent gives all its keys away: a pass over the span.
                left -= window.unsettled_span // OFFSETS_PER_TICK
            left -= 1
            if left <= 0:
                left = TICKED_AT_ONCE
                await asyncio.sleep(0)

    async def _drop_idle(self, now_ms: int) -> None:
        for at, window in enumerate(self.table.idle.tick(now_ms), 1):
            if self.table.idle.still_idle(window) and window.life.may_leave():
                log.info("window_closed_idle", window=repr(window))
                self.table.drop(window.key)
            if at % TICKED_AT_ONCE == 0:
                await asyncio.sleep(0)

    def _sweep_topics(self) -> None:
        used = {window.partition.topic for window in self.table.all()}
        for group in self.evictions.groups.all():
            used.update(group.topics())
        self.table.topics.sweep(used)
