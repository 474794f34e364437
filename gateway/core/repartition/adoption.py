"""Which connections of a node may still produce by the Metadata of before the new partitions.

Only those that were open when the node began to show them. One of them is done with it once it was
served Metadata with the new partitions and its requests of before that are answered, or when it is
closed. A client asks for Metadata on any of its connections, so one that only ever produces is
never served: it is closed when the time to adopt is over, and its client asks for Metadata then.

A connection that has produced nothing holds up nobody. If it begins to, it is as the others.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Producing:
    """A client's connection. `oldest_ns`: when its oldest request that is not answered was whole;
    0: it is not yet, None: it has none.
    """

    connection: int
    produces: bool
    oldest_ns: int | None


@dataclass(slots=True)
class Adopting:
    """`newest`: the connection that was opened last before the new partitions were shown."""

    newest: int
    since_ms: int
    _served_ns: dict[int, int] = field(default_factory=dict)  # by connection
    _done: set[int] = field(default_factory=set)

    def served(self, connection: int, now_ns: int) -> None:
        """The connection was sent Metadata that shows the new partitions."""
        if connection <= self.newest:
            self._served_ns.setdefault(connection, now_ns)

    def closed(self, connection: int) -> None:
        self._served_ns.pop(connection, None)
        self._done.discard(connection)

    def outstanding(self, connections: Iterable[Producing]) -> list[int]:
        return [
            producing.connection for producing in connections if self._is_outstanding(producing)
        ]

    def _is_outstanding(self, producing: Producing) -> bool:
        if (
            producing.connection > self.newest
            or not producing.produces
            or producing.connection in self._done
        ):
            return False
        served_ns = self._served_ns.get(producing.connection)
        if served_ns is None:
            return True
        if producing.oldest_ns is not None and producing.oldest_ns <= served_ns:
            return True
        # The request that it is in the middle of next is a new one.
        self._done.add(producing.connection)
        return False
