"""The readers of foreign bytes, each with its oracle. One call is one input; an AssertionError or
any exception that is not documented is a finding.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random

from gateway.core.forwarding.api_counts import ApiCounts
from gateway.core.forwarding.connection_state import ConnectionState
from gateway.core.forwarding.effects import (
    Answered,
    Effect,
    Failed,
    Intercepted,
    Rewrite,
    ToClient,
    ToUpstream,
)
from gateway.core.forwarding.rewrite import Address, read, write
from gateway.core.forwarding.served_apis import rules
from gateway.core.limits import FRAME_BYTES_MAX
from gateway.core.wire.apis import APIS, ApiKey
from gateway.core.wire.codec import (
    decode_request,
    decode_response,
    encode_request,
    encode_response,
)
from gateway.core.wire.errors import WireError
from gateway.core.wire.frames import parse_request_header, parse_response_header
from gateway.core.wire.records import Scan, read_records, scan
from gateway.core.wire.schema import Message
from tests.fuzz.corpus import Exchange
from tests.fuzz.logins import before_login, logins, tokens
from tests.fuzz.mutate import chunks, framed, mutated

LOCAL = (
    ApiKey.SHARE_GROUP_HEARTBEAT,
    ApiKey.SHARE_GROUP_DESCRIBE,
    ApiKey.SHARE_FETCH,
    ApiKey.SHARE_ACKNOWLEDGE,
    ApiKey.LIST_GROUPS,
    ApiKey.DELETE_GROUPS,
    ApiKey.INCREMENTAL_ALTER_CONFIGS,
    ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS,
    ApiKey.ALTER_SHARE_GROUP_OFFSETS,
    ApiKey.DELETE_SHARE_GROUP_OFFSETS,
)
RULES = rules(LOCAL)
ADDRESSES = {1: Address("gateway.example", 9201)}
CONVERSATION_MAX = 6  # exchanges of one connection
SCANNED_BYTES_MAX = 1 << 20  # decompressed

Target = Callable[[Sequence[Exchange], Random], None]
Decode = Callable[[int, int, bytes, int], Message]
Encode = Callable[[int, int, Message], bytes]


def codec(corpus: Sequence[Exchange], random: Random) -> None:
    """A request or a response: refused as documented, or it means the same when written again."""
    exchange, other = random.choice(corpus), random.choice(corpus)
    if exchange.key not in APIS:
        return
    request = exchange.response is None or random.random() < 0.5
    whole = exchange.request if request else exchange.response
    assert whole is not None
    data = mutated(whole, other.response or other.request, random)
    try:
        if request:
            header = parse_request_header(data)
            again(
                header.api_key,
                header.api_version,
                data,
                header.body_at,
                decode_request,
                encode_request,
            )
        else:
            found = parse_response_header(exchange.key, exchange.version, data)
            again(
                exchange.key,
                exchange.version,
                data,
                found.body_at,
                decode_response,
                encode_response,
            )
    except WireError:
        return


def again(key: int, version: int, data: bytes, at: int, decode: Decode, encode: Encode) -> None:
    """Raises WireError from the first decoding alone."""
    message = decode(key, version, data, at)
    try:
        canonical = encode(key, version, message)
        decoded = decode(key, version, canonical, 0)
        assert decoded == message
        assert encode(key, version, decoded) == canonical
    except WireError as error:
        raise AssertionError(
            f"{key} v{version}: its own decoded form is refused: {error}"
        ) from error


def records(corpus: Sequence[Exchange], random: Random) -> None:
    """Record batches of produced and fetched bytes."""
    held = [recording for recording in corpus if recording.key == ApiKey.PRODUCE]
    exchange, other = random.choice(held), random.choice(held)
    header = parse_request_header(exchange.request)
    body = decode_request(ApiKey.PRODUCE, exchange.version, exchange.request, header.body_at)
    batches: bytes = body["TopicData"][0]["PartitionData"][0]["Records"]
    data = mutated(batches * random.randint(1, 3), other.request, random)
    for checks in (True, False):
        try:
            found = scan(data, check_crc=checks, body_max=SCANNED_BYTES_MAX)
        except WireError:
            continue
        for batch in found:
            assert batch.count <= SCANNED_BYTES_MAX
            assert batch.base_offset <= batch.last_offset
    steps = Scan(data, enough=SCANNED_BYTES_MAX)
    for reader in (lambda: in_steps(steps, random.randint(1, 10)), lambda: read_records(data)):
        try:
            reader()
        except WireError:
            continue


def in_steps(found: Scan, records_max: int) -> None:
    """Raises CorruptBatch."""
    while found.step(records_max):
        pass


def connection(corpus: Sequence[Exchange], random: Random) -> None:
    """Two connections in turn, one with garbage. The other one gets the same as alone."""
    healthy = conversation(corpus, random)
    alone = ConnectionState(RULES, ApiCounts())
    expected = [forwarded(play(alone, exchange)) for exchange in healthy]
    counts = ApiCounts()
    sound, bad = ConnectionState(RULES, counts), ConnectionState(RULES, counts)
    hostile = Hostile(bad, corpus, random)
    for exchange, wanted in zip(healthy, expected, strict=True):
        hostile.step()
        assert forwarded(play(sound, exchange)) == wanted
    hostile.end()
    assert sound.answered_all == alone.answered_all


def conversation(corpus: Sequence[Exchange], random: Random) -> list[Exchange]:
    """Exchanges as one client could have them, with correlation ids in order."""
    chosen = [random.choice(corpus) for _ in range(random.randint(1, CONVERSATION_MAX))]
    return [_numbered(exchange, at) for at, exchange in enumerate(chosen)]


def _numbered(exchange: Exchange, number: int) -> Exchange:
    request, response = exchange.request, exchange.response
    identifier = number.to_bytes(4, "big")
    return exchange._replace(
        request=request[:4] + identifier + request[8:],
        response=None if response is None else identifier + response[4:],
    )


def play(state: ConnectionState, exchange: Exchange) -> list[Effect]:
    """One undamaged exchange. A broker's or a handler's answer as it was recorded."""
    sized = len(exchange.request).to_bytes(4, "big") + exchange.request
    effects = state.from_client(sized)
    if exchange.response is not None:
        answer = len(exchange.response).to_bytes(4, "big") + exchange.response
        here = any(isinstance(effect, Intercepted) for effect in effects)
        if here != exchange.local:
            return effects  # of a node with other handlers
        effects += state.answered(answer[:]) if here else state.from_upstream(answer)
    return effects


def forwarded(effects: list[Effect]) -> list[tuple[str, bytes]]:
    """The bytes for each side; chunks of one side are one."""
    found: list[tuple[str, bytes]] = []
    for effect in effects:
        match effect:
            case ToUpstream(data=data) | ToClient(data=data):
                side = type(effect).__name__
                before = found.pop()[1] if found and found[-1][0] == side else b""
                found.append((side, before + bytes(data)))
            case Rewrite():
                found.append(("Rewrite", write(read(effect), ADDRESSES, RULES)))
            case _:
                found.append((type(effect).__name__, b""))
    return found


class Hostile:
    """A connection whose both sides send damaged frames, cut anyhow."""

    def __init__(self, state: ConnectionState, corpus: Sequence[Exchange], random: Random) -> None:
        self.state = state
        self.corpus = corpus
        self.random = random
        self.failed = 0
        self._fed = 0

    def step(self) -> None:
        random = self.random
        exchange, other = random.choice(self.corpus), random.choice(self.corpus)
        request = exchange.request
        if random.random() < 0.7:
            request = mutated(request, other.request, random)
        for piece in chunks(framed(request, random), random):
            self._fed += len(piece)
            self._see(self.state.from_client(piece))
        response = exchange.response
        if response is not None:
            if random.random() < 0.7:
                kept = response[:4] if random.random() < 0.8 else b""  # the right call, or any
                response = kept + mutated(response[len(kept) :], other.request, random)
            for piece in chunks(framed(response, random), random):
                self._fed += len(piece)
                self._see(self.state.from_upstream(piece))

    def end(self) -> None:
        self._see(self.state.client_ended())
        self._see(self.state.upstream_ended())
        self.state.forget()
        assert self.state.held_bytes == 0

    def _see(self, effects: list[Effect]) -> None:
        for effect in effects:
            assert not self.failed, f"{effect!r} behind a failure"
            match effect:
                case Failed():
                    self.failed += 1
                case Intercepted(payload=payload):
                    self._answer(payload)
                case Rewrite():
                    try:
                        write(read(effect), ADDRESSES, RULES)
                    except WireError:
                        self.state.forget()
                case ToUpstream() | ToClient():
                    pass
                case Answered():
                    raise AssertionError("nothing was injected")
        assert self.state.held_bytes <= min(self._fed, FRAME_BYTES_MAX)

    def _answer(self, payload: bytes) -> None:
        try:
            header = parse_request_header(payload)
            decode_request(header.api_key, header.api_version, payload, header.body_at)
        except WireError:
            self.state.forget()
            return
        answer = payload[4:8] + b"\0\0"
        self._see(self.state.answered(len(answer).to_bytes(4, "big") + answer))


TARGETS: dict[str, Target] = {
    target.__name__: target for target in (codec, records, connection, logins, tokens, before_login)
}
