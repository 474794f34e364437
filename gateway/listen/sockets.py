"""The two sockets of a connection, as asyncio protocols that tell the connection of each event."""

from __future__ import annotations

import asyncio
import os
import socket
from contextlib import suppress
from typing import Protocol, cast

from gateway.listen.connection_facts import ConnectionFacts
from gateway.listen.leaving import Leaving
from gateway.listen.socket_pair import SocketPair
from gateway.listen.unsent import Unsent


class HasClient(Protocol):
    @property
    def facts(self) -> ConnectionFacts: ...
    def client_made(self, transport: asyncio.Transport) -> None: ...
    def from_client(self, data: bytes) -> None: ...
    def client_ended(self) -> None: ...
    @property
    def sockets(self) -> SocketPair: ...
    def client_lost(self) -> None: ...


class HasUpstream(Protocol):
    @property
    def sockets(self) -> SocketPair: ...
    def from_upstream(self, data: bytes) -> None: ...
    def upstream_ended(self) -> None: ...
    def upstream_lost(self) -> None: ...


class ClientSide(asyncio.BufferedProtocol):
    """The socket a client connected to. It is read as far as there is room."""

    def __init__(self, connection: HasClient, unsent: Unsent, leaving: Leaving) -> None:
        self._connection = connection
        self._leaving = leaving
        self._unsent = unsent
        self._whole = unsent.whole
        # What OpenSSL has of a client is there at once, and uvloop drops what is not read when the
        # client leaves: the socket below is read in small pieces, not what comes out of it.
        self._secure = connection.facts.tls is not None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._connection.client_made(cast(asyncio.Transport, transport))

    def get_buffer(self, sizehint: int) -> memoryview:  # noqa: ARG002
        return self._whole if self._secure else self._unsent.buffer

    def buffer_updated(self, nbytes: int) -> None:
        self.received(self._whole[:nbytes].tobytes())

    def received(self, data: bytes) -> None:
        self._connection.from_client(data)

    def eof_received(self) -> bool:
        """True: it is closed here. A layer of TLS closes by itself."""
        self._connection.client_ended()
        client = self._connection.sockets.client
        if self._secure or client is None:
            return False
        self._leaving.close(client)
        return True

    def pause_writing(self) -> None:
        self._connection.sockets.client_took_some(takes=False)

    def resume_writing(self) -> None:
        self._connection.sockets.client_took_some(takes=True)

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002
        self._connection.client_lost()


class UpstreamSide(asyncio.Protocol):
    """The socket to the broker behind it."""

    def __init__(self, connection: HasUpstream) -> None:
        self._connection = connection

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._connection.sockets.connected(cast(asyncio.Transport, transport))

    def data_received(self, data: bytes) -> None:
        self._connection.from_upstream(data)

    def eof_received(self) -> None:
        self._connection.upstream_ended()

    def pause_writing(self) -> None:
        self._connection.sockets.upstream_took_some(takes=False)

    def resume_writing(self) -> None:
        self._connection.sockets.upstream_took_some(takes=True)

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002
        self._connection.upstream_lost()


def bound_receiving(transport: asyncio.BaseTransport, bytes_max: int) -> None:
    """The system keeps no more than this of what is not read, and takes as much again for itself.
    Otherwise the buffer of a connection that is read fast grows to megabytes (tcp_rmem), and is
    full soon after its client has become slow: a thousand of them use up the memory of all TCP
    sockets of the machine. uvloop's socket takes no options, a copy of its descriptor does.
    """
    taken = transport.get_extra_info("socket")
    if taken is None or taken.fileno() < 0:
        return  # It is gone.
    with socket.socket(fileno=os.dup(taken.fileno())) as same, suppress(OSError):
        same.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, bytes_max)
