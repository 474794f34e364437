"""The shell around one ConnectionState: the effects between a client and upstream.

The upstream connection is made when the first request is known to be one, so that a port scan or a
TLS client does not reach upstream.

When the client goes, upstream still gets all bytes that the client sent: it is closed for writing,
and cut off only if upstream does not close in time. When upstream goes, the client still gets all
bytes that upstream sent.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from typing import assert_never

import structlog

from gateway.core.client_limits.account import Account
from gateway.core.client_limits.rules import Who
from gateway.core.forwarding.connection_state import ConnectionState
from gateway.core.forwarding.effects import (
    Answered,
    Client,
    Effect,
    Failed,
    Fault,
    Intercepted,
    Rewrite,
    ToClient,
    ToUpstream,
)
from gateway.core.limits import LONG_STEP_BYTES
from gateway.core.repartition.adoption import Producing
from gateway.core.tls.peer import TlsFacts
from gateway.core.wire.errors import WireError
from gateway.core.wire.frames import parse_request_header, response_head
from gateway.core.wire.long_bytes import LongBytes, whole
from gateway.listen.answering import ConnectionId, Handler, Node, Request, Withheld
from gateway.listen.authentication import SessionEnd
from gateway.listen.bounds import AnswerRoom
from gateway.listen.client_limits import Muting, told
from gateway.listen.client_login import LOGIN_APIS
from gateway.listen.connection_facts import ConnectionFacts
from gateway.listen.counters import Refused
from gateway.listen.limits import (
    DISCARDED_BYTES_MAX,
    FIRST_REQUEST_S,
    PAUSE_ABOVE_BYTES,
    SESSION_END_S,
)
from gateway.listen.own_requests import OwnRequests
from gateway.listen.socket_pair import SocketPair
from gateway.listen.sockets import UpstreamSide
from gateway.listen.whole_requests import WholeRequests
from gateway.upstream.errors import UpstreamError
from gateway.upstream.opening import Ask

log = structlog.get_logger("keyway.connection")

_REFUSALS = {  # faults that are refusals of a client's request
    Fault.TLS: Refused.NOT_KAFKA,
    Fault.HTTP: Refused.NOT_KAFKA,
    Fault.FRAME_SIZE: Refused.MALFORMED_REQUEST,
    Fault.HEADER: Refused.MALFORMED_REQUEST,
    Fault.UNKNOWN_API: Refused.NOT_SERVED,
    Fault.UNSUPPORTED_VERSION: Refused.NOT_SERVED,
    Fault.UNAUTHENTICATED: Refused.BEFORE_AUTHENTICATION,
    Fault.NOT_LOGGED_IN: Refused.BEFORE_AUTHENTICATION,
}


# Long: the effects of one connection, which its state (gateway/core/forwarding) asks for.
class ClientConnection:
    """`broker_id` is the virtual broker the client connected to, None on the bootstrap port;
    `listener` the name of the listener it came to; `tls`: None on a plain port.
    """

    def __init__(
        self,
        connection_id: ConnectionId,
        broker_id: int | None,
        node: Node,
        *,
        listener: str,
        tls: TlsFacts | None = None,
    ) -> None:
        self.id = connection_id
        self.broker_id = broker_id
        self.listener = listener
        self.facts = ConnectionFacts(tls=tls)
        self.counters = node.counters
        self.answer_room = AnswerRoom(node.bounds, connection_id)
        self._node = node
        rules = node.rules_of(listener)
        self._state = state = ConnectionState(rules, node.counters.apis)
        self.may_read = state.may_read
        self.sockets = SocketPair(
            self.facts,
            node.counters,
            self.answer_room,
            node.bounds.unsent,
            # Not one of `_work`: the client's bytes go upstream even if it has left.
            connect=lambda: node.tasks.start(self._connect, self.abort),
            state=state,
        )
        self._own = OwnRequests(lambda frame, number: self._perform(state.inject(frame, number)))
        self.ask_upstream, self.pass_on = self._own.ask, self._own.pass_on
        self._whole = WholeRequests(connection_id, state, self.sockets, node.bounds)
        self._discarded_bytes = 0  # answers to a client that is gone
        self._draining = False
        self._patience: asyncio.TimerHandle | None = None
        self._muting = Muting(state, self.sockets, self._perform)
        self._session_over = False
        # Its SASL exchange has not told yet who it is.
        self._nameless = rules.sasl or rules.login
        self.login = node.login_of(self)
        self._work: set[asyncio.Task[None]] = set()
        self._log = log

    def __repr__(self) -> str:
        return f"ClientConnection(id={self.id}, broker={self.broker_id}, peer={self.facts.host!r})"

    @property
    def open_apis(self) -> list[int]:
        """Keys of the requests that are not answered, the oldest first."""
        answering = self.facts.answering
        return self._state.open_apis + ([] if answering is None else [answering])

    # ------------------------------------------------------------------------------ for the server

    @property
    def unread_bytes(self) -> int:
        return self.sockets.unread_bytes

    @property
    def waits_for_request(self) -> bool:
        return self.sockets.client_read and self._state.mid_request

    def refuse(self, reason: Refused, held_bytes: int) -> None:
        if self.sockets.over:
            return
        self.counters.count_refused(reason)
        self._fail("closed at a limit", reason=reason.value, held_bytes=held_bytes)
        self.abort()

    def drain(self) -> None:
        """Ends as soon as everything that has begun is answered. What has not begun the client asks
        again elsewhere; a busy one would never come to an end.
        """
        if not self._draining:
            self._draining = True
            self._state.hold()
        if self._state.answered_all and not self.sockets.over:
            self._end()

    @property
    def client(self) -> Client:
        return self._state.client

    @property
    def producing(self) -> Producing:
        state = self._state
        count, oldest, whole = state.produces, state.oldest_produce_ns, state.whole_produce_ns
        return Producing(self.id, count, oldest, state.client, state.produces_to, whole)

    @property
    def draining(self) -> bool:
        return self._draining

    def abort(self) -> None:
        self.sockets.abort()

    @property
    def account(self) -> Account | None:
        """The account whose limits hold for the connection; None: no limits."""
        return self._state.account

    def may_open_session(self, open_on: Callable[[int], int]) -> bool:
        """Whether the connection may open one more share session. `open_on`: how many a connection
        has opened.
        """
        return self._node.limits.may_open_session(self._state.account, open_on)

    def limit_again(self) -> None:
        """There are other limits. It stays open, whatever they are."""
        if self.sockets.over:
            return  # only upstream's last bytes are on their way
        self._put_on(self._node.limits.account(self.id, self._who()))

    # ------------------------------------------------------------------------------- client's side

    def client_made(self, transport: asyncio.Transport) -> None:
        self.sockets.client = transport
        host, port = transport.get_extra_info("peername", ("", 0))[:2]
        self.facts.host, self.facts.port = host, port
        self._log = log.bind(connection=self.id, client=f"{host}:{port}", broker=self.broker_id)
        transport.set_write_buffer_limits(high=PAUSE_ABOVE_BYTES, low=0)
        loop = asyncio.get_running_loop()
        self._patience = loop.call_later(FIRST_REQUEST_S, self._end_if_silent)
        self.counters.connections_opened += 1
        self._node.opened(self)
        if self.login is not None and not self.login.begin(f"{host}:{port}", self.facts.tls):
            self._refuse_login(b"")
            return
        if self.login is not None and self.login.principal is not None:
            self.facts.principal = self.login.principal
        self._place()
        self._log.debug("connected")

    def from_client(self, data: bytes) -> None:
        self.counters.bytes_from_clients += len(data)
        if self.facts.received(data) and not self.sockets.over:
            self._state.client = (self.facts.host, self.facts.client_id)
            self._place()
        self._perform(self._state.from_client(data, time.monotonic_ns()))
        if self.sockets.connecting or self._state.held_bytes:
            self.sockets.balance()

    def client_ended(self) -> None:
        self._perform(self._state.client_ended())

    def client_lost(self) -> None:
        self.sockets.client = None
        self._finish()
        self._node.bounds.forget(self.id)
        self._node.disconnected(self)
        self._log.debug("disconnected")
        self.sockets.let_upstream_go()
        self._gone_if_both()

    # ----------------------------------------------------------------------------- upstream's side

    async def _connect(self) -> None:
        try:
            if self.login is None:
                await self._node.connect(self.broker_id, UpstreamSide(self))
            else:
                await self.login.open_upstream()
        except UpstreamError as error:
            self.sockets.not_connected()
            self._fail("no upstream", detail=str(error))
            self._gone_if_both()
        except Exception:
            self.sockets.not_connected()
            self._gone_if_both()
            raise

    def from_upstream(self, data: bytes) -> None:
        sockets = self.sockets
        if sockets.client is None:
            # Its answers are read only so that upstream takes its last requests, and ends.
            self._discarded_bytes += len(data)
            if self._discarded_bytes > DISCARDED_BYTES_MAX and sockets.upstream is not None:
                sockets.upstream.abort()
            return
        self._perform(self._state.from_upstream(data, time.monotonic_ns()))
        if self._nameless and self._state.principal is not None:
            self._named(self._state.principal)
            if not self._draining:
                self._perform(self._state.release(time.monotonic_ns()))
        if self._draining:
            self.drain()
        if not sockets.client_read:
            sockets.balance()

    def upstream_ended(self) -> None:
        if not self.sockets.over:
            calls = self._state.calls_open
            if calls:
                self._say(self._log.info, "upstream_closed_connection", unanswered=calls)
            self._perform(self._state.upstream_ended())
            self._end()

    def upstream_lost(self) -> None:
        self.sockets.upstream = None
        self.upstream_ended()
        self._gone_if_both()

    # ------------------------------------------------------------------------------------- effects

    def _perform(self, effects: list[Effect]) -> None:
        for effect in effects:
            # The two that carry the traffic first; a match would try every class on the way.
            if isinstance(effect, ToClient):
                self.sockets.to_client(effect.data)
            elif isinstance(effect, ToUpstream):
                self.sockets.to_upstream(effect.data)
            else:
                self._act(effect)
        if self._state.collected_bytes != self._whole.held_bytes:
            self._whole.look()
        if self._state.muted_until_ns:
            self._muting.look()

    def _act(self, effect: Rewrite | Intercepted | Answered | Failed) -> None:
        match effect:
            case Rewrite():
                try:
                    self.sockets.to_client(self._node.rewritten(effect, self))
                except Withheld:
                    self._end()
                except WireError as error:
                    self._fail("unreadable response", api_key=effect.api_key, detail=str(error))
            case Intercepted(payload=payload):
                task = self._node.tasks.start(partial(self._answer, payload), self.abort)
                self._work.add(task)
                task.add_done_callback(self._work.discard)
            case Answered(correlation_id=correlation_id, payload=payload):
                self._own.answered(correlation_id, payload)
            case Failed(fault=fault, side=side, detail=detail):
                if fault in _REFUSALS and not self.sockets.over:
                    self.counters.count_refused(_REFUSALS[fault])
                self._fail(fault.value, side=side.value, detail=detail)
            case _:
                assert_never(effect)

    async def _answer(self, payload: bytes) -> None:
        api_key = None
        try:
            header = parse_request_header(payload)
            api_key = header.api_key
            self._own.client_id = header.client_id
            login = self.login if api_key in LOGIN_APIS else None
            handler = self._handler(api_key) if login is None else login.answer
            self.facts.answering = api_key
            # As a broker: nothing more is answered to a client that does not read its answers.
            if not self.sockets.client_takes:
                await self.sockets.client_took.wait()
            request = Request(header, payload, self)
            body = await handler(request)
            head = response_head(api_key, header.api_version, header.correlation_id, len(body))
            if self._state.account is not None:
                body = told(self._state.account, api_key, header.api_version, head, body)
        except WireError as error:
            self.counters.count_refused(Refused.MALFORMED_REQUEST)
            self._fail("malformed request", api_key=api_key, detail=str(error))
            return
        except UpstreamError as error:
            self._fail("no upstream", api_key=api_key, detail=str(error))
            return
        except Exception:  # noqa: BLE001  A bug of one handler must not end other connections.
            self._say(self._log.exception, "handler_failed", api_key=api_key)
            self._fail("no answer", api_key=api_key)
            return
        self.facts.answering = None
        answer = self._rest_of(head, body)
        if login is not None and login.refused:
            self._refuse_login(answer)
            return
        self._perform(self._state.answered(answer, time.monotonic_ns(), request.waited_ns))
        if not self.sockets.client_takes:
            await asyncio.sleep(0)  # The event loop writes as much as the socket takes.
        self.answer_room.hold(self.unread_bytes)
        if self._draining:
            self.drain()
        self.sockets.balance()

    def _handler(self, api_key: int) -> Handler:
        return self._node.handlers.get(api_key, self._node.looks.answer)

    def _rest_of(self, head: bytes, body: bytes | LongBytes) -> bytes:
        """The answer, or what is left of it once all but its end has been sent."""
        if len(body) <= LONG_STEP_BYTES:
            return head + whole(body)
        parts = body.parts if isinstance(body, LongBytes) else [body]
        for part in (head, *parts[:-1]):  # not copied to stand behind the head
            self.sockets.to_client(part)
        return bytes(parts[-1])

    # ---------------------------------------------------------------------------------------- login

    def named(self, principal: str) -> bool:
        """The gateway has authenticated it. False: a limit has ended it."""
        self._named(principal)
        return not self.sockets.over

    def _refuse_login(self, answer: bytes) -> None:
        self.sockets.to_client(answer)
        self.counters.count_refused(Refused.LOGIN)
        self._end()

    def take_over(self, transport: asyncio.Transport) -> None:
        """An upstream connection that is authenticated: the client's requests may go there."""
        self._state.logged_in()
        transport.set_protocol(UpstreamSide(self))
        self.sockets.connected(transport)

    def end_session(self, why: SessionEnd) -> None:
        """No request begins any more; what is under way has SESSION_END_S to be answered."""
        if self.sockets.over or self._session_over:
            return
        self._log.info("session_ended", reason=why.value, listener=self.listener)
        self._session_over = True
        asyncio.get_running_loop().call_later(SESSION_END_S, self._end_now)
        self.drain()

    def _end_now(self) -> None:
        if not self.sockets.over:
            self._end()

    @asynccontextmanager
    async def alone(self) -> AsyncIterator[Ask]:
        """Inside nothing else goes upstream: no request of the client, and none in its name."""
        self._state.hold()
        try:
            async with self._own.alone() as ask:
                yield ask
        finally:
            if not self._draining:
                self._perform(self._state.release(time.monotonic_ns()))
                self.sockets.balance()

    # --------------------------------------------------------------------------------------- limits

    def _named(self, principal: str) -> None:
        self._nameless = False
        self.facts.principal = principal
        self._place()

    def _who(self) -> Who:
        return self.facts.who(nameless=self._nameless)

    def _place(self) -> None:
        """More is known about the client: it gets the account that is its own now."""
        limits = self._node.limits
        account = limits.account(self.id, who := self._who())
        known = account is not None and account is self._state.account
        if known or limits.admits(self.id, account, who):
            self._put_on(account)
            return
        self.counters.count_refused(Refused.CONNECTION_LIMIT)
        self._end()

    def _put_on(self, account: Account | None) -> None:
        before = self._state.account
        if before is not None and before is not account:
            before.connections.discard(self.id)
        if account is not None:
            account.connections.add(self.id)
        self._state.account = account

    # --------------------------------------------------------------------------------------- ending

    def _fail(self, event: str, **facts: object) -> None:
        if self.sockets.over:
            return
        self.counters.connections_failed += 1
        self._say(self._log.warning, event, **facts)
        self._end()

    def _say(self, write: Callable[..., object], event: str, **facts: object) -> None:
        """One line in a while of each kind: any stranger can cause them, as often as it likes."""
        kind = (self.listener, event, *(facts.get(fact) for fact in ("side", "reason", "api_key")))
        left_out = self._node.lines.due(kind)
        if left_out is not None:
            write(event, listener=self.listener, left_out=left_out, **facts)

    def _end_if_silent(self) -> None:
        if self.sockets.upstream is None and not self.sockets.connecting and not self._work:
            self._fail("no request came", seconds=FIRST_REQUEST_S)
        elif self._nameless and self.facts.principal is None:
            self._fail("no login came", seconds=FIRST_REQUEST_S)

    def _end(self) -> None:
        """Lets the client go after the bytes that were written to it."""
        self.sockets.let_client_go()
        self._finish()

    def _finish(self) -> None:
        """Ends the connection: nothing more is done for this client."""
        self.sockets.over = True
        self._put_on(None)
        self._node.limits.left(self.id, self.facts.host)
        self._muting.end()
        if self.login is not None:
            self.login.close()
        self.answer_room.end()
        self._state.forget()
        if self._whole.held_bytes:
            self._whole.look()
        if self._patience is not None:
            self._patience.cancel()
            self._patience = None
        for task in self._work:
            task.cancel()
        self._own.end()

    def _gone_if_both(self) -> None:
        if self.sockets.gone:
            self.sockets.end()
            self._node.closed(self)
