"""A part of the node: the offer of one room to the process that runs it.

Each room has a module `build` whose `build(...)` makes the room's objects and returns them as a
Part. `gateway/node/wiring.py` calls them from bottom to top; `gateway/node/lifecycle.py` knows
parts only, never rooms. A room that is added needs its `build` and one line in the wiring.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from prometheus_client.registry import Collector

from gateway.core.wire.long_bytes import LongBytes

Room = TypeVar("Room", covariant=True)

# Answers one Kafka API: a `gateway.listen.connection.Request` in, the encoded body out. The types
# are those of a room above this file.
ApiHandler = Callable[[Any], Awaitable[bytes | LongBytes]]


@dataclass(frozen=True, slots=True)
class Trouble:
    """One reason why the node is not healthy, a line for an operator."""

    text: str
    serving: bool = True  # False: clients should be sent to another node while it lasts


@dataclass(frozen=True, slots=True, kw_only=True)
class Part(Generic[Room]):
    """`room` holds the objects that rooms above use.

    The life of a node, in the order of its parts: `start` and then `background` of each part;
    `ready` of each; then the node serves. At the end, in reverse order: `drain` of each part,
    `stop` of each, the background tasks are cancelled, `close` of each.
    """

    name: str
    room: Room
    handlers: Mapping[int, ApiHandler] = field(default_factory=dict)  # by API key
    collectors: Sequence[Collector] = ()  # metrics
    troubles: Callable[[], Awaitable[Sequence[Trouble]]] | None = None  # for /health
    warnings: Callable[[], Sequence[str]] | None = None  # lines beside them: the node is well
    figures: Callable[[], Mapping[str, Any]] | None = None  # shown beside them
    start: Callable[[], Awaitable[None]] | None = None
    background: Sequence[Callable[[], Coroutine[Any, Any, None]]] = ()  # run until cancelled
    ready: Callable[[], Awaitable[None]] | None = None  # all parts run, clients may come
    drain: Callable[[], Awaitable[None]] | None = None  # no new clients; bounds its own time
    stop: Callable[[], Awaitable[None]] | None = None  # writes lasting state
    close: Callable[[], Awaitable[None]] | None = None  # gives up connections
