"""The name of a client whose SASL exchange passes through to upstream.

PLAIN and SCRAM send the name in clear. It counts once upstream has accepted the last step. Other
mechanisms, and delegation tokens, do not show whose they are.
"""

from __future__ import annotations

import re
from typing import Final, final

from gateway.core.client_limits.rules import ANONYMOUS
from gateway.core.forwarding.effects import Failed, Fault, Side, Stop
from gateway.core.wire.codec import decode_request
from gateway.core.wire.errors import WireError
from gateway.core.wire.frames import parse_request_header

_HANDSHAKE: Final = 17
_PLAIN: Final = "PLAIN"
_SCRAM: Final = "SCRAM-"
_BEARER: Final = "OAUTHBEARER"
# A client's first message, as Kafka's ScramMessages reads it. What Kafka takes has a name here.
_SCRAM_FIRST: Final = re.compile(
    rb"n,(?:a=(?:[\x01-\x2B\x2D-\x3C\x3E-\x7F]|=2C|=3D)+)?,"
    rb"(?:m=[\x01-\x2B\x2D-\x7F]+,)?"
    rb"n=(?P<name>(?:[\x01-\x2B\x2D-\x3C\x3E-\x7F]|=2C|=3D)+),"
    rb"r=[\x21-\x2B\x2D-\x7E]+"
    rb"(?P<extensions>(?:,[A-Za-z]+=[\x01-\x2B\x2D-\x7F]+)*)"
)


@final
class SaslWatch:
    """`principal` is ANONYMOUS for an exchange that does not show it; None: not yet accepted."""

    def __init__(self) -> None:
        self.principal: str | None = None
        self._mechanism = ""
        self._name: str | None = None  # that the exchange under way is for
        self._steps = 0  # of the exchange that upstream has to accept still

    def asked(self, api_key: int, version: int, payload: bytes) -> None:
        """SaslHandshake or SaslAuthenticate, without its size. Raises Stop for one that cannot be
        read: Kafka may read it (it ignores bytes behind a request), and its name would be hidden.
        """
        try:
            body_at = parse_request_header(payload).body_at
            message = decode_request(api_key, version, payload, body_at)
        except WireError as error:
            detail = f"api_key={api_key} {error}"
            raise Stop(Failed(Fault.HEADER, Side.CLIENT, detail)) from error
        if api_key == _HANDSHAKE:
            self._mechanism = str(message["Mechanism"])
            self._name, self._steps = None, 0
        elif self._steps == 0:
            token = bytes(message["AuthBytes"])
            self._name, self._steps = ANONYMOUS, 1
            if self._mechanism == _PLAIN:
                self._name = _plain_name(token) or ANONYMOUS
            elif self._mechanism.startswith(_SCRAM):
                self._name, self._steps = scram_name(token) or ANONYMOUS, 2

    def answered(self, *, accepted: bool, empty: bool = True) -> None:
        """A step of the exchange. `empty`: upstream's answer has no bytes of the mechanism. A token
        is refused without an error code, by an answer that says why (RFC 7628).
        """
        accepted = accepted and (empty or self._mechanism != _BEARER)
        self._steps = self._steps - 1 if accepted and self._steps else 0
        if accepted and self._steps == 0:
            self.principal = self._name or ANONYMOUS


def _plain_name(token: bytes) -> str:
    """The password behind it is not touched."""
    parts = token.split(b"\0", 2)
    return parts[1].decode("utf-8", "replace") if len(parts) == 3 else ""


def scram_name(token: bytes) -> str:
    """The user name in a client's first message (RFC 5802). Empty: this is no such message, or the
    name is not the client's own.
    """
    first = _SCRAM_FIRST.fullmatch(token)
    if first is None:
        return ""
    extensions = dict(
        extension.split(b"=", 1) for extension in first["extensions"].split(b",") if extension
    )
    if extensions.get(b"tokenauth", b"").lower() == b"true":
        return ""  # a delegation token: upstream alone knows its owner
    return first["name"].decode().replace("=2C", ",").replace("=3D", "=")
