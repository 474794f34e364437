"""The sockets of a client and of the broker behind it, and the bytes on their way between them.

The upstream connection is made when there are bytes for it. Bytes go on as the objects that were
read. When a socket does not take them, the other one is not read: at most HELD_BYTES_MAX are kept
in each direction. A client that does not take its answers is not read either.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from gateway.core.forwarding.connection_state import ConnectionState
from gateway.listen.bounds import AnswerRoom
from gateway.listen.connection_facts import ConnectionFacts
from gateway.listen.counters import Counters
from gateway.listen.limits import CLOSE_FLUSH_S, PAUSE_ABOVE_BYTES
from gateway.listen.unsent import Unsent, UnsentOfOne


class SocketPair:
    def __init__(
        self,
        facts: ConnectionFacts,
        counters: Counters,
        room: AnswerRoom,
        unsent: Unsent,
        *,
        connect: Callable[[], object],  # `connected` follows, or `not_connected`
        state: ConnectionState,
    ) -> None:
        self.client: asyncio.Transport | None = None
        self.upstream: asyncio.Transport | None = None
        self.connecting = False
        self.client_takes = True  # its socket buffer is not full
        self.client_took = asyncio.Event()
        self.client_read = True
        self.muted = False  # the client's next request waits (client_limits.py)
        self.waits = False  # ... or the rest of this one (whole_requests.py)
        self.over = False  # the client is gone or being let go
        self._facts = facts
        self._counters = counters
        self._room = room
        self._connect = connect
        self._state = state
        self._unsent = UnsentOfOne(unsent)
        self._early: list[bytes | memoryview] = []  # for upstream, while it is being connected
        self._upstream_takes = True
        self._deadline: asyncio.TimerHandle | None = None

    @property
    def unread_bytes(self) -> int:
        """How many bytes of the answers the client has not read; 0 while it takes them."""
        if self.client is None or self.over or self.client_takes:
            return 0
        return self.client.get_write_buffer_size()

    @property
    def gone(self) -> bool:
        return self.client is None and self.upstream is None and not self.connecting

    def to_client(self, data: bytes | memoryview) -> None:
        if self.client is not None and not self.over:
            self._counters.bytes_to_clients += len(data)
            self._facts.bytes_out += len(data)
            self.client.write(data)

    def to_upstream(self, data: bytes | memoryview) -> None:
        if self.upstream is not None:
            self.upstream.write(data)
            return
        self._early.append(data)
        if not self.connecting and not self.over:
            self.connecting = True
            self._connect()

    def connected(self, transport: asyncio.Transport) -> None:
        self.upstream = transport
        self.connecting = False
        transport.set_write_buffer_limits(high=PAUSE_ABOVE_BYTES, low=0)
        if self._early:
            transport.writelines(self._early)
            self._early.clear()
        if self.client is None:
            self.let_upstream_go()
        self.balance()

    def not_connected(self) -> None:
        self.connecting = False
        self._early.clear()
        self._count_unsent()

    def client_took_some(self, *, takes: bool) -> None:
        """`takes`: its buffer has room again; or not any more."""
        self.client_takes = takes
        if takes:
            self.client_took.set()
        else:
            self.client_took.clear()
        self._room.hold(self.unread_bytes)
        self.balance()

    def upstream_took_some(self, *, takes: bool) -> None:
        self._upstream_takes = takes
        self.balance()

    def balance(self) -> None:
        """Reads each side only while the other one takes its bytes."""
        if self.upstream is not None:
            _read(self.upstream, on=self.client_takes or self.client is None)
        if self.client is not None and not self.over:
            takes = self.client_takes and self._upstream_takes
            takes = takes and not (self.muted or self.waits or (self.connecting and self._early))
            self.client_read = takes and self._state.held_bytes <= PAUSE_ABOVE_BYTES
            _read(self.client, on=self.client_read)
        self._count_unsent()

    def _count_unsent(self) -> None:
        held = self._state.held_bytes + sum(len(data) for data in self._early)
        if self.upstream is not None and not self._upstream_takes:
            held += self.upstream.get_write_buffer_size()
        if self.waits:
            held += self._state.collected_bytes
        self._unsent.hold(held)

    # --------------------------------------------------------------------------------------- ending

    def let_client_go(self) -> None:
        """Ends the client's connection after the bytes that were written to it.

        A socket that is closed with unread bytes tells the client so at once, and the system drops
        what it has not sent of the answers. So these bytes are read, until the client closes, too.
        """
        client, state = self.client, self._state
        if client is None or client.is_closing():
            return
        unread = not self.client_read or state.held_bytes > 0 or state.mid_request
        if unread and client.can_write_eof():
            client.write_eof()
            _read(client, on=True)
        else:
            client.close()
        self._abort_later(client)

    def let_upstream_go(self) -> None:
        """Ends the upstream connection. Upstream still gets all bytes that the client sent, if it
        takes them in time.
        """
        upstream = self.upstream
        if upstream is None or upstream.is_closing():
            return
        if upstream.can_write_eof():
            upstream.write_eof()
            if not upstream.is_reading():
                upstream.resume_reading()
        else:
            upstream.close()
        self._abort_later(upstream)

    def abort(self) -> None:
        for transport in (self.client, self.upstream):
            if transport is not None:
                transport.abort()

    def _abort_later(self, transport: asyncio.Transport) -> None:
        self._forget_deadline()
        self._deadline = asyncio.get_running_loop().call_later(CLOSE_FLUSH_S, transport.abort)

    def end(self) -> None:
        """Both sockets are gone."""
        self._forget_deadline()
        self._unsent.hold(0)

    def _forget_deadline(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None


def _read(transport: asyncio.Transport, *, on: bool) -> None:
    """False: no more until it is True again."""
    if transport.is_closing() or transport.is_reading() == on:
        return
    if on:
        transport.resume_reading()
    else:
        transport.pause_reading()
