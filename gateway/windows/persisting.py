"""The round trips to the store: one at a time, for everything that has gathered since the last."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

from dispatcher.core.life import Batch
from dispatcher.store.base import StoreError, WindowGone, WindowStore, Write
from gateway.windows.limits import STORE_RETRY_MS
from gateway.windows.store_availability import away
from gateway.windows.window import Window


@dataclass(slots=True)
class Persisting:
    store: WindowStore
    lost: bool = False  # the store has lost a window: all ask it with the next commit
    _unpersisted: dict[Window, None] = field(default_factory=dict)
    _wake: asyncio.Event = field(default_factory=asyncio.Event)
    _round_trip: asyncio.Lock = field(default_factory=asyncio.Lock)

    def soon(self, window: Window) -> None:
        """It has steps to persist."""
        self._unpersisted[window] = None
        self._wake.set()

    def forget(self, window: Window) -> None:
        self._unpersisted.pop(window, None)

    async def persist_forever(self) -> None:
        while True:
            await self._wake.wait()
            self._wake.clear()
            await self.persist()

    async def persist(self) -> bool:
        """One round trip for every window that has something to write; False: none had."""
        async with self._round_trip:
            windows, self._unpersisted = self._unpersisted, {}
            batches: list[tuple[Window, Batch]] = []
            for window in windows:
                batch = window.take_batch()
                if batch is not None:
                    batches.append((window, batch))
            if not batches:
                return False
            try:
                results = await self._apply([window.write_of(batch) for window, batch in batches])
            except BaseException as error:
                # Cancelled: any part may have been applied, so the windows are loaded again.
                for window, batch in batches:
                    window.not_persisted(batch, StoreError(f"interrupted: {error!r}"))
                raise
            for (window, batch), failure in zip(batches, results, strict=True):
                if failure is None:
                    window.persisted(batch)
                else:
                    self.lost = self.lost or isinstance(failure, WindowGone)
                    window.not_persisted(batch, failure)
            return True

    async def _apply(self, writes: list[Write]) -> list[StoreError | None]:
        """Tries failed writes once more: a Redis that was restarted leaves a dead connection, and
        to write the same again changes nothing.
        """
        results = await self.store.apply(writes)
        failed = [at for at, error in enumerate(results) if away(error)]
        if failed:
            await asyncio.sleep(STORE_RETRY_MS / 1000)
            again = await self.store.apply([writes[at] for at in failed])
            for at, error in zip(failed, again, strict=True):
                results[at] = error
        return results
