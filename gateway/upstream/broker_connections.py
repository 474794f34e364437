"""The gateway's own connections to the brokers of upstream, and which brokers do not answer."""

from __future__ import annotations

from collections.abc import Callable

import structlog

from gateway.core.cluster.topology import Topology
from gateway.core.wire.schema import Message
from gateway.upstream.connection import BrokerConnection
from gateway.upstream.errors import TimedOut, Unreachable, UpstreamError
from gateway.upstream.frames import LongAnswers
from gateway.upstream.settings import Address, UpstreamSettings

log = structlog.get_logger("keyway.upstream")

CONTROL_LANE = 0  # short requests; other lanes are other connections to the same broker


class BrokerConnections:
    def __init__(
        self,
        settings: UpstreamSettings,
        topology: Callable[[], Topology],
        request_refresh: Callable[[], None],
    ) -> None:
        self._settings = settings
        self._topology = topology
        self._request_refresh = request_refresh
        self._bootstrap = settings.bootstrap()
        self._connections: dict[tuple[Address, int], BrokerConnection] = {}
        self._long_answers = LongAnswers()
        # Brokers that do not answer, and why: logged once per change.
        self._silent: dict[str, str] = {}

    async def call(
        self,
        api_key: int,
        body: Message,
        *,
        broker_id: int | None = None,
        version: int | None = None,
        lane: int = CONTROL_LANE,
        timeout_ms: int | None = None,
    ) -> Message:
        """Asks a broker (None: any) with the highest version both know, at most `version`. Raises
        UpstreamError.

        Each lane is a connection of its own: a long poll must not share one with anything else.
        """
        timeout_ms = timeout_ms or self._settings.request_timeout_ms
        failure: UpstreamError = Unreachable("no upstream broker is known")
        for address in self._addresses(broker_id):
            connection = self._connection(address, lane)
            try:
                response = await connection.call(
                    api_key, body, version=version, timeout_ms=timeout_ms
                )
            except (Unreachable, TimedOut) as error:
                self._note_silent(address, error)
                failure = error
            else:
                self._note_answer(address)
                return response
        raise failure

    def _addresses(self, broker_id: int | None) -> list[Address]:
        brokers = self._topology().brokers
        if broker_id is not None:
            broker = brokers.get(broker_id)
            if broker is None:
                raise Unreachable(f"broker {broker_id} is not in the upstream's metadata")
            return [Address(broker.host, broker.port)]
        known = [Address(broker.host, broker.port) for broker in brokers.values()]
        known += [address for address in self._bootstrap if address not in known]
        # Brokers that answer come first, then brokers not tried yet. A broker known to be silent
        # is the last resort.
        return sorted(known, key=self._order_of_preference)

    def _order_of_preference(self, address: Address) -> int:
        if str(address) in self._silent:
            return 2
        connection = self._connections.get((address, CONTROL_LANE))
        return 0 if connection is not None and connection.connected else 1

    def _connection(self, address: Address, lane: int) -> BrokerConnection:
        connection = self._connections.get((address, lane))
        if connection is None:
            connection = BrokerConnection(address, self._settings, self._long_answers)
            self._connections[address, lane] = connection
        return connection

    def _note_silent(self, address: Address, error: UpstreamError) -> None:
        if str(address) not in self._silent:
            log.warning("upstream_broker_silent", broker=str(address), reason=str(error))
        self._silent[str(address)] = str(error)
        self._request_refresh()

    def silent_brokers(self) -> dict[int, str]:
        """The brokers that did not answer when they were last asked, and why."""
        found: dict[int, str] = {}
        for broker in sorted(self._topology().brokers.values(), key=lambda broker: broker.id):
            reason = self._silent.get(str(Address(broker.host, broker.port)))
            if reason is not None:
                found[broker.id] = reason
        return found

    def _note_answer(self, address: Address) -> None:
        if self._silent and self._silent.pop(str(address), None) is not None:
            log.info("upstream_broker_answers_again", broker=str(address))

    def close_strays(self) -> None:
        """A broker moved: callers that wait for an answer from its old address ask again."""
        addresses = {
            Address(broker.host, broker.port) for broker in self._topology().brokers.values()
        }
        addresses.update(self._bootstrap)
        for place in [place for place in self._connections if place[0] not in addresses]:
            self._connections.pop(place).close()

    def close(self) -> None:
        for connection in self._connections.values():
            connection.close()
