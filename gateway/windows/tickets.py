"""The futures of callers that wait for a window's answer, by ticket."""

from __future__ import annotations

import asyncio

from dispatcher.core.life.commands import Ticket
from dispatcher.core.model import Effect
from gateway.windows.failures import WindowUnavailable

Answered = asyncio.Future[list[Effect]]


class Tickets:
    def __init__(self) -> None:
        self._last = 0
        self._waiting: dict[Ticket, Answered] = {}

    def issue(self) -> tuple[Ticket, Answered]:
        future: Answered = asyncio.get_running_loop().create_future()
        future.add_done_callback(_retrieved)
        self._last += 1
        ticket = Ticket(self._last)
        self._waiting[ticket] = future
        return ticket, future

    def answer(self, ticket: Ticket, effects: list[Effect]) -> None:
        future = self._waiting.pop(ticket)
        if not future.done():
            future.set_result(effects)

    def refuse(self, ticket: Ticket, why: str) -> None:
        future = self._waiting.pop(ticket)
        if not future.done():
            future.set_exception(WindowUnavailable(why))


def _retrieved(future: Answered) -> None:
    """A client that hangs up leaves futures nobody awaits; the window has logged their failure."""
    if not future.cancelled():
        future.exception()
