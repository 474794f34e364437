"""One client connection and its upstream connection: bytes in, effects out (ARCHITECTURE, States).

Cut-through: a frame that needs no rewriting is never assembled. Its bytes go on in the chunks they
came in, whole chunks as the very object that was read; only frame heads are parsed. Three kinds of
frames are assembled: requests that the gateway answers itself, responses to rewrite, and responses
to requests that the gateway put in between.

Order is Kafka's own. A broker works on one request of a connection at a time, so responses come in
the order of the requests, and the queue of open calls names the next response. A request that the
gateway answers itself waits until everything before it is answered, and everything after it waits
for its answer: a broker mutes the channel meanwhile, and this does the same.
"""

from __future__ import annotations

from collections import deque

from gateway.core.client_limits.account import Account
from gateway.core.forwarding.api_counts import NEVER_WAITS, ApiCounts
from gateway.core.forwarding.effects import (
    Call,
    Client,
    Effect,
    Failed,
    Fault,
    Kind,
    MayRead,
    Rules,
    Side,
    Stop,
)
from gateway.core.forwarding.node_endpoints import MalformedResponse
from gateway.core.forwarding.requests import PRODUCE, Collected, Requests
from gateway.core.forwarding.responses import Responses


# Long: a property for each question of the shell, a method for each thing that happens.
class ConnectionState:
    """The two streams of one client connection, and the calls that are open on it. The caller owns
    and reports `counts`. `now_ns` is a clock that never goes back; 0: requests are not timed.
    """

    def __init__(self, rules: Rules, counts: ApiCounts) -> None:
        self._calls: deque[Call] = deque()
        self._requests = Requests(rules, self._calls, counts)
        self._responses = Responses(rules, self._calls, self._requests, counts)
        self._ended = False

    @property
    def held_bytes(self) -> int:
        """Client bytes that wait here for their turn: stop reading while there are many."""
        return self._requests.held_bytes

    @property
    def collected_bytes(self) -> int:
        """Bytes here of a client's request that is read whole, until it is answered."""
        return self._requests.collected_bytes

    @property
    def passing_whole(self) -> Collected | None:
        """A Produce request that goes upstream once all of it is here."""
        collecting = self._requests.collecting
        produced = collecting is not None and collecting.api_key == PRODUCE
        return collecting if produced else None

    @property
    def mid_request(self) -> bool:
        """Whether more bytes of a client's request have to come."""
        return self._requests.mid_frame

    @property
    def account(self) -> Account | None:
        """The account whose limits hold for the requests from now on; None: no limits."""
        return self._requests.account

    @account.setter
    def account(self, account: Account | None) -> None:
        self._requests.account = account

    @property
    def client(self) -> Client:
        """Who sends it, for the screen of `rules`."""
        return self._requests.client

    @client.setter
    def client(self, client: Client) -> None:
        self._requests.client = client

    @property
    def may_read(self) -> MayRead:
        """What upstream lets it read, for the same: the shell adds to it."""
        return self._requests.may_read

    @property
    def principal(self) -> str | None:
        """The name that the client has authenticated with at upstream, ANONYMOUS where the exchange
        does not show it; None: not yet. From then on its requests wait for `release`.
        """
        sasl = self._requests.sasl
        return None if sasl is None else sasl.principal

    def logged_in(self) -> None:
        """The gateway has authenticated the client: its requests may go upstream from now on."""
        self._requests.authenticated = True

    def hold(self) -> None:
        """No request of the client begins until `release`."""
        self._requests.held = True

    def release(self, now_ns: int) -> list[Effect]:
        effects: list[Effect] = []
        self._requests.held = False
        if not self._ended:
            try:
                self._requests.resume(effects, now_ns)
            except Stop as stop:
                self._end(stop.failed, effects)
        return effects

    @property
    def muted_until_ns(self) -> int:
        """The client's next request waits for its account: `unmute` then. 0: it does not."""
        return self._requests.muted_until_ns

    @property
    def answered_all(self) -> bool:
        """Whether every request that has begun was answered."""
        return not self._calls and self._requests.answered_all

    @property
    def calls_open(self) -> int:
        return len(self._calls)

    @property
    def open_apis(self) -> list[int]:
        """Keys of the client's requests that upstream has not answered, the oldest first."""
        return [call.api_key for call in self._calls if call.kind is not Kind.INJECTED]

    @property
    def produces(self) -> bool:
        """Whether the client has sent a Produce request, or the beginning of one."""
        return self._requests.produces

    @property
    def produces_to(self) -> set[str]:
        """The topics that are watched (topic_bytes.py) and that the client has produced to."""
        return self._requests.produces_to

    @property
    def oldest_produce_ns(self) -> int | None:
        """When the oldest Produce request that is not answered was whole; 0: one may not be whole
        yet, None: there is none.
        """
        requests = self._requests
        if requests.mid_frame or requests.held_bytes or requests.handles_produce:
            return 0
        return self._first_produce_ns()

    @property
    def whole_produce_ns(self) -> int:
        """When the first Produce request that upstream has not answered was whole, whatever came
        behind it; 0: none is whole.
        """
        return self._first_produce_ns() or 0

    def _first_produce_ns(self) -> int | None:
        return next((call.whole_ns for call in self._calls if call.api_key == PRODUCE), None)

    def from_client(self, data: bytes, now_ns: int = 0) -> list[Effect]:
        effects: list[Effect] = []
        if not self._ended:
            try:
                self._requests.feed(data, effects, now_ns)
            except Stop as stop:
                self._end(stop.failed, effects)
        return effects

    def from_upstream(self, data: bytes, now_ns: int = 0) -> list[Effect]:
        effects: list[Effect] = []
        if not self._ended:
            try:
                self._responses.feed(data, effects, now_ns)
            except Stop as stop:
                self._end(stop.failed, effects)
            except MalformedResponse as error:
                failed = Failed(Fault.MALFORMED_RESPONSE, Side.UPSTREAM, str(error))
                self._end(failed, effects)
        return effects

    def answered(self, frame: bytes, now_ns: int = 0, waited_ns: int = NEVER_WAITS) -> list[Effect]:
        """The answer to the `Intercepted` request, with its size prefix; of a long one the part
        behind its head, which has left already. `waited_ns`: as for `ApiCounts.answered`.
        """
        effects: list[Effect] = []
        if not self._ended:
            try:
                self._requests.answered(frame, effects, now_ns, waited_ns)
            except Stop as stop:
                self._end(stop.failed, effects)
        return effects

    def unmute(self, now_ns: int) -> list[Effect]:
        effects: list[Effect] = []
        if not self._ended:
            try:
                self._requests.unmute(effects, now_ns)
            except Stop as stop:
                self._end(stop.failed, effects)
        return effects

    def inject(self, frame: bytes, correlation_id: int) -> list[Effect]:
        """Puts in a request at the next frame boundary; its response comes as `Answered`."""
        effects: list[Effect] = []
        if not self._ended:
            self._requests.inject(frame, correlation_id, effects)
        return effects

    def client_ended(self) -> list[Effect]:
        """The client has closed its side."""
        return self._ended_by(Side.CLIENT, self._requests.mid_frame, self._requests.missing_bytes)

    def upstream_ended(self) -> list[Effect]:
        """Upstream has closed its side; its earlier bytes are already out."""
        mid_frame, missing = self._responses.mid_frame, self._responses.missing_bytes
        return self._ended_by(Side.UPSTREAM, mid_frame, missing)

    def forget(self) -> None:
        """The connection is over: gives up the bytes held for it."""
        self._ended = True
        self._requests.forget()

    def _ended_by(self, side: Side, mid_frame: bool, missing: int) -> list[Effect]:
        effects: list[Effect] = []
        if mid_frame and not self._ended:
            detail = f"missing_bytes={missing}" if missing else "in the header"
            effects.append(Failed(Fault.TRUNCATED, side, detail))
        self._ended = True
        return effects

    def _end(self, failed: Failed, effects: list[Effect]) -> None:
        self._ended = True
        effects.append(failed)
