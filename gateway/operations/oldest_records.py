"""The time of the oldest record that a group has not settled, per partition: its lag in seconds.

The record is the first one at the cursor or behind it. Windows in memory mostly have it in the
cache of batches. Otherwise it is read from upstream at a look (lag.py): once for a cursor, and
again every minute, since retention may have taken it. The age itself is computed when somebody
asks: that of a stopped group grows.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from dispatcher.store.base import WindowKey
from gateway.core.reading.cache import Source
from gateway.operations.limits import LAGS_AT_ONCE, OLDEST_AT_ONCE, OLDEST_PER_LOOK
from gateway.reading.record_times import Seen
from gateway.upstream.errors import UpstreamError


class RecordTimesView(Protocol):
    """gateway.reading.record_times.RecordTimes"""

    def in_cache(self, source: Source, position: int) -> Seen | None: ...
    async def look(self, source: Source, position: int) -> Seen: ...


class CursorPosition(NamedTuple):
    """Where the oldest unsettled record of a window is, or nothing before it."""

    source: Source
    cursor: int


@dataclass(slots=True)
class OldestRecords:
    times: RecordTimesView
    _seen: dict[WindowKey, tuple[CursorPosition, Seen]] = field(  # the latest last
        default_factory=dict
    )

    def timestamp_ms(self, key: WindowKey, place: CursorPosition) -> int | None:
        """The timestamp of the oldest record at `place` or behind it. None: not known, or it has
        none.
        """
        seen = self._known(key, place) or self.times.in_cache(*place)
        stamp = None if seen is None else seen.timestamp_ms
        return None if stamp is None or stamp < 0 else stamp

    def empty_until(self, key: WindowKey, place: CursorPosition) -> int:
        """The offset up to which, as far as is known, there is no record behind the cursor."""
        seen = self._known(key, place)
        return place.cursor if seen is None or seen.offset is not None else seen.end

    def forget(self, keys: Iterable[WindowKey]) -> None:
        for key in keys:
            self._seen.pop(key, None)

    def remember(self, key: WindowKey, place: CursorPosition) -> None:
        """Notes one that the cache has now: it may lose it later."""
        if self._known(key, place) is None:
            seen = self.times.in_cache(*place)
            if seen is not None:
                self._note(key, place, seen)

    async def look(
        self, places: Mapping[WindowKey, CursorPosition], *, again: bool
    ) -> list[WindowKey]:
        """Asks upstream for the oldest records that are not known, beginning with those that were
        asked for longest ago. A record that upstream does not tell stays as it was. `again`: ask
        also for records that are known and not in the cache, since retention may have taken them.
        Returns the windows whose oldest record is not known now.
        """
        wanted: list[tuple[WindowKey, CursorPosition]] = []
        for at, (key, place) in enumerate(places.items(), 1):
            if self._wanted(key, place, again=again):
                wanted.append((key, place))
            if at % LAGS_AT_ONCE == 0:
                await asyncio.sleep(0)
        if not wanted:
            return []
        turn = {key: at for at, key in enumerate(self._seen)}
        wanted.sort(key=lambda row: turn.get(row[0], -1))
        chosen = wanted[:OLDEST_PER_LOOK]
        for at in range(0, len(chosen), OLDEST_AT_ONCE):
            await self._ask(chosen[at : at + OLDEST_AT_ONCE])
        return [key for key, place in wanted if self._wanted(key, place, again=False)]

    async def _ask(self, rows: Iterable[tuple[WindowKey, CursorPosition]]) -> None:
        async with asyncio.TaskGroup() as tasks:
            for key, place in rows:
                tasks.create_task(self._ask_one(key, place))

    async def _ask_one(self, key: WindowKey, place: CursorPosition) -> None:
        try:
            seen = await self.times.look(place.source, self.empty_until(key, place))
        except UpstreamError:  # gateway/upstream/cluster.py has logged it
            seen = self._known(key, place) or Seen(place.cursor)  # the others come first next time
        self._note(key, place, seen)

    def _wanted(self, key: WindowKey, place: CursorPosition, *, again: bool) -> bool:
        known = self._known(key, place)
        if known is None or known.offset is None:
            return True
        return again and self.times.in_cache(*place) is None

    def _known(self, key: WindowKey, place: CursorPosition) -> Seen | None:
        of, seen = self._seen.get(key, (None, None))
        return seen if of == place else None

    def _note(self, key: WindowKey, place: CursorPosition, seen: Seen) -> None:
        self._seen.pop(key, None)
        self._seen[key] = (place, seen)
