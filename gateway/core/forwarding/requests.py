"""The stream of a client's requests: each passes or stops here.

Only heads are read: size, API key, version, correlation id; of Produce also `acks`, since a
request without a response must not be waited for. A walk goes along with a Produce request and
counts its bytes by topic; the request passes in any case. DescribeConfigs is read whole
before it goes on: only an answer about a broker shows addresses, and answers about 20,000 topics
are long. It names upstream's broker when it goes on. So is a request that a screen looks at.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from struct import Struct
from typing import Final

from gateway.core.client_limits.account import Account
from gateway.core.forwarding.api_counts import NEVER_WAITS, ApiCounts
from gateway.core.forwarding.broker_names import configs_for_upstream
from gateway.core.forwarding.effects import (
    Call,
    Chunk,
    Client,
    Effect,
    Failed,
    Fault,
    Intercepted,
    Kind,
    MayRead,
    Rules,
    Side,
    Stop,
    ToClient,
    ToUpstream,
)
from gateway.core.forwarding.partition_walk import (
    FETCH_ENDPOINTS_FROM,
    PRODUCE_ENDPOINTS_FROM,
    PRODUCE_REQUESTS,
    PartitionWalk,
)
from gateway.core.forwarding.produce_head import acks_at_of
from gateway.core.forwarding.sasl_watch import SaslWatch
from gateway.core.limits import (
    HANDSHAKE_BYTES_MAX,
    LOCAL_REQUEST_BYTES_MAX,
    PIPELINED_REQUESTS_MAX,
    PLAIN_REQUEST_BYTES_MAX,
    SASL_TOKEN_BYTES_MAX,
    UNAUTHENTICATED_REQUEST_BYTES_MAX,
)

PRODUCE: Final = 0
FETCH: Final = 1
SASL_HANDSHAKE: Final = 17
SASL_AUTHENTICATE: Final = 36
API_VERSIONS: Final = 18
DESCRIBE_CONFIGS: Final = 32
_SASL: Final = (SASL_HANDSHAKE, SASL_AUTHENTICATE)
_BEFORE_LOGIN: Final = (API_VERSIONS, SASL_HANDSHAKE, SASL_AUTHENTICATE)

_PRODUCE_TIMEOUT_BYTES: Final = 4  # behind `acks`
_SIZE_BYTES: Final = 4
_PAYLOAD_BYTES_MIN: Final = 8  # api key, version, correlation id
_UNSUPPORTED_VERSION: Final = 35
_HEAD = Struct(">ihhi")  # size, api key, version, correlation id
_API_VERSIONS_REFUSAL = Struct(">iihihhh")  # v0: size, correlation id, error, [key, min, max]
_SASL_HANDSHAKE_REFUSAL = Struct(">iihi")  # v0: size, correlation id, error, no mechanisms
_SHORT = Struct(">h")

_HTTP_VERBS: Final = frozenset(
    [b"GET ", b"POST", b"PUT ", b"HEAD", b"DELE", b"OPTI", b"PATC", b"CONN", b"TRAC", b"PRI "]
)


@dataclass(slots=True)
class Collected:
    """A request that is read whole. It stops here, and without `reply` a handler answers it; or it
    is `forwarded` as this call.
    """

    api_key: int
    left: int
    reply: bytes | None = None
    forwarded: Call | None = None
    screened: bool = False  # it goes on unless the screen stops it; then a handler answers
    payload: bytearray = field(default_factory=bytearray)  # until it is whole
    whole: bytes = b""
    whole_ns: int = 0


# Long: one state machine over the bytes of a stream; its states are its methods.
class Requests:
    """`calls` is the queue shared with the stream of responses."""

    def __init__(self, rules: Rules, calls: deque[Call], counts: ApiCounts) -> None:
        self.authenticated = not (rules.sasl or rules.login)
        self.held = False  # no request begins: upstream is asked for something else first
        self.sasl: SaslWatch | None = SaslWatch() if rules.sasl else None
        self.account: Account | None = None  # None: nothing limits this client
        self.client: Client = ("", None)
        self.may_read: MayRead = set()
        self.muted_until_ns = 0  # its next request waits for its account; 0: it does not
        self._rules = rules
        self._calls = calls
        self._counts = counts
        self._now_ns = 0
        self._first = True
        self._left = 0  # bytes of the current request that still pass
        self._passing: Call | None = None  # the current request, if it has an answer
        self._walk: PartitionWalk | None = None  # of the first Produce request and all later ones
        self._walking = False  # through the current request
        self._head = b""  # the beginning of a head that is cut off
        self.collecting: Collected | None = None
        self._parked: Collected | None = None  # complete; waits for the calls before it
        self._answering_bytes = 0  # of the request that a handler is answering
        self._answering_api = -1
        self._answering_since_ns = 0
        self._waiting: list[bytes] = []  # came while the stream stands still
        self._injections: deque[tuple[bytes, int]] = deque()

    @property
    def held_bytes(self) -> int:
        """Bytes that wait for their turn. An incomplete head or local request does not count: it
        waits for more bytes.
        """
        return sum(len(data) for data in self._waiting)

    @property
    def collected_bytes(self) -> int:
        """The bytes so far of the request that is read whole, until it is answered."""
        if self.collecting is not None:
            return len(self.collecting.payload)
        return self._answering_bytes if self._parked is None else len(self._parked.whole)

    @property
    def produces(self) -> bool:
        return self._walk is not None

    @property
    def produces_to(self) -> set[str]:
        """Of the topics that are watched."""
        return set() if self._walk is None else self._walk.watched

    @property
    def handles_produce(self) -> bool:
        """Whether a handler has a Produce request, or is about to."""
        if self._parked is not None:
            return self._parked.api_key == PRODUCE
        return self._answering_bytes > 0 and self._answering_api == PRODUCE

    @property
    def answered_all(self) -> bool:
        """Whether no request is with a handler, waits for one, or is partly upstream."""
        return self._parked is None and not self._answering_bytes and not self._left

    @property
    def mid_frame(self) -> bool:
        return self._left > 0 or len(self._head) > 0 or self.collecting is not None

    @property
    def missing_bytes(self) -> int:
        """How many bytes the current request lacks; 0 also while not even its head is complete."""
        return self._left if self.collecting is None else self.collecting.left

    @property
    def waits(self) -> bool:
        """`resume` would have something to do."""
        return self._parked is not None or len(self._waiting) > 0

    def feed(self, data: bytes, effects: list[Effect], now_ns: int = 0) -> None:
        """`now_ns`: a clock that never goes back; 0: requests are not timed. Raises Stop."""
        self._now_ns = now_ns
        if self._left == 0 and self._stands_still():  # what has begun goes on
            self._waiting.append(data)
            return
        chunk = Chunk(self._head + data if self._head else data, effects, side=Side.CLIENT)
        self._head = b""
        try:
            self._read(chunk)
        finally:
            chunk.flush()

    def answered(
        self,
        frame: bytes,
        effects: list[Effect],
        now_ns: int = 0,
        waited_ns: int = NEVER_WAITS,
    ) -> None:
        """Raises Stop."""
        assert self._answering_bytes
        self._answering_bytes = 0
        effects.append(ToClient(frame))
        if self._answering_since_ns:
            took_ns = now_ns - self._answering_since_ns
            self._counts.answered(self._answering_api, took_ns, waited_ns)
        self.resume(effects, now_ns)

    def inject(self, frame: bytes, correlation_id: int, effects: list[Effect]) -> None:
        self._injections.append((frame, correlation_id))
        if self._left == 0:
            self._send_injections(effects)

    def resume(self, effects: list[Effect], now_ns: int = 0) -> None:
        """A call was answered: requests that waited for it go on. Raises Stop."""
        self._now_ns = now_ns
        if self._parked is not None and not self._calls:
            self._serve(self._parked, effects)
        if self._waiting and not self._stands_still():
            data = b"".join(self._waiting)
            self._waiting.clear()
            self.feed(data, effects, now_ns)

    def unmute(self, effects: list[Effect], now_ns: int) -> None:
        """The wait is over; it may begin again with any request. Raises Stop."""
        self.muted_until_ns = 0
        self.resume(effects, now_ns)

    def forget(self) -> None:
        """Nothing that is held here will be answered or go on."""
        self.collecting = self._parked = None
        self._answering_bytes = 0
        self._waiting.clear()

    def _stands_still(self) -> bool:
        local = self._parked is not None or self._answering_bytes > 0
        busy = self.held or len(self._calls) >= PIPELINED_REQUESTS_MAX
        # Behind a step of SASL another exchange may begin: the watch sees one step at a time.
        step = self.sasl is not None and bool(self._calls) and self._calls[-1].api_key in _SASL
        return local or busy or step or self.muted_until_ns > 0

    def _read(self, chunk: Chunk) -> None:
        while chunk.at < chunk.end:
            if self._left:
                step = min(self._left, chunk.end - chunk.at)
                if self._walking and self._walk is not None:
                    self._walk.feed(chunk.data, chunk.at, chunk.at + step)
                chunk.at += step
                self._left -= step
                if self._left == 0:
                    self._passed(chunk)
            elif self.collecting is not None:
                self._collect(self.collecting, chunk)
            elif self._stands_still():
                self._waiting.append(chunk.rest())
            elif not self._begin(chunk) and not self.muted_until_ns:
                self._head = chunk.rest()

    def _passed(self, chunk: Chunk) -> None:
        """The last byte of a request that passes was read."""
        self._walking = False
        if self._passing is not None:
            self._passing.whole_ns = self._now_ns
            self._passing = None
        if self._injections:
            chunk.flush()
            self._send_injections(chunk.effects)

    def _begin(self, chunk: Chunk) -> bool:
        """Decides the way of the next request; False: its head is not complete, or it has to wait
        for its account.
        """
        data, at = chunk.data, chunk.at
        have = chunk.end - at
        if have < _SIZE_BYTES:
            return False
        if self._first:
            _refuse_other_protocols(data[at : at + _SIZE_BYTES])
        size = int.from_bytes(data[at : at + _SIZE_BYTES], "big", signed=True)
        if not _PAYLOAD_BYTES_MIN <= size <= self._rules.frame_bytes_max:
            raise _stop(Fault.FRAME_SIZE, f"size={size} limit={self._rules.frame_bytes_max}")
        if have < _HEAD.size:
            return False
        _, api_key, version, correlation_id = _HEAD.unpack_from(data, at)
        self._check_size(api_key, size)
        if self._must_wait(api_key):
            return False
        if self._is_local(api_key, version):
            reply = self._refusal(api_key, version, correlation_id)
            self._collect_all(Collected(api_key, size, reply=reply), chunk)
        elif self._is_read_whole(api_key):
            call = Call(self._kind(api_key, version), api_key, version, correlation_id)
            self._collect_forwarded(call, chunk, size)
        elif not self._begin_passing(chunk, size, api_key, version, correlation_id):
            return False
        self._first = False
        self._counts.asked(api_key)
        if self.account is not None:
            self.account.asked(api_key, _SIZE_BYTES + size, self._now_ns)
        return True

    def _begin_passing(
        self, chunk: Chunk, size: int, api_key: int, version: int, correlation_id: int
    ) -> bool:
        """False: its head is not complete."""
        kind = self._kind(api_key, version)
        acks = 1
        if api_key == PRODUCE:
            data, at = chunk.data, chunk.at
            acks_at = acks_at_of(data, at, at + _SIZE_BYTES + size, version)
            if acks_at < 0:
                return False
            acks = _SHORT.unpack_from(data, acks_at)[0]
            self._begin_walk(version, acks_at + _SHORT.size - at)
        if acks != 0:
            self._passing = Call(kind, api_key, version, correlation_id)
            self._calls.append(self._passing)
        self._left = _SIZE_BYTES + size
        return True

    def _collect_forwarded(self, call: Call, chunk: Chunk, size: int) -> None:
        if call.api_key == PRODUCE and self._walk is None:
            self._walk = PartitionWalk(self._counts.topics)  # it produces
        screened = call.api_key in self._rules.screen.apis
        request = Collected(call.api_key, size, forwarded=call, screened=screened)
        self._collect_all(request, chunk)

    def _is_read_whole(self, api_key: int) -> bool:
        if api_key in self._rules.screen.apis and self.authenticated:
            return True
        return api_key == DESCRIBE_CONFIGS or (self.sasl is not None and api_key in _SASL)

    def _must_wait(self, api_key: int) -> bool:
        """The client's account has not paid yet for what was taken before."""
        if self.account is None:
            return False
        wait_ns = self.account.wait_ns(api_key, self._now_ns)
        if wait_ns <= 0:
            return False
        self.account.muted += 1
        self.muted_until_ns = self._now_ns + wait_ns
        return True

    def _check_size(self, api_key: int, size: int) -> None:
        """Raises Stop: too long for its API, or for a client that nobody knows yet."""
        fault = Fault.FRAME_SIZE
        if self._rules.login and not self.authenticated and api_key not in _BEFORE_LOGIN:
            raise _stop(Fault.NOT_LOGGED_IN, f"api_key={api_key}")
        if api_key in (API_VERSIONS, SASL_HANDSHAKE):
            limit = HANDSHAKE_BYTES_MAX
        elif api_key == SASL_AUTHENTICATE:
            limit = SASL_TOKEN_BYTES_MAX
        elif not self.authenticated:
            limit = UNAUTHENTICATED_REQUEST_BYTES_MAX
            fault = Fault.UNAUTHENTICATED
        elif api_key == PRODUCE:
            return
        else:
            limit = PLAIN_REQUEST_BYTES_MAX
        if size > limit:
            raise _stop(fault, f"size={size} limit={limit} api_key={api_key}")

    def _begin_walk(self, version: int, head_bytes: int) -> None:
        """Through a Produce request, of which `head_bytes` end with `acks`."""
        if not self.authenticated:
            return
        if self._walk is None:
            self._walk = PartitionWalk(self._counts.topics)
        self._walk.begin(PRODUCE_REQUESTS[version], head_bytes + _PRODUCE_TIMEOUT_BYTES)
        self._walking = True

    def _is_local(self, api_key: int, version: int) -> bool:
        if api_key == SASL_HANDSHAKE and version == 0:
            return True  # Tokens would follow without any frame header (KIP-152).
        served = self._rules.local.get(api_key)
        if served is not None:
            if not served[0] <= version <= served[1]:
                raise _unsupported(api_key, version, served)
            return True
        if api_key == API_VERSIONS:
            return self._answers_versions or version > self._rules.rewritten[API_VERSIONS][1]
        return False

    @property
    def _answers_versions(self) -> bool:
        """Before its login no request of a client goes upstream."""
        return self._rules.login and not self.authenticated

    def _refusal(self, api_key: int, version: int, correlation_id: int) -> bytes | None:
        """None: a handler answers."""
        served = self._rules.local.get(api_key) or self._rules.rewritten.get(api_key)
        if served is not None and served[0] <= version <= served[1]:
            return None
        error = _UNSUPPORTED_VERSION
        if api_key == API_VERSIONS:
            # As a broker that is older than its client: in v0, with the versions it knows.
            low, high = self._rules.rewritten[API_VERSIONS]
            size = _API_VERSIONS_REFUSAL.size - _SIZE_BYTES
            return _API_VERSIONS_REFUSAL.pack(size, correlation_id, error, 1, api_key, low, high)
        size = _SASL_HANDSHAKE_REFUSAL.size - _SIZE_BYTES
        return _SASL_HANDSHAKE_REFUSAL.pack(size, correlation_id, error, 0)

    def _kind(self, api_key: int, version: int) -> Kind:
        known = self._rules.rewritten.get(api_key)
        if known is None:
            if api_key in self._rules.passed:
                return Kind.PASS
            raise _stop(Fault.UNKNOWN_API, f"api_key={api_key} version={version}")
        if not known[0] <= version <= known[1]:
            raise _unsupported(api_key, version, known)
        if api_key == FETCH:
            return Kind.WALK if version >= FETCH_ENDPOINTS_FROM else Kind.PASS
        if api_key == PRODUCE:
            return Kind.WALK if version >= PRODUCE_ENDPOINTS_FROM else Kind.PASS
        return Kind.REWRITE

    def _collect_all(self, request: Collected, chunk: Chunk) -> None:
        limit = LOCAL_REQUEST_BYTES_MAX
        if request.left > limit and not request.screened:
            detail = f"size={request.left} limit={limit} api_key={request.api_key}"
            raise _stop(Fault.FRAME_SIZE, detail)
        self.collecting = request
        chunk.take(_SIZE_BYTES)

    def _collect(self, local: Collected, chunk: Chunk) -> None:
        step = min(local.left, chunk.end - chunk.at)
        local.payload += chunk.take(step)
        local.left -= step
        if local.left == 0:
            self.collecting = None
            local.whole, local.payload = bytes(local.payload), bytearray()  # it may be long
            local.whole_ns = self._now_ns
            if local.forwarded is not None and not self._screened(local, local.forwarded):
                local.forwarded.whole_ns = self._now_ns
                self._forward(local.forwarded, local.whole, chunk.effects)
            elif self._calls:
                self._parked = local
            else:
                self._serve(local, chunk.effects)

    def _screened(self, local: Collected, call: Call) -> bool:
        """Whether the request stops here."""
        screen, key = self._rules.screen, call.api_key
        if not local.screened or key not in screen.apis:
            return False
        return screen.stops(self.client, self.may_read, key, call.version, local.whole)

    def _forward(self, call: Call, payload: bytes, effects: list[Effect]) -> None:
        if call.api_key == PRODUCE:
            self._pass_produce(call, payload, effects)
            return
        if self.sasl is not None and call.api_key in _SASL:  # for the name in it
            self.sasl.asked(call.api_key, call.version, payload)
        elif call.api_key == DESCRIBE_CONFIGS:
            payload, about_brokers = configs_for_upstream(call.version, payload, self._rules.slots)
            if not about_brokers:
                call.kind = Kind.PASS
        self._calls.append(call)
        effects.append(ToUpstream(len(payload).to_bytes(_SIZE_BYTES, "big") + payload))

    def _pass_produce(self, call: Call, payload: bytes, effects: list[Effect]) -> None:
        acks_at = acks_at_of(payload, -_SIZE_BYTES, len(payload), call.version)
        self._begin_walk(call.version, acks_at + _SHORT.size)
        if self._walking and self._walk is not None:
            self._walk.feed(payload, 0, len(payload))
        self._walking = False
        if _SHORT.unpack_from(payload, acks_at)[0] != 0:
            self._calls.append(call)
        effects.append(ToUpstream(len(payload).to_bytes(_SIZE_BYTES, "big")))
        effects.append(ToUpstream(payload))  # not copied to stand behind its size

    def _serve(self, local: Collected, effects: list[Effect]) -> None:
        self._parked = None
        if local.reply is not None:
            effects.append(ToClient(local.reply))
            if local.whole_ns:
                self._counts.answered(local.api_key, self._now_ns - local.whole_ns)
        else:
            self._answering_bytes = len(local.whole)
            self._answering_api = local.api_key
            self._answering_since_ns = local.whole_ns
            effects.append(Intercepted(local.whole))

    def _send_injections(self, effects: list[Effect]) -> None:
        while self._injections:
            frame, correlation_id = self._injections.popleft()
            self._calls.append(Call(Kind.INJECTED, -1, -1, correlation_id))
            effects.append(ToUpstream(frame))


def _stop(fault: Fault, detail: str) -> Stop:
    return Stop(Failed(fault, Side.CLIENT, detail))


def _unsupported(api_key: int, version: int, served: tuple[int, int]) -> Stop:
    detail = f"api_key={api_key} version={version} served={served[0]}-{served[1]}"
    return _stop(Fault.UNSUPPORTED_VERSION, detail)


def _refuse_other_protocols(first: bytes) -> None:
    if first[:2] == b"\x16\x03":
        raise _stop(Fault.TLS, "the client speaks TLS, this port does not")
    if first in _HTTP_VERBS:
        raise _stop(Fault.HTTP, f"verb={first.decode().strip()}")
