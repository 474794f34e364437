"""Which connections of a node may still produce by the Metadata of before the new partitions.

A connection that was open when the node began to show them is done with it once it was served
Metadata with the new partitions and its requests of before that are answered, or when it is closed.
A client asks for Metadata on any of its connections, so one that only ever produces is never
served: it is closed when the time to adopt is over, and its client asks for Metadata then.

For a connection that is opened later it is enough that another one of its client (the same address
and client id) was served: a client that connects anew asks for Metadata. One that produces to the
topic without that goes by what it knew before, and what it has sent until then is waited for.

A connection that has produced nothing holds up nobody. If it begins to, it is as the others.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, field

from gateway.core.repartition.consumers import Client
from gateway.core.repartition.limits import CLIENTS_MAX


@dataclass(frozen=True, slots=True)
class Producing:
    """A client's connection. `oldest_ns`: when its oldest request that is not answered was whole;
    0: it is not yet, None: it has none. `whole_ns`: the same of its first Produce request upstream,
    whatever has begun behind it; 0: none is whole.
    """

    connection: int
    produces: bool
    oldest_ns: int | None
    client: Client = ("", None)
    topics: Collection[str] = ()  # of those that grow, what it has produced to meanwhile
    whole_ns: int = 0


@dataclass(slots=True)
class Adopting:
    """`newest`: the connection that was opened last before the new partitions were shown.
    `produced`: those that had produced by then, to whatever topic.
    """

    topic: str
    newest: int
    since_ms: int
    produced: frozenset[int] = frozenset()
    untold: set[Client] = field(default_factory=set)  # that were served since it was emptied
    _served_ns: dict[int, int] = field(default_factory=dict)  # by connection
    _clients_ns: dict[Client, int] = field(default_factory=dict)  # when they were served first
    _done: set[int] = field(default_factory=set)

    def served(self, connection: int, client: Client, now_ns: int) -> None:
        """The connection was sent Metadata that shows the new partitions."""
        if connection <= self.newest:
            self._served_ns.setdefault(connection, now_ns)
        if len(self._clients_ns) < CLIENTS_MAX:
            self._clients_ns.setdefault(client, now_ns)
            self.untold.add(client)

    def unknown(self, connections: Iterable[Producing]) -> set[Client]:
        """Those that another node may have served."""
        return {
            producing.client
            for producing in connections
            if producing.connection > self.newest
            and self._is_outstanding(producing)
            and not self._was_served(producing.client)
        }

    def heard(self, clients: Iterable[Client], now_ns: int) -> None:
        """Another node has served these."""
        for client in clients:
            self._clients_ns.setdefault(client, now_ns)

    def closed(self, connection: int) -> None:
        self._served_ns.pop(connection, None)
        self._done.discard(connection)

    def outstanding(self, connections: Iterable[Producing]) -> list[int]:
        return [
            producing.connection for producing in connections if self._is_outstanding(producing)
        ]

    def to_close(self, connections: Iterable[Producing]) -> list[int]:
        """Of these, when their time is over. The client of one that is opened later knows what it
        has to, once it was served: no more than an answer is waited for. Once the time for answers
        is over, too, all that are outstanding are to be closed.
        """
        return [
            producing.connection
            for producing in connections
            if self._is_outstanding(producing)
            and not (producing.connection > self.newest and self._was_served(producing.client))
        ]

    def _is_outstanding(self, producing: Producing) -> bool:
        concerned = producing.connection in self.produced or self.topic in producing.topics
        if not concerned or producing.connection in self._done:
            return False
        if producing.connection > self.newest:
            if not self._was_served(producing.client):
                return True
            return 0 < producing.whole_ns <= self._clients_ns.get(producing.client, 0)
        served_ns = self._served_ns.get(producing.connection)
        if served_ns is None:
            return True
        if producing.oldest_ns is not None and producing.oldest_ns <= served_ns:
            return True
        # The request that it is in the middle of next is a new one.
        self._done.add(producing.connection)
        return False

    def _was_served(self, client: Client) -> bool:
        full = len(self._clients_ns) >= CLIENTS_MAX  # then it may have been
        return client in self._clients_ns or full
