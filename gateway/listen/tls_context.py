"""OpenSSL's context with two things more: which attempt of a client a handshake is, and the alert
of one that fails.
"""

from __future__ import annotations

import ssl
from typing import Any, Protocol


class Attempt(Protocol):
    """A handshake, as its TLS sees it."""

    def asks_for(self, name: str | None) -> bool:
        """The server name (SNI) of the client, None without one. False: it is refused."""
        ...

    def last_words(self, alert: bytes) -> None:
        """The handshake has failed; bytes that tell the client why."""
        ...


class AskedObject(ssl.SSLObject):
    """The TLS of one connection."""

    attempt: Attempt | None = None
    outgoing: ssl.MemoryBIO | None = None

    def do_handshake(self) -> None:
        try:
            super().do_handshake()
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
            raise
        except ssl.SSLError:
            if self.attempt is not None and self.outgoing is not None and self.outgoing.pending:
                self.attempt.last_words(self.outgoing.read())
            raise
        self.attempt = None

    def getpeercert(self, binary_form: bool = False) -> Any:  # noqa: ANN401  as ssl has it
        try:
            return super().getpeercert(binary_form)
        except ValueError as error:  # Python decodes them as UTF-8; the authority did not look.
            raise ssl.SSLError(0, "names of the client's certificate are no text") from error


class AskedContext(ssl.SSLContext):
    """`attempt` is set right before the connection's TLS is made."""

    attempt: Attempt | None = None

    def wrap_bio(
        self,
        incoming: ssl.MemoryBIO,
        outgoing: ssl.MemoryBIO,
        server_side: bool = False,
        server_hostname: str | bytes | None = None,
        session: ssl.SSLSession | None = None,
    ) -> ssl.SSLObject:
        made = super().wrap_bio(incoming, outgoing, server_side, server_hostname, session)
        assert isinstance(made, AskedObject)
        made.attempt, self.attempt = self.attempt, None
        made.outgoing = outgoing
        return made


def server_context() -> AskedContext:
    context = AskedContext(ssl.PROTOCOL_TLS_SERVER)
    context.sslobject_class = AskedObject
    context.sni_callback = _name_asked_for
    return context


def _name_asked_for(asked: ssl.SSLObject, name: str | None, _: ssl.SSLContext) -> int | None:
    attempt = asked.attempt if isinstance(asked, AskedObject) else None
    if attempt is None or attempt.asks_for(name):
        return None
    return int(ssl.AlertDescription.ALERT_DESCRIPTION_UNRECOGNIZED_NAME)
