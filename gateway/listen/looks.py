"""Who looks at requests of clients before they go upstream, and answers those that stop there."""

from __future__ import annotations

from typing import Protocol

from gateway.core.forwarding.effects import Client, MayRead, Screen
from gateway.core.wire.long_bytes import LongBytes
from gateway.listen.answering import Handler, Request


class Looker(Protocol):
    @property
    def apis(self) -> frozenset[int]:
        """Keys of the requests that it looks at."""

    def stops(
        self, client: Client, may_read: MayRead, api_key: int, version: int, payload: bytes, /
    ) -> bool: ...


class Looks:
    def __init__(self) -> None:
        self.screen = Screen()
        self.screen.stops = self._stops
        self._lookers: list[tuple[Looker, Handler]] = []

    def add(self, looker: Looker, answer: Handler) -> None:
        """`answer` gets the requests that `looker` stops, and passes on what it does not stop any
        more when its turn has come. Who was added last looks first.
        """
        self._lookers.insert(0, (looker, answer))
        self.changed()

    def changed(self) -> None:
        """Somebody looks at other APIs than before."""
        self.screen.apis = frozenset().union(*(looker.apis for looker, _ in self._lookers))

    def _stops(
        self, client: Client, may_read: MayRead, api_key: int, version: int, payload: bytes
    ) -> bool:
        return any(
            api_key in looker.apis and looker.stops(client, may_read, api_key, version, payload)
            for looker, _ in self._lookers
        )

    async def answer(self, request: Request) -> bytes | LongBytes:
        header, connection = request.header, request.connection
        key, version = header.api_key, header.api_version
        client = (connection.facts.host, connection.facts.client_id)
        chosen = self._lookers[-1][1]
        for looker, answer in self._lookers:
            if key not in looker.apis:
                continue
            if looker.stops(client, connection.may_read, key, version, request.frame):
                return await answer(request)
            chosen = answer
        return await chosen(request)
