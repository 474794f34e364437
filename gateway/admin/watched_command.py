"""A command that prints its answer again and again, as long as somebody asks for it.

It runs as a process of its own: the packages it needs stay out of the node, and a cluster that
hangs holds up nothing here. To start one takes seconds of CPU, so it stays for the next question;
STATUS_IDLE_MS after the last one it is ended.
"""

from __future__ import annotations

import asyncio
from asyncio.subprocess import PIPE, Process, create_subprocess_exec
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from gateway.admin.limits import (
    STATUS_BYTES_MAX,
    STATUS_IDLE_MS,
    STATUS_KEPT_MS,
    STATUS_PROBLEMS_SHOWN,
    STATUS_S_MAX,
)


class CommandFailed(Exception):
    """The reason, in a line."""


@dataclass(frozen=True, slots=True)
class Look:
    """One answer: JSON, and the lines that stood on stderr before it."""

    at_ms: int
    text: bytes
    problems: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Failure:
    at_ms: int
    reason: str


@dataclass(slots=True)
class WatchedCommand:
    """`words` print a line of JSON for each look. `file`: they are started anew when it changes."""

    name: str
    words: Sequence[str]
    file: Path
    now_ms: Callable[[], int]
    _outcome: Look | Failure | None = None
    _told: asyncio.Event = field(default_factory=asyncio.Event)  # there is an outcome
    _wanted: asyncio.Event = field(default_factory=asyncio.Event)
    _wanted_ms: int = 0

    async def latest(self) -> Look:
        """Raises CommandFailed, and the same again for STATUS_KEPT_MS."""
        self._wanted_ms = self.now_ms()
        kept = self._outcome
        if isinstance(kept, Failure):
            if self._wanted_ms - kept.at_ms < STATUS_KEPT_MS:
                raise CommandFailed(kept.reason)
            self._tell(None)
        while self._outcome is None:
            self._wanted.set()
            await self._told.wait()
        self._wanted.set()
        if isinstance(self._outcome, Failure):
            raise CommandFailed(self._outcome.reason)
        return self._outcome

    async def run(self) -> None:
        """Runs until it is cancelled: the node stops, and the waiting callers are told."""
        try:
            while True:
                await self._wanted.wait()
                try:
                    await self._follow()
                except CommandFailed as error:
                    self._wanted.clear()
                    self._tell(Failure(self.now_ms(), f"{self.name}: {error}"))
        finally:
            self._tell(Failure(self.now_ms(), "the node stops"))

    def _tell(self, outcome: Look | Failure | None) -> None:
        self._outcome = outcome
        if outcome is None:
            self._told.clear()
        else:
            self._told.set()

    async def _follow(self) -> None:
        """The looks of one process, until nobody asks or the file is another. Raises
        CommandFailed.
        """
        written, failure = self._written(), None
        process = await self._started()
        said: deque[str] = deque(maxlen=STATUS_PROBLEMS_SHOWN)
        try:
            async with asyncio.TaskGroup() as tasks:
                listening = tasks.create_task(_listen(process, said))
                try:
                    await self._looks(process, said, listening, written)
                except CommandFailed as error:
                    failure = error
                finally:
                    if process.returncode is None:
                        process.kill()  # which ends the listening, too
        finally:
            await process.communicate()  # the rest of its pipes, so that they are closed
        if failure is not None:
            raise failure

    async def _started(self) -> Process:
        """Raises CommandFailed."""
        try:
            return await create_subprocess_exec(
                *self.words, stdout=PIPE, stderr=PIPE, limit=STATUS_BYTES_MAX
            )
        except OSError as error:
            raise CommandFailed(f"it cannot be started: {error.strerror}") from None

    async def _looks(
        self, process: Process, said: deque[str], listening: asyncio.Task[None], written: int
    ) -> None:
        while self._asked_for():
            text = await _line(process)
            await asyncio.sleep(0)  # for the lines that stood on stderr before it
            if not text:
                await listening
                raise CommandFailed(said[-1] if said else "it ended without an answer")
            if self._written() != written:
                self._wanted.set()
                break
            self._tell(Look(self.now_ms(), text, tuple(said)))
            said.clear()
        self._tell(None)  # before anything is awaited: a caller who asks now gets a new look

    def _asked_for(self) -> bool:
        self._wanted.clear()
        return self.now_ms() - self._wanted_ms < STATUS_IDLE_MS

    def _written(self) -> int:
        """The time of the file's last change; 0: it is not there, and the command says so."""
        try:
            return self.file.stat().st_mtime_ns
        except OSError:
            return 0


async def _line(process: Process) -> bytes:
    """The next line of JSON; empty: the process has ended. Raises CommandFailed."""
    assert process.stdout is not None
    try:
        async with asyncio.timeout(STATUS_S_MAX):
            text = await process.stdout.readline()
    except TimeoutError:
        raise CommandFailed(f"no answer in {STATUS_S_MAX} s: is a cluster away?") from None
    except ValueError:
        raise CommandFailed(f"an answer of more than {STATUS_BYTES_MAX} bytes") from None
    if text and not text.startswith((b"{", b"[")):
        raise CommandFailed("its answer is not JSON")
    return text


async def _listen(process: Process, said: deque[str]) -> None:
    assert process.stderr is not None
    with suppress(ValueError):  # a line without an end
        async for line in process.stderr:
            text = line.decode(errors="replace").strip()
            if text:
                said.append(text.removeprefix("keyway: "))
