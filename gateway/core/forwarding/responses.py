"""The stream of upstream's responses: each passes or is assembled.

A walk goes along with each Fetch response and counts its bytes by topic. Where node endpoints may
end a response, it finds them, and such a response must be well-formed up to there. Any other passes
whatever is in it.
"""

from __future__ import annotations

from collections import deque
from struct import Struct
from typing import Final

from gateway.core.client_limits.throttle_field import throttle_at, throttle_of, throttled
from gateway.core.forwarding.api_counts import ApiCounts
from gateway.core.forwarding.effects import (
    Answered,
    Call,
    Chunk,
    Effect,
    Failed,
    Fault,
    Kind,
    Rewrite,
    Rules,
    Side,
    Stop,
    ToClient,
)
from gateway.core.forwarding.node_endpoints import MalformedResponse, neutralised
from gateway.core.forwarding.partition_walk import (
    FETCH_RESPONSES,
    LOST,
    PRODUCE_RESPONSES,
    PartitionWalk,
)
from gateway.core.forwarding.requests import (
    DESCRIBE_CONFIGS,
    FETCH,
    PRODUCE,
    SASL_AUTHENTICATE,
    Requests,
)
from gateway.core.limits import (
    METADATA_BYTES_MAX,
    RESPONSE_TAIL_BYTES_MAX,
    REWRITTEN_CONFIGS_BYTES_MAX,
    REWRITTEN_RESPONSE_BYTES_MAX,
    WHOLE_RESPONSE_BYTES_MAX,
)

_METADATA: Final = 3
_SASL_FLEXIBLE_FROM: Final = 2
_SIZE_BYTES: Final = 4
_CORRELATION_BYTES: Final = 4
_PAYLOAD_BYTES_MIN: Final = _CORRELATION_BYTES

_HEAD = Struct(">ii")  # size, correlation id
_THROTTLED: Final = (PRODUCE, FETCH)  # the APIs that byte quotas slow down
# The same, no tagged field, the error code, no error message, the size of the mechanism's bytes. No
# such response is shorter.
_SASL_HEAD_BYTES: Final = 16
_ERROR_CODE_BYTES: Final = 2
# No error message (null or empty), and no bytes of the mechanism: before and from v2.
_EMPTY: Final = (b"\xff\xff\0\0\0\0", b"\0\0\0\0\0\0", b"\0\1", b"\1\1")


class Responses:
    """`calls` is the queue shared with `requests`, which waits for answers to some of them."""

    def __init__(
        self, rules: Rules, calls: deque[Call], requests: Requests, counts: ApiCounts
    ) -> None:
        self._rules = rules
        self._calls = calls  # the first one may be partly answered
        self._requests = requests
        self._counts = counts
        self._now_ns = 0
        self._head = b""  # the beginning of a head that is cut off
        self._left = 0  # bytes of the current response that still pass
        self._walk: PartitionWalk | None = None  # of the first such response and all later ones
        self._counting = False  # it goes along with the response that passes,
        self._walking = False  # ... or finds the tagged fields that end it
        self._whole_left = 0  # bytes of the current response, or of its tail, to be collected
        self._whole = bytearray()
        self._in_tail = False

    @property
    def mid_frame(self) -> bool:
        return self._left > 0 or self._whole_left > 0 or len(self._head) > 0

    @property
    def missing_bytes(self) -> int:
        """How many bytes the current response lacks; 0 also while not even its head is complete."""
        return self._left or self._whole_left

    def feed(self, data: bytes, effects: list[Effect], now_ns: int = 0) -> None:
        """`now_ns`: as for `Requests.feed`. Raises Stop, MalformedResponse."""
        self._now_ns = now_ns
        chunk = Chunk(self._head + data if self._head else data, effects, side=Side.UPSTREAM)
        self._head = b""
        try:
            self._read(chunk)
        finally:
            chunk.flush()

    def _read(self, chunk: Chunk) -> None:
        while chunk.at < chunk.end:
            if self._walking and self._walk is not None:
                self._pass_walking(self._walk, chunk)
            elif self._left:
                self._pass(chunk)
            elif self._whole_left:
                self._collect(chunk)
            elif chunk.end - chunk.at < self._head_bytes():
                self._head = chunk.rest()
            else:
                self._begin(chunk)

    def _head_bytes(self) -> int:
        """The size of the next response's head. That of SaslAuthenticate tells what became of
        it.
        """
        if not self._calls or self._requests.sasl is None:
            return _HEAD.size
        return _SASL_HEAD_BYTES if self._calls[0].api_key == SASL_AUTHENTICATE else _HEAD.size

    def _begin(self, chunk: Chunk) -> None:
        size, correlation_id = _HEAD.unpack_from(chunk.data, chunk.at)
        if not self._calls:
            raise _stop(Fault.OUT_OF_STEP, f"correlation_id={correlation_id} expected=none")
        call = self._calls[0]
        if correlation_id != call.correlation_id:
            detail = f"correlation_id={correlation_id} expected={call.correlation_id}"
            raise _stop(Fault.OUT_OF_STEP, detail)
        if not _PAYLOAD_BYTES_MIN <= size <= self._rules.frame_bytes_max:
            limit = self._rules.frame_bytes_max
            raise _stop(Fault.FRAME_SIZE, f"size={size} limit={limit} api_key={call.api_key}")
        if call.api_key == SASL_AUTHENTICATE:
            self._note_login(call, chunk)
        if call.api_key in _THROTTLED:
            self._note_throttle(call, chunk, chunk.at + _SIZE_BYTES + size)
        self._throttle(call, chunk, size)
        if call.kind is Kind.PASS:
            self._begin_pass(call, size)
        elif call.kind is Kind.WALK and size > WHOLE_RESPONSE_BYTES_MAX:
            self._begun_walk(call, _CORRELATION_BYTES)
            self._walking = True
            self._left = size
            chunk.at += _SIZE_BYTES
        elif call.kind is Kind.WALK and self._is_clean_here(call, chunk, size):
            self._left = _SIZE_BYTES + size
        elif call.kind is not Kind.INJECTED and size > (
            limit := _rewritten_bytes_max(call.api_key)
        ):
            raise _stop(Fault.FRAME_SIZE, f"size={size} limit={limit} api_key={call.api_key}")
        else:
            self._whole_left = size
            chunk.take(_SIZE_BYTES)

    def _begin_pass(self, call: Call, size: int) -> None:
        self._left = _SIZE_BYTES + size
        if call.api_key == FETCH:
            self._begun_walk(call, _HEAD.size)
            self._counting = True

    def _begun_walk(self, call: Call, head_bytes: int) -> PartitionWalk:
        """Through a Fetch or Produce response; its correlation id ends `head_bytes`."""
        if self._walk is None:
            self._walk = PartitionWalk(self._counts.topics)
        layouts = FETCH_RESPONSES if call.api_key == FETCH else PRODUCE_RESPONSES
        self._walk.begin(layouts[call.version], head_bytes)
        return self._walk

    def _is_clean_here(self, call: Call, chunk: Chunk, size: int) -> bool:
        """The response is all there and no tagged field ends it. Raises MalformedResponse."""
        at = chunk.at + _SIZE_BYTES
        if at + size > chunk.end:
            return False
        if self._is_clean(call, chunk.data, at, at + size):
            return True
        call.kind = Kind.REWRITE  # It is not walked through again, which would count it twice.
        return False

    def _is_clean(self, call: Call, data: bytes, at: int, end: int) -> bool:
        """Whether no tagged field ends the response payload data[at:end]. Raises
        MalformedResponse.
        """
        tail_at = self._begun_walk(call, _CORRELATION_BYTES).feed(data, at, end)
        if tail_at < 0 or tail_at == end:
            raise _cut_off(tail_at)
        return tail_at + 1 == end and data[tail_at] == 0

    def _note_throttle(self, call: Call, chunk: Chunk, end: int) -> None:
        """ThrottleTimeMs of the response that begins here and ends at `end`, unless it is cut."""
        at = throttle_at(call.api_key, call.version, chunk.data, chunk.at, end)
        if at >= 0:
            throttle_ms = throttle_of(chunk.data, at)
            if throttle_ms > 0:
                self._counts.throttled(call.api_key, throttle_ms)

    def _note_login(self, call: Call, chunk: Chunk) -> None:
        requests = self._requests
        if requests.sasl is None:
            return
        flexible = call.version >= _SASL_FLEXIBLE_FROM
        error_at = chunk.at + _HEAD.size + flexible
        at = error_at + _ERROR_CODE_BYTES
        empty = chunk.data[at : at + (2 if flexible else 6)] in _EMPTY
        requests.sasl.answered(accepted=chunk.data[error_at:at] == b"\0\0", empty=empty)
        if not requests.authenticated and requests.sasl.principal is not None:
            requests.authenticated = True
            requests.held = True  # until the shell has its account: what waits here counts, too

    def _throttle(self, call: Call, chunk: Chunk, size: int) -> None:
        """The response that begins here tells the wait of the client's account, if that is the
        longer one. A copy of one read, and only for a client that has to wait.
        """
        account = self._requests.account
        if account is None or call.kind is Kind.INJECTED:
            return
        throttle_ms = account.answered(call.api_key, _SIZE_BYTES + size, self._now_ns)
        if throttle_ms > 0:
            end = chunk.at + _SIZE_BYTES + size
            at = throttle_at(call.api_key, call.version, chunk.data, chunk.at, end)
            if at >= 0:
                chunk.flush()
                chunk.data = throttled(chunk.data, at, throttle_ms)

    def _pass(self, chunk: Chunk) -> None:
        step = min(self._left, chunk.end - chunk.at)
        if self._counting and self._walk is not None:
            self._walk.feed(chunk.data, chunk.at, chunk.at + step)
        chunk.at += step
        self._left -= step
        if self._left == 0:
            self._counting = False
            self._complete(chunk)

    def _pass_walking(self, walk: PartitionWalk, chunk: Chunk) -> None:
        end = chunk.at + min(self._left, chunk.end - chunk.at)
        tail_at = walk.feed(chunk.data, chunk.at, end)
        if tail_at == LOST:
            raise _cut_off(tail_at)
        passed = end if tail_at < 0 else tail_at
        self._left -= passed - chunk.at
        chunk.at = passed
        if self._left == 0:
            raise _cut_off(tail_at)
        if tail_at < 0:
            return
        self._walking = False
        if self._left == 1 and tail_at < chunk.end and chunk.data[tail_at] == 0:
            return  # No tagged fields: the last byte passes as well.
        if self._left > RESPONSE_TAIL_BYTES_MAX:
            raise MalformedResponse(f"tagged fields of {self._left} bytes")
        self._whole_left = self._left
        self._left = 0
        self._in_tail = True

    def _collect(self, chunk: Chunk) -> None:
        step = min(self._whole_left, chunk.end - chunk.at)
        self._whole += chunk.take(step)
        self._whole_left -= step
        if self._whole_left:
            return
        payload = bytes(self._whole)
        self._whole = bytearray()
        chunk.effects.append(self._whole_response(self._calls[0], payload))
        self._complete(chunk)

    def _whole_response(self, call: Call, payload: bytes) -> Effect:
        if self._in_tail:
            self._in_tail = False
            return ToClient(neutralised(payload))
        if call.kind is Kind.INJECTED:
            return Answered(call.correlation_id, payload)
        if call.kind is Kind.WALK and self._is_clean(call, payload, 0, len(payload)):
            return ToClient(len(payload).to_bytes(_SIZE_BYTES, "big") + payload)
        return Rewrite(call.api_key, call.version, payload)

    def _complete(self, chunk: Chunk) -> None:
        call = self._calls.popleft()
        if call.whole_ns:
            self._counts.answered(call.api_key, self._now_ns - call.whole_ns)
        if self._requests.waits:
            chunk.flush()
            self._requests.resume(chunk.effects, self._now_ns)


def _stop(fault: Fault, detail: str) -> Stop:
    return Stop(Failed(fault, Side.UPSTREAM, detail))


def _rewritten_bytes_max(api_key: int) -> int:
    if api_key == _METADATA:
        return METADATA_BYTES_MAX
    configs = api_key == DESCRIBE_CONFIGS
    return REWRITTEN_CONFIGS_BYTES_MAX if configs else REWRITTEN_RESPONSE_BYTES_MAX


def _cut_off(tail_at: int) -> MalformedResponse:
    lost = "varint of more than 5 bytes"
    return MalformedResponse(lost if tail_at == LOST else "the frame ends before its tagged fields")
