"""The answers that callers of a window wait for, by ticket."""

from __future__ import annotations

import asyncio
from collections.abc import Generator

from dispatcher.core.life.commands import Ticket
from dispatcher.core.steps import Effect
from gateway.windows.failures import WindowUnavailable


class Answered:
    """The effects of an event, once it is persisted; to be awaited, which may raise
    WindowUnavailable.

    No future, unless somebody waits: the events of one request are answered together, so only the
    first of them is ever waited for.
    """

    def __init__(self) -> None:
        self._effects: list[Effect] | None = None
        self._why = ""  # it was refused
        self._future: asyncio.Future[None] | None = None

    def done(self) -> bool:
        return self._effects is not None or self._why != ""

    def __await__(self) -> Generator[object, None, list[Effect]]:
        while self._effects is None:
            if self._why:
                raise WindowUnavailable(self._why)
            if self._future is None or self._future.done():  # a caller has given up before
                self._future = asyncio.get_running_loop().create_future()
            yield from self._future.__await__()
        return self._effects

    def answer(self, effects: list[Effect]) -> None:
        self._effects = effects
        self._wake()

    def refuse(self, why: str) -> None:
        self._why = why or "unavailable"
        self._wake()

    def _wake(self) -> None:
        if self._future is not None and not self._future.done():
            self._future.set_result(None)


class Tickets:
    def __init__(self) -> None:
        self._last = 0
        self._waiting: dict[Ticket, Answered] = {}

    def issue(self) -> tuple[Ticket, Answered]:
        answered = Answered()
        self._last += 1
        ticket = Ticket(self._last)
        self._waiting[ticket] = answered
        return ticket, answered

    def answer(self, ticket: Ticket, effects: list[Effect]) -> None:
        self._waiting.pop(ticket).answer(effects)

    def refuse(self, ticket: Ticket, why: str) -> None:
        self._waiting.pop(ticket).refuse(why)
