"""A window store that logs its absence and its return: one line per change, for any number of
waiting windows and attempts. It measures its round trips.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from time import perf_counter_ns

import structlog

from dispatcher.core.steps import Snapshot
from dispatcher.store.base import (
    Claimed,
    Counts,
    Fence,
    FencedError,
    StoreError,
    StoreRefuses,
    WindowGone,
    WindowKey,
    WindowStore,
    Write,
)
from gateway.core.times import Times
from gateway.windows.limits import ROUND_TRIP_BOUNDS_MS

log = structlog.get_logger("keyway.store")


def away(error: StoreError | None) -> bool:
    """The store failed. It does not mean that the caller was fenced or that the window is gone."""
    return error is not None and not isinstance(error, FencedError | WindowGone)


def _round_trips() -> Times:
    return Times([int(bound * 1e6) for bound in ROUND_TRIP_BOUNDS_MS])


@dataclass(slots=True)
class MonitoredStore:
    """A `WindowStore` in front of another."""

    store: WindowStore
    now_ms: Callable[[], int]
    round_trips: Times = field(default_factory=_round_trips)
    clock_ns: Callable[[], int] = perf_counter_ns
    _away_since_ms: int | None = None
    _refuses: bool = False  # it answers, and takes no writes

    async def claim(self, key: WindowKey, owner: str, generation: int = 0) -> Claimed:
        try:
            claimed = await self.store.claim(key, owner, generation)
        except StoreError as error:
            self._note(error)
            raise
        if not self._refuses:  # A claim may succeed without room for anything new.
            self._note(None)
        return claimed

    async def create(
        self, key: WindowKey, fence: Fence, snapshot: Snapshot, *, origin: int = 0
    ) -> None:
        try:
            await self.store.create(key, fence, snapshot, origin=origin)
        except StoreError as error:
            self._note(error)
            raise
        self._note(None)

    async def apply(self, writes: Sequence[Write]) -> list[StoreError | None]:
        began_ns = self.clock_ns()
        results = await self.store.apply(writes)
        self.round_trips.note(self.clock_ns() - began_ns)
        self._note(next((error for error in results if away(error)), None))
        return results

    async def release(self, key: WindowKey, fence: Fence) -> None:
        await self.store.release(key, fence)

    def forget(self, key: WindowKey) -> None:
        self.store.forget(key)

    async def delete(self, key: WindowKey) -> None:
        await self.store.delete(key)

    async def positions(self, group: str | None) -> dict[WindowKey, int]:
        return await self.store.positions(group)

    async def counts(self, keys: Sequence[WindowKey]) -> list[Counts]:
        return await self.store.counts(keys)

    async def close(self) -> None:
        await self.store.close()

    def _note(self, error: StoreError | None) -> None:
        since_ms = self._away_since_ms
        if away(error):
            self._refuses = isinstance(error, StoreRefuses)
            if since_ms is None:
                self._away_since_ms = self.now_ms()
                log.warning("store_away", reason=str(error))
        elif since_ms is not None:
            self._away_since_ms, self._refuses = None, False
            log.info("store_back", after_ms=self.now_ms() - since_ms)
