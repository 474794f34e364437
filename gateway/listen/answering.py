"""A client's request that the gateway answers, and the server as its connections see it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, NewType, Protocol

from gateway.core.forwarding.api_counts import NEVER_WAITS
from gateway.core.forwarding.effects import MayRead, Rewrite, Rules
from gateway.core.wire.frames import RequestHeader
from gateway.core.wire.long_bytes import LongBytes
from gateway.listen.bounds import AnswerRoom, Bounds
from gateway.listen.client_limits import ClientLimits
from gateway.listen.client_tasks import ClientTasks
from gateway.listen.connection_facts import ConnectionFacts
from gateway.listen.counters import Counters
from gateway.upstream.opening import Ask
from keyway.repeated_lines import RepeatedLines

if TYPE_CHECKING:
    from gateway.listen.client_login import ClientLogin
    from gateway.listen.connection import ClientConnection
    from gateway.listen.looks import Looks

ConnectionId = NewType("ConnectionId", int)  # never reused within a process


class Withheld(Exception):
    """The client is to ask again, on another connection."""


class Client(Protocol):
    """A client's connection, as handlers see it (connection.py)."""

    @property
    def id(self) -> ConnectionId: ...
    @property
    def broker_id(self) -> int | None:
        """The virtual broker it came to; None: the bootstrap port."""

    @property
    def listener(self) -> str: ...
    @property
    def facts(self) -> ConnectionFacts: ...
    @property
    def counters(self) -> Counters: ...
    @property
    def answer_room(self) -> AnswerRoom: ...
    @property
    def may_read(self) -> MayRead: ...
    @property
    def ask_upstream(self) -> Ask:
        """On its own connection, and so under its own identity. Raises UpstreamError."""

    @property
    def pass_on(self) -> Callable[[bytes], Awaitable[bytes]]:
        """Its request, without the size, goes upstream as it is; returns the body of the answer,
        which must not show addresses. Raises UpstreamError.
        """

    def may_open_session(self, open_on: Callable[[int], int]) -> bool: ...
    def drain(self) -> None: ...
    def abort(self) -> None: ...


@dataclass(slots=True)
class Request:
    """A client's request that the gateway answers.

    Its body is `decode_request(header.api_key, header.api_version, frame, header.body_at)`.
    """

    header: RequestHeader
    frame: bytes  # without the size prefix
    connection: Client
    waited_ns: int = NEVER_WAITS  # for records, noted by a handler that does


Handler = Callable[[Request], Awaitable[bytes | LongBytes]]  # the response body, encoded


class Node(Protocol):
    """The server, as its connections see it."""

    def rules_of(self, listener: str) -> Rules: ...
    def login_of(self, connection: ClientConnection) -> ClientLogin | None:
        """None: its own exchange with upstream passes through."""

    @property
    def handlers(self) -> Mapping[int, Handler]: ...
    @property
    def looks(self) -> Looks:
        """Answers the requests that the screen of its rules stops."""

    @property
    def counters(self) -> Counters: ...
    @property
    def tasks(self) -> ClientTasks: ...
    @property
    def bounds(self) -> Bounds: ...
    @property
    def limits(self) -> ClientLimits: ...

    async def connect(self, broker_id: int | None, protocol: asyncio.Protocol) -> None:
        """Raises UpstreamError."""

    @property
    def lines(self) -> RepeatedLines: ...

    def rewritten(self, response: Rewrite, connection: ClientConnection) -> bytes:
        """The frame of the answer for the client, without upstream's addresses. Raises
        WireError.
        """

    def opened(self, connection: ClientConnection) -> None: ...

    def disconnected(self, connection: ClientConnection) -> None:
        """The client is gone."""

    def closed(self, connection: ClientConnection) -> None:
        """Closes the client's connection, and its upstream connection as well."""
