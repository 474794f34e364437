"""All listeners of a node, and the addresses that the clients of each are told."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping

import structlog

from gateway.core.forwarding.rewrite import Addresses
from gateway.listen.listeners import CannotListen, Listeners
from gateway.listen.settings import ListenerSettings, ServerSettings

log = structlog.get_logger("keyway.server")

# Makes the protocol of an accepted connection: its listener, the virtual broker of its port (None:
# first contact).
AcceptAt = Callable[[ListenerSettings, int | None], asyncio.BaseProtocol]


class Listening:
    """Each listener has an address for every virtual broker."""

    def __init__(self, settings: ServerSettings) -> None:
        self._settings = settings
        self._open: dict[str, Listeners] = {}
        self._elsewhere: Mapping[str, Addresses] = {}
        self._without_port: set[tuple[str, int]] = set()  # virtual brokers whose port is taken

    @property
    def all(self) -> Mapping[str, Listeners]:
        """All listeners by name. The first is the one that a node names where it names only one."""
        return self._open

    def addresses(self, listener: str | None = None) -> Addresses:
        """Where clients reach this node's virtual brokers. None: through the first listener."""
        if not self._open:
            return {}
        return self._open[listener or next(iter(self._open))].addresses

    def shown(self, listener: str | None = None) -> Addresses:
        """The addresses that clients are told: some virtual brokers are those of other nodes."""
        name = listener or next(iter(self._open), "")
        elsewhere = self._elsewhere.get(name)
        return {**self.addresses(name), **elsewhere} if elsewhere else self.addresses(name)

    def show_elsewhere(self, addresses: Mapping[str, Addresses]) -> None:
        """From now on clients are told these addresses, by listener, in place of this node's
        own.
        """
        self._elsewhere = addresses

    def open(self, accept: AcceptAt, tasks: asyncio.TaskGroup, brokers: Iterable[int]) -> None:
        """Raises CannotListen; nothing listens then."""
        shared, virtual = self._settings.bootstrap_shared, list(brokers)
        try:
            for each in self._settings.listeners:
                listeners = self._open[each.name] = self._made(each, accept, tasks)
                address = listeners.open_bootstrap(shared=shared)
                for broker_id in virtual:
                    listeners.open_broker(broker_id)
                log.info(
                    "listening",
                    listener=each.name,
                    host=address.host,
                    port=address.port,
                    tls=each.tls is not None,
                )
        except CannotListen:
            self.close_all()
            raise

    def _made(
        self, settings: ListenerSettings, accept: AcceptAt, tasks: asyncio.TaskGroup
    ) -> Listeners:
        return Listeners(
            settings,
            port_step=self._settings.port_step,
            slots=self._settings.slots,
            accept=lambda broker_id: accept(settings, broker_id),
            tasks=tasks,
        )

    def complete(self, count: int) -> bool:
        """Every listener has so many virtual brokers."""
        return all(len(listener.addresses) == count for listener in self._open.values())

    def follow(self, brokers: Iterable[int]) -> None:
        """Closes what is gone, opens what is new."""
        wanted = list(brokers)
        for listeners in self._open.values():
            for gone in listeners.addresses.keys() - set(wanted):
                listeners.close(gone)
        self.add(wanted)

    def add(self, brokers: Iterable[int]) -> None:
        wanted = list(brokers)
        for name, listeners in self._open.items():
            for broker_id in wanted:
                if broker_id not in listeners.addresses:
                    self._add(name, listeners, broker_id)

    def _add(self, name: str, listeners: Listeners, broker_id: int) -> None:
        at = name, broker_id
        try:
            listeners.open_broker(broker_id)
            self._without_port.discard(at)
        except CannotListen as error:
            # Clients do not hear of this broker until its port is free.
            if at not in self._without_port:
                log.error(
                    "virtual_broker_not_listening",
                    broker=broker_id,
                    listener=name,
                    detail=str(error),
                )
            self._without_port.add(at)

    def close_all(self) -> None:
        for listeners in self._open.values():
            listeners.close_all()
