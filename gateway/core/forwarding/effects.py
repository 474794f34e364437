"""The words of the forwarding core: served APIs, output, reasons for the end of a connection."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum

from gateway.core.cluster.slots import ONE_SLOT, Slots
from gateway.core.limits import FRAME_BYTES_MAX

Client = tuple[str, str | None]  # the address of a client, and the client id it gives itself
# What upstream lets the client of a connection read, as far as it was asked: "group" or "topic",
# and its name.
MayRead = set[tuple[str, str]]
Stops = Callable[[Client, MayRead, int, int, bytes], bool]


def _none_stops(
    _client: Client, _may_read: MayRead, _api_key: int, _version: int, _payload: bytes
) -> bool:
    return False


class Screen:
    """Requests that are read whole before they go upstream: those of `apis`. `stops` tells whether
    one stops here for a handler; `payload` is the request without its size. One for all connections
    of a node, and changed while they are open.
    """

    def __init__(self) -> None:
        self.apis: frozenset[int] = frozenset()
        self.stops: Stops = _none_stops


@dataclass(frozen=True, slots=True)
class Rules:
    """The requests that are served, and the way of each. Version ranges are inclusive."""

    passed: frozenset[int]  # forwarded at any version; their responses show no address
    rewritten: dict[int, tuple[int, int]]  # forwarded; their responses show addresses
    local: dict[int, tuple[int, int]]  # answered by the gateway
    frame_bytes_max: int = FRAME_BYTES_MAX
    sasl: bool = False  # upstream serves only clients that have authenticated
    login: bool = False  # the gateway itself does: before it, a client may only log in
    slots: Slots = ONE_SLOT  # of each upstream broker
    screen: Screen = field(default_factory=Screen)


@dataclass(frozen=True, slots=True)
class ToUpstream:
    data: bytes | memoryview


@dataclass(frozen=True, slots=True)
class ToClient:
    data: bytes | memoryview


@dataclass(frozen=True, slots=True)
class Intercepted:
    """A whole request for a handler. `ConnectionState.answered` takes the answer."""

    payload: bytes  # without the size prefix


@dataclass(frozen=True, slots=True)
class Rewrite:
    """A whole response that shows addresses: it goes to the client in this place, rewritten."""

    api_key: int
    version: int
    payload: bytes  # without the size prefix


@dataclass(frozen=True, slots=True)
class Answered:
    """The response to a request that `ConnectionState.inject` put in; not for the client."""

    correlation_id: int
    payload: bytes  # without the size prefix


class Side(Enum):
    """The sender of bytes."""

    CLIENT = "client"
    UPSTREAM = "upstream"


class Fault(Enum):
    """Why a connection is closed; the shell logs it."""

    TLS = "TLS bytes on a plain port"
    HTTP = "HTTP on the Kafka port"
    FRAME_SIZE = "frame size out of range"
    UNAUTHENTICATED = "long request before authentication"
    NOT_LOGGED_IN = "request before the login"
    HEADER = "malformed request header"
    UNKNOWN_API = "API key that is not served"
    UNSUPPORTED_VERSION = "API version that is not served"
    TRUNCATED = "closed in the middle of a frame"
    OUT_OF_STEP = "response that matches no request"
    MALFORMED_RESPONSE = "malformed response"


@dataclass(frozen=True, slots=True)
class Failed:
    """The connection cannot go on. Earlier effects still count; none comes after."""

    fault: Fault
    side: Side  # the sender of the bytes
    detail: str


Effect = ToUpstream | ToClient | Intercepted | Rewrite | Answered | Failed


class Stop(Exception):
    """Inside the core: ends the reading of a stream for good."""

    def __init__(self, failed: Failed) -> None:
        super().__init__(failed.detail)
        self.failed = failed


class Kind(Enum):
    """The treatment of the response to a forwarded request."""

    PASS = 0
    WALK = 1  # passes, but node endpoints may end it
    REWRITE = 2
    INJECTED = 3


@dataclass(slots=True)
class Call:
    """A request that upstream has not answered in full."""

    kind: Kind
    api_key: int
    version: int
    correlation_id: int
    whole_ns: int = 0  # when its last byte was read; 0: not yet, or it is not timed


class Chunk:
    """The bytes of one read. data[start:at] passes and is not yet an effect."""

    def __init__(self, data: bytes, effects: list[Effect], *, side: Side) -> None:
        self.data = data
        self.effects = effects
        self.start = 0
        self.at = 0
        self.end = len(data)
        self._from_client = side is Side.CLIENT

    def flush(self) -> None:
        if self.at == self.start:
            return
        data: bytes | memoryview = self.data
        if self.start != 0 or self.at != self.end:
            data = memoryview(self.data)[self.start : self.at]
        self.effects.append(ToUpstream(data) if self._from_client else ToClient(data))
        self.start = self.at

    def take(self, count: int) -> memoryview:
        """The next bytes; they do not pass."""
        self.flush()
        taken = memoryview(self.data)[self.at : self.at + count]
        self.at += count
        self.start = self.at
        return taken

    def rest(self) -> bytes:
        """All bytes that are left; they do not pass."""
        self.flush()
        rest = self.data[self.at :]
        self.at = self.start = self.end
        return rest
