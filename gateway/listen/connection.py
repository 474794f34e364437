"""The shell around one ConnectionState: two sockets, and the effects between them.

The upstream connection is made when the first request is known to be one, so that a port scan or a
TLS client does not reach upstream. Bytes go on as the objects that were read. When a socket does
not take them, the other one is not read: at most HELD_BYTES_MAX are kept in each direction. A
client that does not take its answers is not read either.

When the client goes, upstream still gets all bytes that the client sent: it is closed for writing,
and cut off only if upstream does not close in time. When upstream goes, the client still gets all
bytes that upstream sent.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from dataclasses import dataclass
from typing import NewType, Protocol, assert_never

import structlog

from gateway.core.forwarding.api_counts import NEVER_WAITS
from gateway.core.forwarding.connection_state import ConnectionState
from gateway.core.forwarding.effects import (
    Answered,
    Effect,
    Failed,
    Fault,
    Intercepted,
    Rewrite,
    Rules,
    ToClient,
    ToUpstream,
)
from gateway.core.limits import LONG_STEP_BYTES
from gateway.core.wire.codec import decode_response, encode_request
from gateway.core.wire.errors import WireError
from gateway.core.wire.frames import (
    RequestHeader,
    parse_request_header,
    parse_response_header,
    request_frame,
    response_head,
)
from gateway.core.wire.long_bytes import LongBytes, whole
from gateway.core.wire.schema import Message
from gateway.listen.bounds import Bounds
from gateway.listen.connection_facts import ConnectionFacts
from gateway.listen.counters import Counters, Refused
from gateway.listen.limits import (
    CLOSE_FLUSH_S,
    DISCARDED_BYTES_MAX,
    FIRST_REQUEST_S,
    INJECTED_REQUESTS_MAX,
    PAUSE_ABOVE_BYTES,
)
from gateway.listen.sockets import UpstreamSide, read_from
from gateway.upstream.errors import Unreachable, UpstreamError

log = structlog.get_logger("keyway.connection")

ConnectionId = NewType("ConnectionId", int)  # never reused within a process

_CORRELATION_IDS_FROM = 0x4B00_0000  # of requests put in by the gateway: tells them apart in a dump
_CORRELATION_IDS = 0x00FF_FFFF

_REFUSALS = {  # faults that are refusals of a client's request
    Fault.TLS: Refused.NOT_KAFKA,
    Fault.HTTP: Refused.NOT_KAFKA,
    Fault.FRAME_SIZE: Refused.MALFORMED_REQUEST,
    Fault.HEADER: Refused.MALFORMED_REQUEST,
    Fault.UNKNOWN_API: Refused.NOT_SERVED,
    Fault.UNSUPPORTED_VERSION: Refused.NOT_SERVED,
    Fault.UNAUTHENTICATED: Refused.BEFORE_AUTHENTICATION,
}


@dataclass(slots=True)
class Request:
    """A client's request that the gateway answers.

    Its body is `decode_request(header.api_key, header.api_version, frame, header.body_at)`.
    """

    header: RequestHeader
    frame: bytes  # without the size prefix
    connection: ClientConnection
    waited_ns: int = NEVER_WAITS  # for records, noted by a handler that does


Handler = Callable[[Request], Awaitable[bytes | LongBytes]]  # the response body, encoded


class Node(Protocol):
    """The server, as its connections see it."""

    @property
    def rules(self) -> Rules: ...
    @property
    def handlers(self) -> Mapping[int, Handler]: ...
    @property
    def counters(self) -> Counters: ...
    @property
    def tasks(self) -> asyncio.TaskGroup: ...
    @property
    def bounds(self) -> Bounds: ...

    async def connect(self, broker_id: int | None, protocol: asyncio.Protocol) -> None:
        """Raises UpstreamError."""

    def rewritten(self, response: Rewrite) -> bytes:
        """Its frame for the client, without upstream's addresses. Raises WireError."""

    def opened(self, connection: ClientConnection) -> None: ...

    def disconnected(self, connection: ClientConnection) -> None:
        """The client is gone."""

    def closed(self, connection: ClientConnection) -> None:
        """Its upstream connection as well."""


class ClientConnection:
    """`broker_id` is the virtual broker the client connected to, None on the bootstrap port."""

    def __init__(self, connection_id: ConnectionId, broker_id: int | None, node: Node) -> None:
        self.id = connection_id
        self.broker_id = broker_id
        self.facts = ConnectionFacts()
        self._node = node
        self._state = ConnectionState(node.rules, node.counters.apis)
        self._client: asyncio.Transport | None = None
        self._upstream: asyncio.Transport | None = None
        self._connecting = False
        self._early: list[bytes | memoryview] = []  # for upstream, while it is being connected
        self._client_takes = True  # its socket buffer is not full
        self._client_took = asyncio.Event()
        self._upstream_takes = True
        self._client_read = True
        self._collected_bytes = 0  # of the request that is being read whole, or answered
        self._discarded_bytes = 0  # answers to a client that is gone
        self._over = False  # the client is gone or being let go
        self._draining = False
        self._deadline: asyncio.TimerHandle | None = None
        self._patience: asyncio.TimerHandle | None = None
        self._work: set[asyncio.Task[None]] = set()
        self._asked: dict[int, asyncio.Future[bytes]] = {}
        self._asking = asyncio.Semaphore(INJECTED_REQUESTS_MAX)
        self._next_correlation = 0
        self._client_id: str | None = None
        self._log = log

    def __repr__(self) -> str:
        return f"ClientConnection(id={self.id}, broker={self.broker_id}, peer={self.facts.host!r})"

    async def ask_upstream(self, api_key: int, api_version: int, body: Message) -> Message:
        """Asks on this client's own upstream connection, so in its name; it does not see it.

        Raises UpstreamError when the connection ends first. The broker works on one request of a
        connection at a time: this waits for the client's earlier requests.
        """
        async with self._asking:
            if self._over:
                raise Unreachable("the client's connection has ended")
            self._next_correlation = (self._next_correlation + 1) & _CORRELATION_IDS
            correlation_id = _CORRELATION_IDS_FROM + self._next_correlation
            encoded = encode_request(api_key, api_version, body)
            frame = request_frame(api_key, api_version, correlation_id, self._client_id, encoded)
            future = asyncio.get_running_loop().create_future()
            self._asked[correlation_id] = future
            self._perform(self._state.inject(frame, correlation_id))
            payload = await future
        try:
            header = parse_response_header(api_key, api_version, payload)
            return decode_response(api_key, api_version, payload, header.body_at)
        except WireError as error:
            raise Unreachable(f"unreadable answer: {error}") from error

    @property
    def answer_room(self) -> int:
        """Bytes that an answer to this client may be now."""
        return self._node.bounds.answer_room()

    def has_room(self, answer_bytes: int) -> bool:
        """For an answer that cannot be cut."""
        return self._node.bounds.has_room(answer_bytes)

    def count_refused(self, api_key: int, error_code: int) -> None:
        """Counts a request that is answered with this error."""
        self._node.counters.count_request_refused(api_key, error_code)

    def hold_answer(self, held_bytes: int) -> None:
        """Counts an answer that is being made."""
        if not self._over:
            self._node.bounds.hold_answer(self.id, held_bytes)

    @property
    def open_apis(self) -> list[int]:
        """Keys of the requests that are not answered, the oldest first."""
        answering = self.facts.answering
        return self._state.open_apis + ([] if answering is None else [answering])

    # ------------------------------------------------------------------------------ for the server

    @property
    def unread_bytes(self) -> int:
        if self._client is None or self._over or self._client_takes:
            return 0
        return self._client.get_write_buffer_size()

    @property
    def waits_for_request(self) -> bool:
        return self._client_read and self._state.mid_request

    def refuse(self, reason: Refused, held_bytes: int) -> None:
        if self._over:
            return
        self._node.counters.count_refused(reason)
        self._fail("closed at a limit", reason=reason.value, held_bytes=held_bytes)
        self.abort()

    def drain(self) -> None:
        """Ends as soon as everything asked is answered."""
        self._draining = True
        self._end_if_drained()

    def abort(self) -> None:
        for transport in (self._client, self._upstream):
            if transport is not None:
                transport.abort()

    # ------------------------------------------------------------------------------- client's side

    def client_made(self, transport: asyncio.Transport) -> None:
        self._client = transport
        host, port = transport.get_extra_info("peername", ("", 0))[:2]
        self.facts.host, self.facts.port = host, port
        self._log = log.bind(connection=self.id, client=f"{host}:{port}", broker=self.broker_id)
        transport.set_write_buffer_limits(high=PAUSE_ABOVE_BYTES, low=0)
        loop = asyncio.get_running_loop()
        self._patience = loop.call_later(FIRST_REQUEST_S, self._end_if_silent)
        self._node.counters.connections_opened += 1
        self._node.opened(self)
        self._log.debug("connected")

    def from_client(self, data: bytes) -> None:
        self._node.counters.bytes_from_clients += len(data)
        self.facts.received(data)
        self._perform(self._state.from_client(data, time.monotonic_ns()))
        if self._state.collected_bytes != self._collected_bytes:
            self._hold_request()
        if self._connecting or self._state.held_bytes:
            self._balance()

    def client_ended(self) -> None:
        self._perform(self._state.client_ended())

    def client_takes(self, takes: bool) -> None:
        self._client_takes = takes
        if takes:
            self._client_took.set()
        else:
            self._client_took.clear()
        self._node.bounds.hold_answer(self.id, self.unread_bytes)
        self._balance()

    def client_lost(self) -> None:
        self._client = None
        self._finish()
        self._node.bounds.forget(self.id)
        self._node.disconnected(self)
        self._log.debug("disconnected")
        if self._upstream is not None:
            self._let_go(self._upstream)
        self._gone_if_both()

    # ----------------------------------------------------------------------------- upstream's side

    def upstream_made(self, transport: asyncio.Transport) -> None:
        self._upstream = transport
        self._connecting = False
        transport.set_write_buffer_limits(high=PAUSE_ABOVE_BYTES, low=0)
        if self._early:
            transport.writelines(self._early)
            self._early.clear()
        if self._client is None:
            self._let_go(transport)
        self._balance()

    def from_upstream(self, data: bytes) -> None:
        if self._client is None:
            # Its answers are read only so that upstream takes its last requests, and ends.
            self._discarded_bytes += len(data)
            if self._discarded_bytes > DISCARDED_BYTES_MAX and self._upstream is not None:
                self._upstream.abort()
            return
        self._perform(self._state.from_upstream(data, time.monotonic_ns()))
        if self._draining:
            self._end_if_drained()
        if not self._client_read:
            self._balance()

    def upstream_ended(self) -> None:
        if not self._over:
            calls = self._state.calls_open
            if calls:
                self._log.info("upstream_closed_connection", unanswered=calls)
            self._perform(self._state.upstream_ended())
            self._end()

    def upstream_takes(self, takes: bool) -> None:
        self._upstream_takes = takes
        self._balance()

    def upstream_lost(self) -> None:
        self._upstream = None
        self.upstream_ended()
        self._gone_if_both()

    # ------------------------------------------------------------------------------------- effects

    def _perform(self, effects: list[Effect]) -> None:
        for effect in effects:
            # The two that carry the traffic first; a match would try every class on the way.
            if isinstance(effect, ToClient):
                self._to_client(effect.data)
            elif isinstance(effect, ToUpstream):
                self._to_upstream(effect.data)
            else:
                self._act(effect)

    def _act(self, effect: Rewrite | Intercepted | Answered | Failed) -> None:
        match effect:
            case Rewrite():
                self._rewrite(effect)
            case Intercepted(payload=payload):
                self._start(self._answer(payload))
            case Answered(correlation_id=correlation_id, payload=payload):
                future = self._asked.pop(correlation_id)
                if not future.done():  # The handler may have given up.
                    future.set_result(payload)
            case Failed(fault=fault, side=side, detail=detail):
                if fault in _REFUSALS and not self._over:
                    self._node.counters.count_refused(_REFUSALS[fault])
                self._fail(fault.value, side=side.value, detail=detail)
            case _:
                assert_never(effect)

    def _to_client(self, data: bytes | memoryview) -> None:
        if self._client is not None and not self._over:
            self._node.counters.bytes_to_clients += len(data)
            self.facts.bytes_out += len(data)
            self._client.write(data)

    def _to_upstream(self, data: bytes | memoryview) -> None:
        if self._upstream is not None:
            self._upstream.write(data)
            return
        self._early.append(data)
        if not self._connecting and not self._over:
            self._connecting = True
            # Not one of `_work`: the client's bytes go upstream even if it has left.
            self._node.tasks.create_task(self._connect())

    async def _connect(self) -> None:
        try:
            await self._node.connect(self.broker_id, UpstreamSide(self))
        except UpstreamError as error:
            self._connecting = False
            self._early.clear()
            self._fail("no upstream", detail=str(error))
            self._gone_if_both()

    def _rewrite(self, response: Rewrite) -> None:
        try:
            self._to_client(self._node.rewritten(response))
        except WireError as error:
            self._fail("unreadable response", api_key=response.api_key, detail=str(error))

    async def _answer(self, payload: bytes) -> None:
        api_key = None
        try:
            header = parse_request_header(payload)
            api_key = header.api_key
            self._client_id = header.client_id
            handler = self._node.handlers[api_key]
            self.facts.answering = api_key
            # As a broker: nothing more is answered to a client that does not read its answers.
            if not self._client_takes:
                await self._client_took.wait()
            request = Request(header, payload, self)
            body = await handler(request)
            head = response_head(api_key, header.api_version, header.correlation_id, len(body))
        except WireError as error:
            self._node.counters.count_refused(Refused.MALFORMED_REQUEST)
            self._fail("malformed request", api_key=api_key, detail=str(error))
            return
        except Exception:  # noqa: BLE001  A bug of one handler must not end other connections.
            self._log.exception("handler_failed", api_key=api_key)
            self._fail("no answer", api_key=api_key)
            return
        self.facts.answering = None
        if len(body) > LONG_STEP_BYTES:  # it is not copied to stand behind its head
            parts = body.parts if isinstance(body, LongBytes) else [body]
            for part in (head, *parts[:-1]):
                self._to_client(part)
            answer = bytes(parts[-1])
        else:
            answer = head + whole(body)
        self._perform(self._state.answered(answer, time.monotonic_ns(), request.waited_ns))
        self._hold_request()
        await asyncio.sleep(0)  # The event loop writes as much as the socket takes.
        self._node.bounds.hold_answer(self.id, self.unread_bytes)
        if self._draining:
            self._end_if_drained()
        self._balance()

    def _hold_request(self) -> None:
        self._collected_bytes = self._state.collected_bytes
        self._node.bounds.hold_request(self.id, self._collected_bytes)

    def _start(self, work: Coroutine[None, None, None]) -> None:
        task = self._node.tasks.create_task(work)
        self._work.add(task)
        task.add_done_callback(self._work.discard)

    def _balance(self) -> None:
        """Reads each side only while the other one takes its bytes."""
        upstream, client = self._upstream, self._client
        if upstream is not None:
            read_from(upstream, on=self._client_takes or client is None)
        if client is not None:
            takes = self._client_takes and self._upstream_takes
            takes = takes and not (self._connecting and self._early)
            self._client_read = takes and self._state.held_bytes <= PAUSE_ABOVE_BYTES
            read_from(client, on=self._client_read)

    # --------------------------------------------------------------------------------------- ending

    def _fail(self, event: str, **facts: object) -> None:
        if self._over:
            return
        self._node.counters.connections_failed += 1
        self._log.warning(event, **facts)
        self._end()

    def _end_if_silent(self) -> None:
        if self._upstream is None and not self._connecting and not self._work:
            self._fail("no request came", seconds=FIRST_REQUEST_S)

    def _end_if_drained(self) -> None:
        if self._state.idle and not self._over:
            self._end()

    def _end(self) -> None:
        """Lets the client go after the bytes that were written to it."""
        self._finish()
        if self._client is not None and not self._client.is_closing():
            self._client.close()
            self._abort_later(self._client)

    def _finish(self) -> None:
        """Nothing more is done for this client."""
        self._over = True
        self._state.forget()
        if self._collected_bytes:
            self._hold_request()
        if self._patience is not None:
            self._patience.cancel()
            self._patience = None
        for task in self._work:
            task.cancel()
        for future in self._asked.values():
            if not future.done():
                future.set_exception(Unreachable("the connection has ended"))
        self._asked.clear()

    def _let_go(self, upstream: asyncio.Transport) -> None:
        if upstream.is_closing():
            return
        if upstream.can_write_eof():
            upstream.write_eof()
            if not upstream.is_reading():
                upstream.resume_reading()
        else:
            upstream.close()
        self._abort_later(upstream)

    def _abort_later(self, transport: asyncio.Transport) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
        self._deadline = asyncio.get_running_loop().call_later(CLOSE_FLUSH_S, transport.abort)

    def _gone_if_both(self) -> None:
        if self._client is None and self._upstream is None and not self._connecting:
            if self._deadline is not None:
                self._deadline.cancel()
                self._deadline = None
            self._node.closed(self)
