"""Where logs begin, for windows that do not learn it from what they read.

Retention settles what it deletes. A window that reads hears of it with its next records. But one
that has no room reads nothing, and a parked record may be the last one of its partition. So the
leaders are asked now and then about windows whose oldest record still waits since the last look.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from itertools import islice

from dispatcher.core.model import LogTruncated
from gateway.core.reading.fetching import leader_of
from gateway.upstream.cluster import EARLIEST, READ_UNCOMMITTED
from gateway.upstream.errors import UpstreamError
from gateway.upstream.requests import offsets_at_leader
from gateway.windows.limits import LOG_STARTS_AT_ONCE, LOG_STARTS_MS, LOG_STARTS_S_MAX
from gateway.windows.table import WindowTable
from gateway.windows.window import Window

Place = tuple[str, int]  # topic, partition


@dataclass(slots=True)
class LogStarts:
    table: WindowTable
    _cursors: dict[Window, int] = field(default_factory=dict)  # of the last look

    async def look_forever(self) -> None:
        while True:
            await asyncio.sleep(LOG_STARTS_MS / 1000)
            await self.look()

    async def look(self) -> None:
        """Asks about windows whose cursor has stood since the last look, with records behind it."""
        before, self._cursors = self._cursors, {}
        by_leader: dict[int, dict[Place, list[Window]]] = {}
        topology = self.table.dependencies.upstream.topology
        for at, window in enumerate(self.table.all(), 1):
            core = window.dispatcher
            if core is not None and core.cursor < core.known_end:
                self._cursors[window] = core.cursor
                leader = leader_of(topology, window.partition)
                if before.get(window) == core.cursor and leader is not None:
                    place = (window.partition.topic, window.partition.partition)
                    by_leader.setdefault(leader, {}).setdefault(place, []).append(window)
            if at % LOG_STARTS_AT_ONCE == 0:
                await asyncio.sleep(0)
        for leader, led in by_leader.items():
            for first in range(0, len(led), LOG_STARTS_AT_ONCE):
                await self._ask(
                    leader, dict(islice(led.items(), first, first + LOG_STARTS_AT_ONCE))
                )

    async def _ask(self, leader: int, led: dict[Place, list[Window]]) -> None:
        dependencies = self.table.dependencies
        # A time limit of the call itself would end the connection, which others wait on, too.
        try:
            async with asyncio.timeout(LOG_STARTS_S_MAX):
                answers = await offsets_at_leader(
                    dependencies.upstream, leader, led, EARLIEST, READ_UNCOMMITTED
                )
        except (UpstreamError, TimeoutError):
            return  # gateway/upstream/cluster.py has logged it; the next look asks again
        for place, (code, start) in answers.items():
            for window in led[place] if code == 0 else ():
                core = window.dispatcher
                if core is not None and start > core.cursor:
                    window.post(LogTruncated(start, dependencies.now_ms()))
