"""Facts of one client connection, for operators; limits and repartitions go by who it is."""

from __future__ import annotations

from dataclasses import dataclass

from gateway.core.client_limits.rules import ANONYMOUS, Who
from gateway.core.tls.peer import TlsFacts
from gateway.core.wire.frames import first_client_id, tells_client_id


@dataclass(slots=True)
class ConnectionFacts:
    host: str = ""  # the client's
    port: int = 0
    since_ms: int = 0  # set by the server
    client_id: str | None = None  # of its first request
    principal: str | None = None  # that it has authenticated as; None: not, or not seen
    bytes_in: int = 0  # from the client
    bytes_out: int = 0
    tls: TlsFacts | None = None  # None: it came to a plain port
    answering: int | None = None  # the API that a handler is answering

    _first: bytes | None = b""  # bytes, until they tell the client id

    def received(self, data: bytes) -> bool:
        """True for the bytes that tell the client id. A client may write the size of its request,
        or any part of it, apart.
        """
        self.bytes_in += len(data)
        if self._first is None:
            return False
        self._first += data
        if not tells_client_id(self._first):
            return False
        self.client_id = first_client_id(self._first)
        self._first = None
        return True

    def who(self, *, nameless: bool) -> Who:
        """The client, as the rules of limits know it. `nameless`: its login is not over yet."""
        named = self.principal or (None if nameless else ANONYMOUS)
        client_id = (self.client_id or "") if self.bytes_in else None
        return Who(address=self.host, client_id=client_id, principal=named)
