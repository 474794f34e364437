"""The client side of a node: the bootstrap port, a port per virtual broker, their connections.

A connection to a virtual broker is one connection to that upstream broker. The bootstrap port leads
to any broker that answers: the bootstrap servers in turn, then the brokers known by now.
"""

from __future__ import annotations

import asyncio
import itertools
import ssl
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass

import structlog

from gateway.core.cluster.slots import ONE_SLOT, Slots
from gateway.core.cluster.topology import Broker, Topology
from gateway.core.forwarding.effects import Rewrite
from gateway.core.forwarding.rewrite import Address, Addresses, OfferedApis, read, write
from gateway.core.forwarding.served_apis import rules
from gateway.core.limits import FRAME_BYTES_MAX
from gateway.core.wire.apis import ApiKey
from gateway.core.wire.errors import ErrorCode
from gateway.core.wire.schema import Message
from gateway.listen.admission import Admission, RefusedSide
from gateway.listen.bounds import Bounds
from gateway.listen.connection import (
    ClientConnection,
    ConnectionId,
    Handler,
    Request,
)
from gateway.listen.counters import Counters, Refused
from gateway.listen.limits import (
    ABORT_S,
    CONNECT_TIMEOUT_S,
    CONNECTS_AT_ONCE,
    UPSTREAM_AGAIN_S,
    UPSTREAM_PATIENCE_S,
)
from gateway.listen.listeners import CannotListen, Listeners
from gateway.listen.sockets import ClientSide
from gateway.upstream.errors import Unreachable

__all__ = [
    "ClientConnection",
    "ConnectionId",
    "Counters",
    "Handler",
    "Request",
    "Server",
    "ServerSettings",
]

log = structlog.get_logger("keyway.server")

TOO_MANY = "no more clients are taken: raise the limit of open files (ulimit -n), two for a client"


@dataclass(frozen=True, slots=True)
class ServerSettings:
    """`bootstrap_servers` are upstream's. Port 0 means any free one; port_base 0 likewise."""

    bootstrap_servers: tuple[Address, ...]
    host: str = "127.0.0.1"
    advertised_host: str | None = None  # None: host
    bootstrap_port: int = 9192
    bootstrap_shared: bool = False  # with other nodes on this machine
    port_base: int = 9200  # virtual broker n listens on port_base + n
    port_step: int = 1_000  # from one slot of a broker to its next
    slots: Slots = ONE_SLOT
    frame_bytes_max: int = FRAME_BYTES_MAX
    drain_s: float = 5.0  # at stop, for requests that are not answered yet
    upstream_ssl: ssl.SSLContext | None = None
    upstream_sasl: bool = False  # it serves only clients that have authenticated


class Server:
    """`handlers` answer their API keys here; all other requests go upstream."""

    def __init__(
        self,
        settings: ServerSettings,
        topology: Topology,
        handlers: Mapping[int, Handler],
        admission: Admission | None = None,
        now_ms: Callable[[], int] | None = None,
    ) -> None:
        self.settings = settings
        self.admission = admission or Admission(sys.maxsize)
        self.answer(handlers)
        self.counters = Counters()
        self.connections: dict[ConnectionId, ClientConnection] = {}
        self._now_ms = now_ms or _monotonic_ms
        self.bounds = Bounds(self._find, self._now_ms)
        self.bootstrap: Address | None = None  # once it runs
        self._brokers: dict[int, Broker] = dict(topology.brokers)
        self._on_disconnect: list[Callable[[ConnectionId], None]] = []
        self._on_drain: list[Callable[[], None]] = []
        self._on_metadata: list[Callable[[ConnectionId, Message], None]] = []
        self._ids: Iterator[int] = itertools.count(1)
        self._connecting: dict[Address, asyncio.Semaphore] = {}  # by upstream address
        self._next_bootstrap = 0  # index of the bootstrap server that is tried first
        self._stopping = False
        self._empty = asyncio.Event()  # no connection is left
        self._empty.set()
        self._brokers_without_listener: set[int] = set()  # brokers whose port is taken
        self._tasks: asyncio.TaskGroup | None = None
        self._listeners: Listeners | None = None
        self._elsewhere: Addresses = {}

    @asynccontextmanager
    async def running(self) -> AsyncIterator[Server]:
        """Serves inside the block; at its end requests under way get `drain_s` to be answered.

        Raises CannotListen.
        """
        async with asyncio.TaskGroup() as tasks:
            self.start(tasks)
            try:
                yield self
            finally:
                await self.drain()

    def start(self, tasks: asyncio.TaskGroup) -> None:
        """Opens the listeners; connections live in `tasks`. Raises CannotListen."""
        self._tasks = tasks
        self._listeners = self._open_listeners(tasks)

    async def drain(self) -> None:
        """Closes the listeners. Requests under way get `drain_s` to be answered."""
        for callback in self._on_drain:
            callback()
        self._stopping = True  # No answer and no news of a broker opens a listener again.
        if self._listeners is not None:
            self._listeners.close_all()
        await self._drain()

    def answer(self, handlers: Mapping[int, Handler]) -> None:
        """From the next connection on, `handlers` answer their API keys here."""
        self.handlers = handlers
        self.rules = rules(
            handlers,
            frame_bytes_max=self.settings.frame_bytes_max,
            sasl=self.settings.upstream_sasl,
            slots=self.settings.slots,
        )
        self._offered = OfferedApis(self.rules)

    def on_disconnect(self, callback: Callable[[ConnectionId], None]) -> None:
        """`callback` is called once for each connection, when its client is gone."""
        self._on_disconnect.append(callback)

    def on_drain(self, callback: Callable[[], None]) -> None:
        """`callback` is called once, before the first connection is closed by a planned stop."""
        self._on_drain.append(callback)

    def on_metadata(self, callback: Callable[[ConnectionId, Message], None]) -> None:
        """`callback` is called with each answer of Metadata that goes to a client."""
        self._on_metadata.append(callback)

    @property
    def tasks(self) -> asyncio.TaskGroup:
        assert self._tasks is not None, "the server does not run"
        return self._tasks

    @property
    def addresses(self) -> Addresses:
        """Where clients reach the virtual brokers."""
        return {} if self._listeners is None else self._listeners.addresses

    @property
    def shown(self) -> Addresses:
        """The addresses that clients are told: some virtual brokers are those of other nodes."""
        return {**self.addresses, **self._elsewhere} if self._elsewhere else self.addresses

    def show_elsewhere(self, addresses: Addresses) -> None:
        """From now on clients are told these addresses, in the place of this node's own."""
        self._elsewhere = addresses

    def on_topology(self, topology: Topology) -> None:
        """Listeners follow the brokers; connections to one that is gone end when it does."""
        self._brokers = dict(topology.brokers)
        if self._listeners is None:
            return
        upstream_id = self.settings.slots.upstream
        for virtual in [at for at in self.addresses if upstream_id(at) not in self._brokers]:
            self._listeners.close(virtual)
        self._listen_to_all()

    # ------------------------------------------------------------------------- for its connections

    def rewritten(self, response: Rewrite, asked: int | None, connection: ConnectionId) -> bytes:
        if response.api_key == ApiKey.API_VERSIONS:
            return self._offered.frame(response)
        shown = read(response)
        if shown.api_key == ApiKey.METADATA:
            self._name_topics(shown.message)
            for callback in self._on_metadata:
                callback(connection, shown.message)
        return write(shown, self._advertise(shown.brokers), self.rules, asked)

    def _name_topics(self, metadata: Message) -> None:
        """The bytes of these topics count under their names. A client asks for the metadata of a
        topic before it uses it.
        """
        for topic in metadata["Topics"]:
            if topic["ErrorCode"] == ErrorCode.NONE and topic["Name"] is not None:
                self.counters.apis.topics.name(topic["Name"], topic["TopicId"])

    def _advertise(self, brokers: tuple[Broker, ...]) -> Addresses:
        """A response may know a broker before the topology does: it gets its listener now."""
        for broker in brokers:
            if self._brokers.get(broker.id) != broker:
                self._brokers[broker.id] = broker
        if len(self._brokers) * self.settings.slots.count != len(self.addresses):
            self._listen_to_all()
        return self.shown

    async def connect(self, broker_id: int | None, protocol: asyncio.Protocol) -> None:
        """Raises Unreachable once upstream has been away for UPSTREAM_PATIENCE_S."""
        loop = asyncio.get_running_loop()
        patience_ends = loop.time() + UPSTREAM_PATIENCE_S
        while faults := await self._connect_once(broker_id, protocol):
            if loop.time() + UPSTREAM_AGAIN_S > patience_ends:
                raise Unreachable("; ".join(faults))
            await asyncio.sleep(UPSTREAM_AGAIN_S)

    async def _connect_once(self, broker_id: int | None, protocol: asyncio.Protocol) -> list[str]:
        """The error of each address; empty if one of them took the connection."""
        loop = asyncio.get_running_loop()
        faults = []
        for host, port in self._upstream_addresses(broker_id):
            secure = self.settings.upstream_ssl
            free = asyncio.Semaphore(CONNECTS_AT_ONCE)
            turns = self._connecting.setdefault(Address(host, port), free)
            try:
                async with asyncio.timeout(CONNECT_TIMEOUT_S), turns:
                    await loop.create_connection(lambda: protocol, host, port, ssl=secure)
            except (OSError, TimeoutError) as error:
                faults.append(f"{host}:{port}: {str(error) or type(error).__name__}")
            else:
                return []
        return faults or [f"broker {broker_id} is gone"]

    def opened(self, connection: ClientConnection) -> None:
        self.connections[connection.id] = connection
        connection.facts.since_ms = self._now_ms()
        self._empty.clear()
        if self._stopping:
            connection.drain()  # It was accepted before its listener closed.

    def disconnected(self, connection: ClientConnection) -> None:
        for callback in self._on_disconnect:
            callback(connection.id)

    def closed(self, connection: ClientConnection) -> None:
        del self.connections[connection.id]
        refused = self.admission.ended(len(self.connections))
        if refused:
            log.info("clients_admitted_again", refused=refused, clients=len(self.connections))
        if not self.connections:
            self._empty.set()

    # --------------------------------------------------------------------------------------- inside

    def _open_listeners(self, tasks: asyncio.TaskGroup) -> Listeners:
        settings = self.settings
        listeners = Listeners(
            host=settings.host,
            advertised_host=settings.advertised_host or settings.host,
            port_base=settings.port_base,
            port_step=settings.port_step,
            slots=settings.slots,
            accept=self._accept,
            tasks=tasks,
        )
        try:
            self.bootstrap = listeners.open_bootstrap(
                settings.bootstrap_port, shared=settings.bootstrap_shared
            )
            for broker_id in self._virtual_brokers():
                listeners.open_broker(broker_id)
        except CannotListen:
            listeners.close_all()
            raise
        log.info("listening", host=self.bootstrap.host, port=self.bootstrap.port)
        return listeners

    def _listen_to_all(self) -> None:
        assert self._listeners is not None
        if self._stopping:
            return
        for broker_id in self._virtual_brokers():
            if broker_id in self.addresses:
                continue
            try:
                self._listeners.open_broker(broker_id)
                self._brokers_without_listener.discard(broker_id)
            except CannotListen as error:
                # Clients do not hear of this broker until its port is free.
                if broker_id not in self._brokers_without_listener:
                    log.error("virtual_broker_not_listening", broker=broker_id, detail=str(error))
                self._brokers_without_listener.add(broker_id)

    def _virtual_brokers(self) -> list[int]:
        slots = self.settings.slots
        return [virtual for broker in self._brokers for virtual in slots.all_of(broker)]

    def _accept(self, broker_id: int | None) -> asyncio.Protocol:
        if not self.admission.admits(len(self.connections)):
            self.counters.count_refused(Refused.TOO_MANY_CLIENTS)
            if self.admission.refused == 1:  # One line for an episode.
                log.warning("clients_refused", clients=len(self.connections), detail=TOO_MANY)
            return RefusedSide()
        return ClientSide(ClientConnection(ConnectionId(next(self._ids)), broker_id, self))

    def _find(self, connection_id: int) -> ClientConnection | None:
        return self.connections.get(ConnectionId(connection_id))

    def _upstream_addresses(self, broker_id: int | None) -> list[Address]:
        if broker_id is not None:
            broker = self._brokers.get(self.settings.slots.upstream(broker_id))
            return [] if broker is None else [Address(broker.host, broker.port)]
        first = self.settings.bootstrap_servers
        self._next_bootstrap = (self._next_bootstrap + 1) % len(first) if first else 0
        known = [Address(broker.host, broker.port) for broker in self._brokers.values()]
        rotated = [*first[self._next_bootstrap :], *first[: self._next_bootstrap]]
        return list(dict.fromkeys([*rotated, *known]))

    async def _drain(self) -> None:
        for connection in list(self.connections.values()):
            connection.drain()
        if await self._emptied(self.settings.drain_s):
            return
        log.warning("stopped_with_unanswered_requests", connections=len(self.connections))
        for connection in list(self.connections.values()):
            connection.abort()
        await self._emptied(ABORT_S)

    async def _emptied(self, within_s: float) -> bool:
        try:
            async with asyncio.timeout(within_s):
                await self._empty.wait()
        except TimeoutError:
            return False
        return True


def _monotonic_ms() -> int:
    return time.monotonic_ns() // 1_000_000
