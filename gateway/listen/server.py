"""The client side of a node: its listeners, and the connections of their clients.

A connection to a virtual broker is one connection to that upstream broker. The bootstrap port leads
to any broker that answers: the bootstrap servers in turn, then the brokers known by now.
"""

from __future__ import annotations

import asyncio
import itertools
import sys
import time
from collections.abc import (
    AsyncIterator,
    Callable,
    Collection,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from contextlib import asynccontextmanager
from functools import partial

import structlog

from gateway.core.client_limits.rules import Rule
from gateway.core.cluster.topology import Broker, Topic, Topology
from gateway.core.forwarding.effects import Rewrite, Rules
from gateway.core.forwarding.metadata_answer import ListedTopic, tell_of_new_partitions
from gateway.core.forwarding.rewrite import Address, Addresses, OfferedApis, read, write
from gateway.core.forwarding.served_apis import rules
from gateway.core.repartition.hiding import Shown, hide
from gateway.core.tls.peer import TlsFacts
from gateway.core.wire.apis import ApiKey
from gateway.listen.admission import Admission, RefusedSide
from gateway.listen.answering import ConnectionId, Handler, Request, Withheld
from gateway.listen.authentication import Authentication, authentications_of
from gateway.listen.bounds import Bounds
from gateway.listen.client_limits import ClientLimits
from gateway.listen.client_login import ClientLogin
from gateway.listen.client_tasks import ClientTasks
from gateway.listen.connection import ClientConnection
from gateway.listen.counters import Counters, Refused
from gateway.listen.handshakes import Handshake, Handshakes
from gateway.listen.leaving import Leaving
from gateway.listen.limits import (
    ABORT_S,
    CONNECT_TIMEOUT_S,
    CONNECTS_AT_ONCE,
    JUDGED_AT_ONCE,
    LOGIN_FILES_LOOK_S,
    UPSTREAM_AGAIN_S,
    UPSTREAM_PATIENCE_S,
)
from gateway.listen.listening import Listening
from gateway.listen.looks import Looks
from gateway.listen.settings import ListenerSettings, ServerSettings
from gateway.listen.sockets import ClientSide, bound_receiving
from gateway.listen.tls_context import AskedContext, server_context
from gateway.upstream.errors import Unreachable
from keyway.repeated_lines import RepeatedLines
from keyway.tls.certificates import AllCertificates, Certificates, UnusableFiles

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

OnMetadata = Callable[[ConnectionId, Sequence[ListedTopic]], None]

_SHOWS_PARTITIONS = (ApiKey.METADATA, ApiKey.DESCRIBE_TOPIC_PARTITIONS)
TOO_MANY = "no more clients are taken: raise the limit of open files (ulimit -n), two for a client"


# Long: the doors of the room: what others hear of connections, and what clients are shown.
class Server:
    """`handlers` answer their API keys here; all other requests go upstream."""

    def __init__(
        self,
        settings: ServerSettings,
        topology: Topology,
        handlers: Mapping[int, Handler],
        admission: Admission | None = None,
        now_ms: Callable[[], int] | None = None,
        limits: ClientLimits | None = None,
    ) -> None:
        self.settings = settings
        self.limits = limits or ClientLimits.of(())
        self.admission = admission or Admission(sys.maxsize)
        self.counters = Counters()
        self.connections: dict[ConnectionId, ClientConnection] = {}
        self._now_ms = now_ms or _monotonic_ms
        self.bounds = Bounds(self._find, self._now_ms)
        self._leaving = Leaving()
        self._brokers: dict[int, Broker] = dict(topology.brokers)
        self._topics: Mapping[str, Topic] = topology.topics
        self._on_disconnect: list[Callable[[ConnectionId], None]] = []
        self._on_drain: list[Callable[[], None]] = []
        self._hides: Shown | None = None
        self._withheld: Callable[[], Collection[str]] = tuple
        self.looks = Looks()
        self._forgotten: Callable[[ConnectionId, Iterable[int]], Collection[int]] | None = None
        self._on_metadata: list[OnMetadata] = []
        self._ids: Iterator[int] = itertools.count(1)
        self._connecting: dict[Address, asyncio.Semaphore] = {}  # by upstream address
        # The fault of an address that took no connection, and when it is tried again.
        self._away: dict[Address, tuple[str, float]] = {}
        self._next_bootstrap = 0  # index of the bootstrap server that is tried first
        # A broker may be elsewhere now, or a topic have more partitions.
        self.topology_doubted: Callable[[], None] = _nothing
        self._stopping = False
        self._empty = asyncio.Event()  # no connection is left
        self._empty.set()
        self._tasks: ClientTasks | None = None
        self.listening = Listening(settings)
        self.lines = RepeatedLines(self._now_ms)
        self.handshakes = Handshakes(self.lines, self.bounds.unsent)
        self.authentications = authentications_of(settings.listeners)
        self.answer(handlers)
        self.certificates = AllCertificates()
        self._certificates: dict[str, Certificates[AskedContext]] = {}  # by listener
        for listener in settings.listeners:
            if listener.tls is not None:
                certificates = self._certificates[listener.name] = _certificates(listener)
                self.certificates.add(certificates)

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
        self._tasks = ClientTasks(tasks, self.counters, self.lines)
        self.listening.open(self._accept, tasks, self._virtual_brokers())

    async def drain(self) -> None:
        """Closes the listeners. Requests under way get `drain_s` to be answered."""
        for callback in self._on_drain:
            callback()
        self._stopping = True  # No answer and no news of a broker opens a listener again.
        self.listening.close_all()
        self.handshakes.give_up_all()
        await self._drain()

    def answer(self, handlers: Mapping[int, Handler]) -> None:
        """From the next connection on, `handlers` answer their API keys here."""
        self.handlers = handlers
        self._rules = {
            listener.name: self._rules_for(listener) for listener in self.settings.listeners
        }
        self._offered = {name: OfferedApis(served) for name, served in self._rules.items()}

    def rules_of(self, listener: str) -> Rules:
        return self._rules[listener]

    def _rules_for(self, listener: ListenerSettings) -> Rules:
        own = listener.authentication
        return rules(
            self.handlers,
            frame_bytes_max=self.settings.frame_bytes_max,
            sasl=own is None and self.settings.upstream_sasl,
            terminated=own is not None,
            login=own is not None and len(own.mechanisms) > 0,
            slots=self.settings.slots,
            screen=self.looks.screen,
        )

    def limit(self, rules: Sequence[Rule]) -> None:
        """From now on these limits hold, also for connections that are open."""
        self.limits.replace(rules, list(self.connections.values()))

    def on_disconnect(self, callback: Callable[[ConnectionId], None]) -> None:
        """`callback` is called once for each connection, when its client is gone."""
        self._on_disconnect.append(callback)

    def on_drain(self, callback: Callable[[], None]) -> None:
        """`callback` is called once, before the first connection is closed by a planned stop."""
        self._on_drain.append(callback)

    def hide(self, shown: Shown | None) -> None:
        """From now on clients see no more partitions of these topics."""
        self._hides = shown

    def withhold(self, topics: Callable[[], Collection[str]]) -> None:
        """A client that asks for the metadata of one of `topics` is disconnected, to ask again."""
        self._withheld = topics

    def forget_coordinators(
        self, forgotten: Callable[[ConnectionId, Iterable[int]], Collection[int]]
    ) -> None:
        """Of the virtual brokers that an answer of FindCoordinator names, those that `forgotten`
        returns are told to be none: COORDINATOR_NOT_AVAILABLE.
        """
        self._forgotten = forgotten

    def on_metadata(self, callback: OnMetadata) -> None:
        """`callback` is called with the topics of each answer of Metadata that goes to a client."""
        self._on_metadata.append(callback)

    @property
    def tasks(self) -> ClientTasks:
        assert self._tasks is not None, "the server does not run"
        return self._tasks

    @property
    def bootstrap(self) -> Address | None:
        """The first listener's address of first contact. None: it does not run."""
        return next((listener.bootstrap for listener in self.listening.all.values()), None)

    @property
    def addresses(self) -> Addresses:
        """Where clients of the first listener reach the virtual brokers."""
        return self.listening.addresses()

    def on_topology(self, topology: Topology) -> None:
        """Listeners follow the brokers; connections to one that is gone end when it does."""
        self._brokers, self._topics = dict(topology.brokers), topology.topics
        if not self._stopping:
            self.listening.follow(self._virtual_brokers())

    # ------------------------------------------------------------------------- for its connections

    def rewritten(self, response: Rewrite, connection: ClientConnection) -> bytes:
        if response.api_key == ApiKey.API_VERSIONS:
            return self._offered[connection.listener].frame(response)
        shown = read(response)
        if self._hides is not None and shown.api_key in _SHOWS_PARTITIONS:
            listing = shown.metadata is not None
            if shown.metadata is not None:
                shown.metadata.open(self._hides)
            hide(shown.message, self._hides, leave_out=listing)
        if shown.metadata is not None:
            topics = shown.metadata.topics
            withheld = self._withheld()
            if withheld and any(topic.name in withheld for topic in topics):
                raise Withheld
            self._name_topics(topics)
            # Whoever writes to a new partition has asked for Metadata before.
            if tell_of_new_partitions(topics, self._topics):
                self.topology_doubted()
            for callback in self._on_metadata:
                callback(connection.id, topics)
        self._know(shown.brokers)
        addresses = self.listening.shown(connection.listener)
        if shown.api_key == ApiKey.FIND_COORDINATOR and self._forgotten is not None:
            gone = self._forgotten(connection.id, [broker.id for broker in shown.brokers])
            if gone:
                addresses = {broker: at for broker, at in addresses.items() if broker not in gone}
        secure = connection.listener in self._certificates
        served = self._rules[connection.listener]
        return write(shown, addresses, served, connection.broker_id, secure=secure)

    def _name_topics(self, topics: Sequence[ListedTopic]) -> None:
        """The bytes of these topics count under their names. A client asks for the metadata of a
        topic before it uses it.
        """
        for topic in topics:
            if topic.error_code == 0 and topic.name is not None:
                self.counters.apis.topics.name(topic.name, topic.topic_id)

    def _know(self, brokers: tuple[Broker, ...]) -> None:
        """A response may know a broker before the topology does: it gets its listener now. Where a
        known one is, the topology tells: the response may be of a broker that lags behind.
        """
        for broker in brokers:
            known = self._brokers.setdefault(broker.id, broker)
            if known != broker:
                self.topology_doubted()
        count = len(self._brokers) * self.settings.slots.count
        if not self._stopping and not self.listening.complete(count):
            self.listening.add(self._virtual_brokers())

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
        for address in self._upstream_addresses(broker_id):
            turns = self._connecting.setdefault(address, asyncio.Semaphore(CONNECTS_AT_ONCE))
            async with turns:
                fault, until_s = self._away.get(address, ("", 0.0))
                if loop.time() >= until_s:
                    fault = await self._connect_to(address, protocol)
                    if not fault:
                        self._away.pop(address, None)
                        return []
                    # One knocks for all who wait there: thousands would take half a core.
                    self._away[address] = fault, loop.time() + UPSTREAM_AGAIN_S
            faults.append(fault)
        return faults or [f"broker {broker_id} is gone"]

    async def _connect_to(self, address: Address, protocol: asyncio.Protocol) -> str:
        """The error; empty if the address took the connection."""
        host, port = address
        secure = self.settings.upstream_ssl() if self.settings.upstream_ssl else None
        connect = asyncio.get_running_loop().create_connection
        try:
            async with asyncio.timeout(CONNECT_TIMEOUT_S):
                transport, _ = await connect(lambda: protocol, host, port, ssl=secure)
        except (OSError, TimeoutError) as error:
            return f"{host}:{port}: {str(error) or type(error).__name__}"
        if self.settings.upstream_receive_bytes:
            bound_receiving(transport, self.settings.upstream_receive_bytes)
        return ""

    def login_of(self, connection: ClientConnection) -> ClientLogin | None:
        authentication = self.authentications.get(connection.listener)
        if authentication is None:
            return None
        return ClientLogin(
            authentication,
            connection,
            self._offered[connection.listener],
            partial(self.connect, connection.broker_id),
            self.tasks,
            due=self.lines.due,
        )

    async def look_for_revoked_forever(self) -> None:
        """Sessions end whose credentials have gone from the files that they were judged by."""
        while True:
            await asyncio.sleep(LOGIN_FILES_LOOK_S)
            for authentication in self.authentications.values():
                if await authentication.look():
                    await self._judge_again(authentication)

    async def _judge_again(self, authentication: Authentication) -> None:
        for at, connection in enumerate(list(self.connections.values())):
            if at % JUDGED_AT_ONCE == 0:
                await asyncio.sleep(0)
            login = connection.login
            if login is not None and login.authentication is authentication:
                login.judge_again()

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

    def _virtual_brokers(self) -> list[int]:
        slots = self.settings.slots
        return [virtual for broker in self._brokers for virtual in slots.all_of(broker)]

    def _accept(self, listener: ListenerSettings, broker_id: int | None) -> asyncio.BaseProtocol:
        if not self.admission.admits(len(self.connections) + self.handshakes.open):
            self.counters.count_refused(Refused.TOO_MANY_CLIENTS)
            if self.admission.refused == 1:  # One line for an episode.
                log.warning("clients_refused", clients=len(self.connections), detail=TOO_MANY)
            return RefusedSide()
        certificates = self._certificates.get(listener.name)
        if certificates is None:
            return self._admit(listener.name, broker_id, None)
        return Handshake(
            certificates,
            self.handshakes,
            self.tasks,
            partial(self._admit, listener.name),
            broker_id=broker_id,
            names=listener.server_names,
            knows=lambda virtual: virtual in self.listening.addresses(listener.name),
        )

    def _admit(self, listener: str, broker_id: int | None, tls: TlsFacts | None) -> ClientSide:
        connection = ClientConnection(
            ConnectionId(next(self._ids)), broker_id, self, listener=listener, tls=tls
        )
        return ClientSide(connection, self.bounds.unsent, self._leaving)

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


def _nothing() -> None:
    """Nobody follows the topology."""


def _certificates(listener: ListenerSettings) -> Certificates[AskedContext]:
    assert listener.tls is not None
    try:
        return Certificates(listener.name, listener.tls, server_context)
    except UnusableFiles as unusable:
        raise UnusableFiles(f"{listener.option}.tls: {unusable}") from unusable
