"""TLS handshakes of clients: each has its time, and all together have a bound.

A connection counts as a client once its handshake is done. When there are too many handshakes, the
next ones wait for a place, and a handshake that stands still loses its own. One that goes on keeps
it: after a restart of the node all its clients come at once, and their handshakes take seconds
together, though a client's own takes milliseconds. When the others have waited for long, somebody
floods the port: whoever comes then begins at once, in the place of the one that rests longest.

Time is counted in looks of the event loop. By the clock alone all would stand still while the loop
is busy with the others.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from functools import partial
from typing import cast

import structlog

from gateway.core.tls.peer import TlsFacts, peer_certificate
from gateway.core.tls.server_names import ServerNames, UnknownName
from gateway.listen.client_tasks import ClientTasks
from gateway.listen.limits import (
    FIRST_WORDS_BYTES_MAX,
    HANDSHAKE_LOOK_S,
    HANDSHAKE_LOOKS,
    HANDSHAKE_S_MAX,
    HANDSHAKE_WAIT_LOOKS,
    HANDSHAKES_MAX,
    HANDSHAKES_WAITING_MAX,
)
from gateway.listen.sockets import ClientSide
from gateway.listen.tls_context import AskedContext, AskedObject
from gateway.listen.tls_flow import Between, TlsTransport
from gateway.listen.unsent import Unsent
from keyway.repeated_lines import RepeatedLines
from keyway.tls.certificates import Certificates

log = structlog.get_logger("keyway.tls")

_TLS_HANDSHAKE = 0x16  # the first byte of a TLS client


class HandshakeFault(Enum):
    """Why a handshake failed, as logs and metrics name it."""

    PLAIN = "plain bytes on a TLS port"
    TIMED_OUT = "not done in time"
    TOO_MANY = "too many at once, this one stood still"
    CUT_OFF = "the client went away"
    UNKNOWN_NAME = "unknown server name"
    NO_CERTIFICATE = "the client showed no certificate"
    NOT_TRUSTED = "the client's certificate is not trusted"
    DISTRUSTED = "the client does not trust the certificate of this port"
    NO_COMMON_VERSION = "no TLS version or cipher in common"
    OTHER = "failed"


_BY_REASON = {  # of ssl.SSLError
    "PEER_DID_NOT_RETURN_A_CERTIFICATE": HandshakeFault.NO_CERTIFICATE,
    "CERTIFICATE_VERIFY_FAILED": HandshakeFault.NOT_TRUSTED,
    "TLSV1_ALERT_UNKNOWN_CA": HandshakeFault.DISTRUSTED,
    "SSLV3_ALERT_CERTIFICATE_UNKNOWN": HandshakeFault.DISTRUSTED,
    "SSLV3_ALERT_BAD_CERTIFICATE": HandshakeFault.DISTRUSTED,
    "SSLV3_ALERT_CERTIFICATE_EXPIRED": HandshakeFault.DISTRUSTED,
    "UNSUPPORTED_PROTOCOL": HandshakeFault.NO_COMMON_VERSION,
    "NO_SHARED_CIPHER": HandshakeFault.NO_COMMON_VERSION,
    "TLSV1_ALERT_PROTOCOL_VERSION": HandshakeFault.NO_COMMON_VERSION,
}

# Makes the protocol of a client: the virtual broker (None: first contact), and the facts of its TLS
Admit = Callable[[int | None, TlsFacts], ClientSide]


@dataclass(slots=True)
class HandshakeCounts:
    done: int = 0
    failed: dict[HandshakeFault, int] = field(default_factory=dict)


class Handshakes:
    """The handshakes of all listeners with TLS."""

    def __init__(self, lines: RepeatedLines, unsent: Unsent) -> None:
        self.counts: dict[str, HandshakeCounts] = {}  # by listener
        self.unsent = unsent
        self._lines = lines
        # When the last bytes of each came, in looks. The one that has waited longest is the first.
        self._under_way: dict[Handshake, int] = {}
        self._waiting: dict[Handshake, int] = {}  # since which look; the oldest first
        self._looks = 0
        self._timer: asyncio.TimerHandle | None = None

    @property
    def open(self) -> int:
        return len(self._under_way) + len(self._waiting)

    def come(self, handshake: Handshake) -> None:
        if self._flooded:
            self._begin(handshake)
            next(iter(self._under_way)).give_up(HandshakeFault.TOO_MANY)
        else:
            self._waiting[handshake] = self._looks
            self._go_on()
        if self._timer is None:
            self._look_later()

    def moved(self, handshake: Handshake) -> None:
        """Bytes of it have come."""
        if self._under_way.pop(handshake, None) is not None:
            self._under_way[handshake] = self._looks

    def ended(self, handshake: Handshake, fault: HandshakeFault | None, detail: str = "") -> None:
        """None: it is done."""
        waited = self._waiting.pop(handshake, None)
        if waited is None and self._under_way.pop(handshake, None) is None:
            return
        self._go_on()
        counts = self.counts.setdefault(handshake.listener, HandshakeCounts())
        if fault is None:
            counts.done += 1
            return
        counts.failed[fault] = counts.failed.get(fault, 0) + 1
        left_out = self._lines.due((handshake.listener, fault))
        if left_out is not None:
            log.warning(
                "tls_handshake_failed",
                listener=handshake.listener,
                client=handshake.client,
                reason=fault.value,
                detail=detail,
                left_out=left_out,
            )

    def give_up_all(self) -> None:
        for handshake in [*self._waiting, *self._under_way]:
            handshake.give_up(HandshakeFault.CUT_OFF)
        if self._timer is not None:
            self._timer.cancel()

    def _go_on(self) -> None:
        """Those that wait begin, as far as there are places."""
        while self._waiting and len(self._under_way) < HANDSHAKES_MAX:
            handshake = next(iter(self._waiting))
            del self._waiting[handshake]
            self._begin(handshake)

    def _begin(self, handshake: Handshake) -> None:
        self._under_way[handshake] = self._looks
        handshake.begin()

    @property
    def _flooded(self) -> bool:
        since = next(iter(self._waiting.values()), self._looks)
        many = len(self._waiting) >= HANDSHAKES_WAITING_MAX
        return many or self._looks - since >= HANDSHAKE_WAIT_LOOKS

    def _look_later(self) -> None:
        self._timer = asyncio.get_running_loop().call_later(HANDSHAKE_LOOK_S, self._look)

    def _look(self) -> None:
        self._looks += 1
        self._timer = None
        while self._waiting:
            handshake, moved = next(iter(self._under_way.items()))
            if self._looks - moved < HANDSHAKE_LOOKS:
                break
            handshake.give_up(HandshakeFault.TOO_MANY)
        if self._under_way:
            self._look_later()


class _Behind(asyncio.Protocol):
    """What comes behind a handshake in the same read of its socket, before the client's protocol
    is there.
    """

    def __init__(self) -> None:
        self.data = b""

    def data_received(self, data: bytes) -> None:
        self.data += data


class Handshake(asyncio.Protocol):
    """One connection until its handshake is done. `broker_id`: of the port that it came to;
    `names`: the name that the client asks for says which virtual broker it means.
    """

    def __init__(
        self,
        certificates: Certificates[AskedContext],
        all_of_node: Handshakes,
        tasks: ClientTasks,
        admit: Admit,
        *,
        broker_id: int | None,
        names: ServerNames | None,
        knows: Callable[[int], bool],
    ) -> None:
        self.listener = certificates.port
        self.client = ""
        self._certificates = certificates
        self._all = all_of_node
        self._tasks = tasks
        self._admit = admit
        self._broker_id = broker_id
        self._names = names
        self._knows = knows
        self._name: str | None = None
        self._unknown: str | None = None
        self._early = b""
        self._begun = False
        self._lower: asyncio.Transport | None = None
        self._between: Between | None = None
        self._behind = _Behind()
        self._given_up: HandshakeFault | None = None

    # ------------------------------------------------------------------------------- the socket

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._lower = cast(asyncio.Transport, transport)
        host, port = transport.get_extra_info("peername", ("", 0))[:2]
        self.client = f"{host}:{port}"
        self._all.come(self)

    def data_received(self, data: bytes) -> None:
        """The event loop reads before TLS is there. While it waits it hears that the client leaves,
        if that has sent no more than its first words.
        """
        self._early += data
        if self._lower is not None and self._begun:
            self._lower.pause_reading()
        elif len(self._early) > FIRST_WORDS_BYTES_MAX:
            # An honest client says no more before it has an answer.
            self._early = b""
            self.give_up(HandshakeFault.OTHER)

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002
        """Before TLS was there."""
        self._all.ended(self, HandshakeFault.CUT_OFF)

    # ---------------------------------------------------------------------------- the handshake

    def begin(self) -> None:
        assert self._lower is not None
        self._begun = True
        self._tasks.start(
            partial(self._shake, self._lower), partial(self.give_up, HandshakeFault.OTHER)
        )

    def give_up(self, why: HandshakeFault) -> None:
        self._given_up = why
        self._all.ended(self, why)
        if self._lower is not None:
            self._lower.abort()

    async def _shake(self, lower: asyncio.Transport) -> None:
        loop = asyncio.get_running_loop()
        if lower.is_closing():
            self._all.ended(self, HandshakeFault.CUT_OFF)
            return
        # `_prepare` runs right before the layer's connection_made, which is scheduled next. Other
        # certificates may come before that: they are for the next handshake.
        context = self._certificates.context
        loop.call_soon(self._prepare, lower, context)
        try:
            upper = await loop.start_tls(
                lower,
                self._behind,
                context,
                server_side=True,
                ssl_handshake_timeout=HANDSHAKE_S_MAX,
            )
        except (OSError, ssl.CertificateError) as error:
            self._all.ended(self, *self._fault(error))
            lower.abort()
            return
        if upper is None or lower.is_closing() or upper.is_closing():
            self._all.ended(self, HandshakeFault.CUT_OFF)
            return
        self._all.ended(self, None)
        self._hand_over(lower, upper)

    def _prepare(self, lower: asyncio.Transport, context: AskedContext) -> None:
        layer = cast(asyncio.BufferedProtocol, lower.get_protocol())
        self._between = Between(layer, self._early, self._all.unsent, self._moved)
        lower.set_protocol(self._between)
        context.attempt = self
        asyncio.get_running_loop().call_soon(self._feed)

    def _moved(self) -> None:
        self._all.moved(self)

    def _feed(self) -> None:
        if self._between is not None and self._lower is not None and not self._lower.is_closing():
            self._between.feed()

    def _hand_over(self, lower: asyncio.Transport, upper: asyncio.Transport) -> None:
        asked = cast(AskedObject, upper.get_extra_info("ssl_object"))
        cipher = asked.cipher()
        shown = upper.get_extra_info("peercert")
        facts = TlsFacts(
            version=asked.version() or "",
            cipher=cipher[0] if cipher else "",
            server_name=self._name,
            peer=peer_certificate(shown),
            peer_expires_s=ssl.cert_time_to_seconds(shown["notAfter"]) if shown else None,
        )
        client = self._admit(self._broker_id, facts)
        upper.set_protocol(client)
        assert self._between is not None
        self._between.client = client
        client.connection_made(TlsTransport(lower, upper))
        if self._behind.data:
            client.received(self._behind.data)

    # -------------------------------------------------------------- called within the handshake

    def asks_for(self, name: str | None) -> bool:
        """Whether there is something behind the name."""
        self._name = name
        if self._names is None:
            return True
        try:
            self._broker_id = self._names.broker_of(name)
            if self._broker_id is not None and not self._knows(self._broker_id):
                raise UnknownName(f"{name!r}: there is no virtual broker {self._broker_id}")
        except UnknownName as unknown:
            self._unknown = str(unknown)
            return False
        return True

    def last_words(self, alert: bytes) -> None:
        """The alert tells the client why; the event loop's layer would keep it."""
        if self._lower is not None and not self._lower.is_closing():
            self._lower.set_write_buffer_limits(high=0)  # it is sent at once
            self._lower.write(alert)

    def _fault(self, error: BaseException) -> tuple[HandshakeFault, str]:
        if self._given_up is not None:
            return self._given_up, ""
        if self._unknown is not None:
            return HandshakeFault.UNKNOWN_NAME, self._unknown
        first = None if self._between is None else self._between.first_byte
        if first not in (None, _TLS_HANDSHAKE):
            return HandshakeFault.PLAIN, "set security.protocol=SSL or SASL_SSL on the client"
        if isinstance(error, ssl.SSLError):
            reason = str(getattr(error, "reason", None) or error)
            detail = getattr(error, "verify_message", None) or reason.lower().replace("_", " ")
            return _BY_REASON.get(reason, HandshakeFault.OTHER), detail
        if isinstance(error, ConnectionAbortedError):
            return HandshakeFault.TIMED_OUT, f"{HANDSHAKE_S_MAX} s"
        return HandshakeFault.CUT_OFF, ""
