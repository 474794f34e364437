"""A file of settings that is read again when it changes, without a restart."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Generic, TypeVar

import structlog

from keyway.clusters.yaml_file import ConfigError
from keyway.file_state import stat_of

log = structlog.get_logger("keyway.listen")

_T = TypeVar("_T")


class WatchedFile(Generic[_T]):
    """`value` is what `read` made of the file as it could last be used. `read` raises
    ConfigError.
    """

    def __init__(self, path: Path, read: Callable[[], _T]) -> None:
        self.path = path
        self.problem: str | None = None  # why the file as it is now is not in use
        self._read = read
        self._seen = self._in_use = stat_of(path)
        self.value = read()

    async def look(self) -> bool:
        """True: there is a new value. A file that is being written is left alone: it is read once
        two looks in a row have seen the same.
        """
        state = stat_of(self.path)
        still, self._seen = state == self._seen, state
        if not still or state == self._in_use:
            return False
        before, self._in_use = self.problem, state
        try:
            # Beside the event loop: a long file takes seconds.
            self.value = await asyncio.to_thread(self._read)
        except ConfigError as error:
            self.problem = str(error)
            if self.problem != before:
                log.error("file_not_reloaded", file=str(self.path), detail=self.problem)
            return False
        self.problem = None
        log.info("file_reloaded", file=str(self.path))
        return True
