"""The ports of one listener: one for first contact, and one per virtual broker. With server names
(SNI) the first port is that of all: no other is opened.

A port takes connections from the moment `open` returns: binding and listening do not wait, only
accepting does. So a response may show a broker that was unknown a moment ago.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable

import structlog

from gateway.core.cluster.slots import SLOT_IDS, Slots
from gateway.core.forwarding.rewrite import Address
from gateway.listen.limits import LISTEN_BACKLOG_CONNECTIONS, NOT_SENT_BYTES_MAX
from gateway.listen.settings import ListenerSettings

log = structlog.get_logger("keyway.listeners")

_PORT_MAX = 65_535

# Makes the protocol of one accepted connection; the argument is the virtual broker, None = first
# contact.
Accept = Callable[[int | None], asyncio.BaseProtocol]


class CannotListen(Exception):
    """One line with the address that could not be had, the reason, and the options that name it."""


def port_of(port_base: int, port_step: int, broker_id: int, slot: int) -> int:
    """The port of a slot of an upstream broker; 0, any free one, with a `port_base` of 0."""
    return port_base + slot * port_step + broker_id if port_base else 0


def port_option(option: str, broker_id: int, slot: int) -> str:
    """How that port is made, for people. `option`: the listener's place in the configuration."""
    above = f" + {slot} * listen.port_step" if slot else ""
    return f"{option}.port_base + {broker_id}{above}"


class Listeners:
    """They bind to the listener's host; clients are told its advertised host, or its server names.

    With a `port_base` of 0 every virtual broker gets any free port.
    Else those of one slot follow each other, and `port_step` behind them those of the next.
    """

    def __init__(
        self,
        settings: ListenerSettings,
        *,
        port_step: int,
        slots: Slots,
        accept: Accept,
        tasks: asyncio.TaskGroup,
    ) -> None:
        self.settings = settings
        self.bootstrap: Address | None = None  # as clients are told, once it is open
        self.addresses: dict[int, Address] = {}  # of virtual brokers, as clients are told
        self._port_step = port_step
        self._slots = slots
        self._accept = accept
        self._tasks = tasks
        self._sockets: dict[int | None, socket.socket] = {}
        self._servers: dict[int | None, asyncio.Server] = {}

    def open_bootstrap(self, *, shared: bool) -> Address:
        """Raises CannotListen."""
        settings = self.settings
        option = f"{settings.option}.bootstrap_port"
        taken = self._open(None, settings.bootstrap_port, option, shared=shared)
        if settings.server_names is None:
            self.bootstrap = Address(settings.advertised_host or settings.host, taken)
        else:
            self.bootstrap = Address(
                settings.server_names.bootstrap, settings.advertised_port or taken
            )
        return self.bootstrap

    def open_broker(self, broker_id: int) -> Address:
        """Raises CannotListen."""
        settings = self.settings
        known = self._slots.upstream(broker_id)
        slot = (broker_id - known) // SLOT_IDS
        if slot >= self._slots.count:
            raise CannotListen(
                f"broker {broker_id}: with listen.slots_per_broker, ids below {SLOT_IDS:,} are"
                " needed"
            )
        if settings.server_names is not None:
            assert self.bootstrap is not None
            address = Address(settings.server_names.of(broker_id), self.bootstrap.port)
        else:
            port = port_of(settings.port_base, self._port_step, known, slot)
            taken = self._open(broker_id, port, port_option(settings.option, known, slot))
            address = Address(settings.advertised_host or settings.host, taken)
        self.addresses[broker_id] = address
        log.info(
            "virtual_broker_listens",
            broker=broker_id,
            listener=settings.name,
            host=address.host,
            port=address.port,
        )
        return address

    def close(self, broker_id: int | None) -> None:
        """Takes no new connections; open connections stay."""
        if broker_id is not None:
            self.addresses.pop(broker_id, None)
        listening = self._sockets.pop(broker_id, None)
        if listening is None:
            return  # It has a name only.
        server = self._servers.pop(broker_id, None)
        if server is not None:
            server.close()
        listening.close()
        log.info("listener_closed", broker=broker_id, listener=self.settings.name)

    def close_all(self) -> None:
        """The addresses stay: answers that are still under way name the brokers."""
        addresses = dict(self.addresses)
        for broker_id in list(self._sockets):
            self.close(broker_id)
        self.addresses.update(addresses)

    def _open(
        self, broker_id: int | None, port: int, port_option: str, *, shared: bool = False
    ) -> int:
        assert broker_id not in self._sockets, broker_id
        options = f"{self.settings.option}.host, {port_option}"
        listening = listening_socket(self.settings.host, port, options, shared=shared)
        self._sockets[broker_id] = listening
        self._tasks.create_task(self._accept_from(broker_id, listening))
        taken: int = listening.getsockname()[1]
        return taken

    async def _accept_from(self, broker_id: int | None, listening: socket.socket) -> None:
        if self._sockets.get(broker_id) is not listening:
            return  # Closed before it began.
        loop = asyncio.get_running_loop()
        server = await loop.create_server(
            lambda: self._accept(broker_id), sock=listening, backlog=LISTEN_BACKLOG_CONNECTIONS
        )
        if self._sockets.get(broker_id) is listening:
            self._servers[broker_id] = server
        else:
            server.close()


def listening_socket(host: str, port: int, options: str, *, shared: bool = False) -> socket.socket:
    """`options` are those of keyway.yaml that name the address, for the message. `shared`: with
    sockets of other processes. A host name is resolved here, which may take its time. Raises
    CannotListen.
    """
    try:
        if port > _PORT_MAX:
            raise OSError(f"there is no port beyond {_PORT_MAX}")
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        listening = socket.socket(family, kind, protocol)
        try:
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if hasattr(socket, "TCP_NOTSENT_LOWAT"):  # accepted sockets get it from this one
                lowat = socket.TCP_NOTSENT_LOWAT
                listening.setsockopt(socket.IPPROTO_TCP, lowat, NOT_SENT_BYTES_MAX)
            if shared:
                listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
            listening.setblocking(False)
            listening.bind(address)
            listening.listen(LISTEN_BACKLOG_CONNECTIONS)
        except OSError:
            listening.close()
            raise
    except OSError as error:
        reason = error.strerror or str(error)
        raise CannotListen(f"cannot listen on {host}:{port} ({options}): {reason}") from error
    return listening
