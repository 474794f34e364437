"""The bounds of all connections together, for bytes and for patience.

Requests that the gateway answers and answers that clients have not taken have a limit each, so that
one kind never takes the room of the other. A request makes its room at once, by closing the
connection with the longest one. An answer is cut to the room there is; a client that takes nothing
of its own loses its connection.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Protocol

from gateway.core.forwarding.held_bytes import HeldBytes
from gateway.core.forwarding.turns import Turns
from gateway.listen.counters import Refused
from gateway.listen.limits import (
    ANSWER_BYTES_MIN,
    ANSWER_IDLE_MS,
    ANSWER_RESTING_MS,
    ANSWER_SHARE,
    ANSWER_STALLED_MS,
    ANSWERS_HELD_BYTES_MAX,
    FORWARDED_HELD_MS,
    HELD_BYTES_MAX,
    HELD_LOOK_S,
    REQUEST_STALLED_MS,
    REQUESTS_HELD_BYTES_MAX,
    WHOLE_READING_MS,
    WHOLE_REQUESTS_BYTES_MAX,
    WHOLE_STILL_MS,
)
from gateway.listen.unsent import Unsent


class Bounded(Protocol):
    """A connection, as its bounds see it."""

    @property
    def unread_bytes(self) -> int:
        """How many bytes of its answers a client has not read; 0 while it takes them."""

    @property
    def waits_for_request(self) -> bool:
        """Whether nothing but the client's own bytes is missing."""

    def refuse(self, reason: Refused, held_bytes: int) -> None:
        """Closes it at once."""


class Bounds:
    """`find` gives the connection of an id, None once it is gone."""

    def __init__(self, find: Callable[[int], Bounded | None], now_ms: Callable[[], int]) -> None:
        self.requests = HeldBytes(REQUESTS_HELD_BYTES_MAX)
        self.answers = HeldBytes(ANSWERS_HELD_BYTES_MAX)
        self.unsent = Unsent()
        self.whole = Turns(WHOLE_REQUESTS_BYTES_MAX)
        self._go_on: dict[int, Callable[[], None]] = {}  # of connections that wait for theirs
        self.now_ms = now_ms
        self._find = find

    def hold_request(self, connection: int, held: int) -> None:
        now_ms = self.now_ms()
        self.requests.hold(connection, held, now_ms)
        self._refuse(self.requests, self.requests.excess(now_ms), Refused.REQUESTS_HELD)

    def begin_whole(self, connection: int, size: int, go_on: Callable[[], None]) -> bool:
        """False: `go_on` is called when its turn has come."""
        begun = self.whole.begin(connection, size, self.now_ms())
        if not begun:
            self._go_on[connection] = go_on
        return begun

    def whole_came(self, connection: int) -> None:
        """Some more of a request that is read whole."""
        self.whole.came(connection, self.now_ms())

    def end_whole(self, connection: int) -> None:
        self._go_on.pop(connection, None)
        for each in self.whole.end(connection, self.now_ms()):
            self._go_on.pop(each)()

    def hold_answer(self, connection: int, held: int) -> None:
        self.answers.hold(connection, held, self.now_ms())

    def answer_room(self) -> int:
        """Bytes that one more answer may be."""
        return max(self.answers.left // ANSWER_SHARE, ANSWER_BYTES_MIN)

    def has_room(self, answer_bytes: int) -> bool:
        """Whether there is room for an answer that cannot be cut. Alone it may be of any size."""
        small = answer_bytes <= ANSWER_BYTES_MIN
        return small or answer_bytes <= self.answers.left or self.answers.total == 0

    def forget(self, connection: int) -> None:
        self.requests.hold(connection, 0, 0)
        self.answers.hold(connection, 0, 0)

    async def look_forever(self) -> None:
        while True:
            await asyncio.sleep(HELD_LOOK_S)
            self.look()

    def look(self) -> None:
        """Closes the connections whose clients have used up their patience."""
        now_ms = self.now_ms()
        for each in self.requests.stalled(now_ms, resting_ms=REQUEST_STALLED_MS):
            connection = self._find(each)
            if connection is not None and connection.waits_for_request:
                self._refuse(self.requests, [each], Refused.REQUEST_STALLED)
        for each in self.whole.overdue(now_ms, WHOLE_READING_MS, WHOLE_STILL_MS):
            connection = self._find(each)
            if connection is not None and connection.waits_for_request:
                connection.refuse(Refused.REQUEST_STALLED, 0)
            else:
                self.end_whole(each)
        answers = self.answers
        for each in answers.holders():
            connection = self._find(each)
            # An answer that is still being made has not reached the socket: it is as it was.
            if connection is not None and connection.unread_bytes:
                answers.hold(each, connection.unread_bytes, now_ms)
        large = HELD_BYTES_MAX + 1
        stalled = answers.stalled(now_ms, resting_ms=ANSWER_STALLED_MS, bytes_min=large)
        self._refuse(answers, self._unread(stalled), Refused.ANSWER_STALLED)
        idle = answers.stalled(now_ms, resting_ms=ANSWER_IDLE_MS)
        self._refuse(answers, self._unread(idle), Refused.ANSWER_STALLED)
        over = answers.excess(now_ms, resting_ms=ANSWER_RESTING_MS, bytes_min=large)
        over = over or answers.excess(now_ms, held_ms=FORWARDED_HELD_MS)
        self._refuse(answers, self._unread(over), Refused.ANSWERS_HELD)

    def _unread(self, connections: list[int]) -> list[int]:
        return [
            each
            for each in connections
            if (connection := self._find(each)) is not None and connection.unread_bytes
        ]

    def _refuse(self, of: HeldBytes, connections: list[int], reason: Refused) -> None:
        for each in connections:
            connection = self._find(each)
            if connection is not None:
                connection.refuse(reason, of.held(each))


class AnswerRoom:
    """The room for answers, as one connection uses it."""

    def __init__(self, bounds: Bounds, connection: int) -> None:
        self._bounds = bounds
        self._connection = connection
        self._ended = False

    def bytes_max(self) -> int:
        """Bytes that one more answer may be."""
        return self._bounds.answer_room()

    def has(self, answer_bytes: int) -> bool:
        """Whether there is room for an answer that cannot be cut."""
        return self._bounds.has_room(answer_bytes)

    def hold(self, held_bytes: int) -> None:
        """Counts an answer that is being made, or that the client has not taken."""
        self._bounds.hold_answer(self._connection, 0 if self._ended else held_bytes)

    def end(self) -> None:
        self._ended = True
