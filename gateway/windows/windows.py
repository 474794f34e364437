"""The windows of a node: a table, and the parts that work on its windows, wired."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from gateway.config.file import Config
from gateway.members.evictions import Evictions
from gateway.windows.committing import Committer
from gateway.windows.dependencies import Dependencies
from gateway.windows.log_starts import LogStarts
from gateway.windows.news import WindowNews
from gateway.windows.persisting import Persister
from gateway.windows.table import WindowTable
from gateway.windows.watchdog import Watchdog


class Windows:
    def __init__(
        self,
        config: Config,
        evictions: Evictions,
        dependencies: Dependencies,
        tasks: asyncio.TaskGroup,
        *,
        key_filters_loaded: Callable[[], bool],
    ) -> None:
        groups = evictions.groups
        self.persister = Persister(dependencies, lambda window: self.table.drop_unused(window))
        self.table = WindowTable(
            dependencies,
            groups,
            tasks,
            key_filters_loaded=key_filters_loaded,
            persist_soon=self.persister.soon,
        )
        self.committer = Committer(self.table, self.persister, config.state.commit_interval_ms)
        self.watchdog = Watchdog(self.table, evictions, self.committer)
        self.log_starts = LogStarts(self.table)
        self.news = WindowNews(self.table, groups)
        self.table.on_loaded(lambda window, _: self.committer.loaded(window))
        self.table.on_dropped(self.persister.forget)
        self.table.on_dropped(self.committer.forget)
        self.table.on_dropped(lambda window: dependencies.store.forget(window.key))

    @property
    def background(self) -> tuple[Callable[[], Coroutine[Any, Any, None]], ...]:
        """What runs as long as the node."""
        return (
            self.watchdog.watch_forever,
            self.log_starts.look_forever,
            self.persister.persist_forever,
            self.committer.commit_forever,
            self.committer.commit_loaded_forever,
        )

    async def stop(self) -> None:
        """Persists and commits everything, then drops all windows. Leases stay in the store for
        the next start.
        """
        table = self.table
        table.stopping = True
        for window in table.all():
            window.perform(window.life.stop_reads())
        try:
            while await self.persister.persist():
                pass
            await self.committer.commit()
        finally:
            for window in table.all():
                table.drop(window.key)
            table.dependencies.log.write_rest()
