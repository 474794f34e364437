"""One connection to Redis for the steps of all windows: calls leave at once, one behind the other,
and their answers come in the same order.

redis-py makes the connection, with all that a URL may say of TLS and passwords. Then hiredis alone
reads it: redis-py's coroutines take longer for a step than Redis does.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Any

import hiredis
from redis.asyncio.connection import AbstractConnection
from redis.exceptions import ConnectionError as LineLost
from redis.exceptions import NoScriptError, RedisError, ResponseError


def _refused(text: str) -> RedisError:
    """An answer that is an error: as a value, not raised."""
    return NoScriptError(text) if text.startswith("NOSCRIPT") else ResponseError(text)


class Line(asyncio.Protocol):
    """Use one that `opened` gives. It ends with the first call that is not answered in time."""

    def __init__(self, timeout_s: float) -> None:
        self.is_open = True
        self._timeout_s = timeout_s
        self._loop = asyncio.get_running_loop()
        self._reader = hiredis.Reader(replyError=_refused)
        self._calls: deque[_Call] = deque()
        self._watch: asyncio.TimerHandle | None = None
        self._writer: asyncio.StreamWriter  # redis-py's

    @classmethod
    async def opened(cls, connection: AbstractConnection, timeout_s: float) -> Line:
        """Raises RedisError, OSError, TimeoutError."""
        line = cls(timeout_s)
        try:
            async with asyncio.timeout(timeout_s):
                await connection.connect()  # type: ignore[no-untyped-call]
        except BaseException:
            await connection.disconnect(nowait=True)
            raise
        writer = connection._writer
        assert writer is not None, "it is connected"
        connection._writer = connection._reader = None  # It would close what is not its own now.
        line._writer = writer
        writer.transport.set_protocol(line)
        return line

    def call(self, data: bytes, answers: int) -> asyncio.Future[list[Any]]:
        """Sends commands that have so many answers; an answer that is an error is one of them. The
        future raises RedisError, OSError or TimeoutError once the line has ended.
        """
        future: asyncio.Future[list[Any]] = self._loop.create_future()
        now = self._loop.time()
        self._calls.append(_Call(future, answers, now + self._timeout_s))
        if self._watch is None:
            self._watch = self._loop.call_later(self._timeout_s, self._look)
        self._writer.transport.write(data)
        return future

    def data_received(self, data: bytes) -> None:
        self._reader.feed(data)
        try:
            while self._calls and (answer := self._reader.gets()) is not False:
                call = self._calls[0]
                call.answers.append(answer)
                if len(call.answers) == call.wanted:
                    self._calls.popleft()
                    if not call.future.done():  # else its caller has given up
                        call.future.set_result(call.answers)
        except hiredis.HiredisError as error:
            self.end(LineLost(f"not Redis's protocol: {error}"))

    def eof_received(self) -> None:
        self.end(LineLost("Connection closed by server."))

    def connection_lost(self, error: Exception | None) -> None:
        self.end(error or LineLost("Connection closed by server."))

    def end(self, error: Exception) -> None:
        """Ends the line. All calls that are not answered fail: what Redis did for them is not
        known.
        """
        if not self.is_open:
            return
        self.is_open = False
        if self._watch is not None:
            self._watch.cancel()
        self._writer.transport.abort()
        for call in self._calls:
            if not call.future.done():
                call.future.set_exception(error)
        self._calls.clear()

    def _look(self) -> None:
        self._watch = None
        if not self._calls:
            return
        left_s = self._calls[0].deadline - self._loop.time()
        if left_s <= 0:
            self.end(TimeoutError())
        else:
            self._watch = self._loop.call_later(left_s, self._look)


class _Call:
    __slots__ = ("answers", "deadline", "future", "wanted")

    def __init__(self, future: asyncio.Future[list[Any]], wanted: int, deadline: float) -> None:
        self.future = future
        self.wanted = wanted
        self.deadline = deadline
        self.answers: list[Any] = []
