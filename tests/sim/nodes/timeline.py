"""Virtual time for several processes: each has an event loop of its own, which somebody else turns.

A loop that is not turned is a process that stands still (SIGSTOP), or is dead: none of its code
runs, while requests it has sent still arrive, and answers wait for it. When it goes on, all its
timers are late at once, as after a real standstill.
"""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import Callable
from typing import Any, cast

START_S = 1_000_000.0


class _NoFiles:
    """The selector of a loop that has no sockets."""

    def select(self, timeout: float | None) -> list[Any]:  # noqa: ARG002
        return []


class Loop(asyncio.BaseEventLoop):
    def __init__(self, timeline: Timeline, failed: Callable[[BaseException], None]) -> None:
        super().__init__()
        self._timeline = timeline
        self._selector = _NoFiles()
        self.stands_still = False

        def told(_: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
            if (error := context.get("exception")) is not None:
                failed(error)

        self.set_exception_handler(told)

    def time(self) -> float:
        return self._timeline.now_s

    def _process_events(self, event_list: list[Any]) -> None: ...

    def _write_to_self(self) -> None: ...

    @property
    def due_s(self) -> float | None:
        """When it has something to do; None: it waits for somebody else."""
        inside = cast(Any, self)
        if self.stands_still or self.is_closed():
            return None
        if inside._ready:
            return self._timeline.now_s
        return float(inside._scheduled[0]._when) if inside._scheduled else None

    def turn(self) -> None:
        """What is ready runs once."""
        asyncio._set_running_loop(self)
        try:
            cast(Any, self)._run_once()
        finally:
            asyncio._set_running_loop(None)

    def end(self) -> None:
        """Lets its tasks end, so that nothing of them is left for the garbage collector."""
        self.stands_still = False
        for _ in range(100):
            tasks = asyncio.all_tasks(self)
            if not tasks:
                break
            for task in tasks:
                task.cancel()
            self.turn()
        self.close()


class Timeline:
    def __init__(self) -> None:
        self.now_s = START_S
        self.loops: list[Loop] = []
        self.turns = 0
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._number = 0

    @property
    def now_ms(self) -> int:
        return round(self.now_s * 1000)

    def after(self, delay_ms: float, action: Callable[[], None]) -> None:
        """Outside of all processes: a fault, a message on its way."""
        self._number += 1
        heapq.heappush(self._events, (self.now_s + delay_ms / 1000, self._number, action))

    def step(self) -> None:
        """All that is due now; else time passes to what comes next."""
        busy = [loop for loop in self.loops if (at := loop.due_s) is not None and at <= self.now_s]
        if busy:
            for loop in busy:
                loop.turn()
                self.turns += 1
            return
        due = [at for loop in self.loops if (at := loop.due_s) is not None]
        if self._events and (not due or self._events[0][0] <= min(due)):
            at, _, action = heapq.heappop(self._events)
            self.now_s = max(self.now_s, at)
            action()
        else:
            self.now_s = min(due)
