"""The tasks that work for one client. A task of the node's TaskGroup that raises ends the node; one
of these ends its client's connection, whatever a stranger's bytes make it raise.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import structlog

from gateway.listen.counters import Counters
from keyway.repeated_lines import RepeatedLines

log = structlog.get_logger("keyway.connection")


Work = Callable[[], Coroutine[Any, Any, None]]


class ClientTasks:
    def __init__(self, tasks: asyncio.TaskGroup, counters: Counters, lines: RepeatedLines) -> None:
        self._tasks = tasks
        self._counters = counters
        self._lines = lines

    def start(self, work: Work, end: Callable[[], None]) -> asyncio.Task[None]:
        """`end` ends the client's connection; it is called if `work` raises."""
        return self._tasks.create_task(self._guarded(work, end))

    async def _guarded(self, work: Work, end: Callable[[], None]) -> None:
        working = work()  # Not before: this task may be cancelled before it begins.
        try:
            await working
        except Exception as bug:
            self._counters.connections_failed += 1
            where = getattr(working, "__qualname__", "")
            left_out = self._lines.due(("client_task_failed", where, type(bug)))
            if left_out is not None:
                log.exception("client_task_failed", task=where, left_out=left_out)
            end()
