"""Connections to REST: how many there are, and how long one may take for a request.

A stranger can open as many as it likes, and send half a request on each. uvicorn's own limit counts
whole requests only, and its one timer begins behind an answer.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
import time
from collections.abc import Callable
from typing import cast

import structlog
from uvicorn.protocols.http.h11_impl import H11Protocol, RequestResponseCycle

from keyway.repeated_lines import RepeatedLines
from keyway.rest.limits import REST_ACCEPT_AGAIN_S, REST_HANDSHAKE_S_MAX, REST_WAIT_S_MAX

log = structlog.get_logger("keyway.rest")


class CallerSide(H11Protocol):
    """One connection. It ends once it has waited for its client for REST_WAIT_S_MAX."""

    def __init__(self, *arguments: object, **named: object) -> None:
        super().__init__(*arguments, **named)  # type: ignore[arg-type]
        self.gone = asyncio.Event()
        self._patience: asyncio.TimerHandle | None = None
        self._unread_bytes = 0  # of answers, when the waiting began

    @property
    def made(self) -> asyncio.Transport | None:
        """None: there is a socket, and no handshake yet. uvicorn's own types leave None out."""
        return self.transport

    @property
    def waits(self) -> bool:
        """For its client: for a handshake, for the rest of a request, to take an answer. Else a
        request is being answered.
        """
        made = self.made
        if made is None or made.is_closing() or self.flow.write_paused:
            return True
        cycle = cast("RequestResponseCycle | None", self.cycle)
        return cycle is None or cycle.response_complete or cycle.more_body

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)  # type: ignore[arg-type]
        self._look()

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        if self._patience is not None:
            self._patience.cancel()
        self.gone.set()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._look()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._look()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._look()

    def resume_writing(self) -> None:
        super().resume_writing()
        self._look()

    def _look(self) -> None:
        if self._patience is None and self.waits:
            self._wait()
        elif self._patience is not None and not self.waits:
            self._patience.cancel()
            self._patience = None

    def _wait(self) -> None:
        self._unread_bytes = self.transport.get_write_buffer_size()
        self._patience = self.loop.call_later(REST_WAIT_S_MAX, self._late)

    def _late(self) -> None:
        """A client that takes its answer slowly gets all of it."""
        if 0 < self.transport.get_write_buffer_size() < self._unread_bytes:
            self._wait()
        else:
            self.gone.set()


class RestConnections:
    """At most `connections_max`, counted from the moment they are accepted. One more takes the
    place of the one that has waited for its client since it came: whoever holds many open keeps
    nobody out. If all are being answered, it is closed.
    """

    def __init__(
        self,
        connections_max: int,
        made: Callable[[], CallerSide],
        context: ssl.SSLContext | None,
    ) -> None:
        self._max = connections_max
        self._made = made
        self._context = context
        self._lines = RepeatedLines(lambda: time.monotonic_ns() // 1_000_000)
        self._open: dict[CallerSide, asyncio.Task[None]] = {}  # the oldest first

    @property
    def open(self) -> int:
        return len(self._open)

    async def accept_forever(self, listening: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        async with asyncio.TaskGroup() as tasks:
            while True:
                try:
                    accepted, _ = await loop.sock_accept(listening)
                except OSError:  # no open file is left, or the client has gone
                    await asyncio.sleep(REST_ACCEPT_AGAIN_S)
                    continue
                if not self._has_room():
                    accepted.close()
                    continue
                caller = self._made()
                self._open[caller] = tasks.create_task(self._serve(caller, accepted))

    def _has_room(self) -> bool:
        if len(self._open) < self._max:
            return True
        oldest = next((caller for caller in self._open if caller.waits), None)
        if oldest is None:
            return False
        self._open.pop(oldest).cancel()
        return True

    async def _serve(self, caller: CallerSide, accepted: socket.socket) -> None:
        """Lasts as long as the connection."""
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(REST_HANDSHAKE_S_MAX):
                await loop.connect_accepted_socket(lambda: caller, accepted, ssl=self._context)
            await caller.gone.wait()
        except (OSError, TimeoutError):
            pass  # no handshake
        except Exception:  # A bug that one caller meets costs its connection.
            left_out = self._lines.due("rest_connection_failed")
            if left_out is not None:
                log.exception("rest_connection_failed", left_out=left_out)
        finally:
            if caller.made is None:
                accepted.close()
            else:
                caller.made.abort()
            self._open.pop(caller, None)
