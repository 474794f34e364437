"""Loads of windows: a few at a time, in turns of the connections that asked for them.

A client can ask for thousands of windows. Each load takes several round trips to the store and to
Kafka, so without turns the windows of everybody else would wait behind all of them.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field


@dataclass(slots=True)
class Turns:
    """A turn that takes longer than `slow_s` probably waits for something that is away. It stops
    counting, so the others do not wait with it.
    """

    at_once: int
    slow_s: float
    _running: int = 0
    _waiting: dict[int, deque[asyncio.Future[None]]] = field(default_factory=dict)  # by asker

    @asynccontextmanager
    async def turn(self, asker: int) -> AsyncIterator[None]:
        await self._begin(asker)
        over = False

        def end() -> None:
            nonlocal over
            if not over:
                over = True
                self._end()

        slow = asyncio.get_running_loop().call_later(self.slow_s, end)
        try:
            yield
        finally:
            slow.cancel()
            end()

    async def _begin(self, asker: int) -> None:
        if self._running < self.at_once:
            self._running += 1
            return
        granted: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(asker, deque()).append(granted)
        try:
            await granted
        except asyncio.CancelledError:
            if granted.done() and not granted.cancelled():
                self._end()  # it came in the same moment
            raise

    def _end(self) -> None:
        """The next asker's turn; who was served last waits longest."""
        while self._waiting:
            asker = next(iter(self._waiting))
            queue = self._waiting.pop(asker)
            granted = queue.popleft()
            if queue:
                self._waiting[asker] = queue
            if not granted.done():  # else it is cancelled
                granted.set_result(None)
                return
        self._running -= 1
