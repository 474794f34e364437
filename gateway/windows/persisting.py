"""The round trips to the store: one at a time, for everything that has gathered since the last."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from dispatcher.core.life.batches import Batch
from dispatcher.store.base import Fence, FencedError, StoreError, WindowGone, Write
from gateway.windows.dependencies import Dependencies
from gateway.windows.failures import failure_of
from gateway.windows.limits import STORE_RETRY_MS
from gateway.windows.store_availability import away
from gateway.windows.window import Window


class Persister:
    """`when_gone`: hears of a window that the store has no more."""

    def __init__(
        self, dependencies: Dependencies, when_gone: Callable[[Window], None] | None = None
    ) -> None:
        self._when_gone = when_gone
        self.lost = False  # the store has lost a window: all ask it with the next commit
        self.when_lost: Callable[[], None] = lambda: None  # hears the first of them
        self._dependencies = dependencies
        self._unpersisted: dict[Window, None] = {}
        self._wake = asyncio.Event()
        self._round_trip = asyncio.Lock()

    def soon(self, window: Window) -> None:
        """The window has steps to persist."""
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
        """Writes the steps of every window that has some, in one round trip. False: none had."""
        async with self._round_trip:
            windows, self._unpersisted = self._unpersisted, {}
            batches: list[tuple[Window, Batch]] = []
            writes: list[Write] = []
            for window in windows:
                batch = window.life.take_batch()
                if batch is not None:
                    batches.append((window, batch))
                    writes.append(Write(window.key, Fence(batch.fence), batch.changes))
            if not batches:
                return False
            try:
                results = await self._apply(writes)
            except BaseException as error:
                # Cancelled: any part may have been applied, so the windows are loaded again.
                for window, batch in batches:
                    self._not_persisted(window, batch, StoreError(f"interrupted: {error!r}"))
                raise
            for (window, batch), failure in zip(batches, results, strict=True):
                if failure is None:
                    window.perform(window.life.persisted(batch))
                else:
                    if isinstance(failure, WindowGone) and not self.lost:
                        self.lost = True
                        self.when_lost()
                    self._not_persisted(window, batch, failure)
            return True

    def _not_persisted(self, window: Window, batch: Batch, error: StoreError) -> None:
        now_ms = self._dependencies.now_ms()
        commands = window.life.not_persisted(batch, failure_of(error), now_ms)
        if commands and isinstance(error, FencedError):
            self._dependencies.log.note(window.key.group, "window_fenced", window=repr(window))
            # Perhaps this node does not know yet that the window is another's: its virtual broker
            # has another owner, or its partition another leader. It must not claim it back again.
            self._dependencies.owners.look_soon()
            self._dependencies.upstream.request_refresh()
        window.perform(commands)
        if isinstance(error, WindowGone) and self._when_gone is not None:
            self._when_gone(window)

    async def _apply(self, writes: list[Write]) -> list[StoreError | None]:
        """Tries failed writes once more: a Redis that was restarted leaves a dead connection, and
        to write the same again changes nothing.
        """
        results = await self._dependencies.store.apply(writes)
        failed = [at for at, error in enumerate(results) if away(error)]
        if failed:
            await asyncio.sleep(STORE_RETRY_MS / 1000)
            again = await self._dependencies.store.apply([writes[at] for at in failed])
            for at, error in zip(failed, again, strict=True):
                results[at] = error
        return results
