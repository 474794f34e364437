"""The server's side of PLAIN (RFC 4616), SCRAM (RFC 5802) and OAUTHBEARER (RFC 7628), as Kafka's
brokers have it.

No channel binding; an authorization id has to be the name itself; no delegation tokens. Nonces come
in; everything else is arithmetic on messages.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import re
from dataclasses import dataclass, field
from typing import Final

from gateway.core.identity.credentials import ScramCredential
from gateway.core.identity.limits import (
    BEARER_PAIRS_MAX,
    BEARER_TOKEN_BYTES_MAX,
    CREDENTIAL_MESSAGE_BYTES_MAX,
)

_NAME: Final = r"((?:[^,=\0]|=2C|=3D)+)"
_NONCE: Final = r"([!-+\--~]+)"  # printable, no comma
_FIRST: Final = re.compile(rf"(n,(?:a={_NAME})?,)(n={_NAME},r={_NONCE})((?:,[^,]+)*)")
_FINAL: Final = re.compile(rf"(c=([A-Za-z0-9+/=]+),r={_NONCE}(?:,[^,]+)*),p=([A-Za-z0-9+/=]+)")
_BEARER_HEAD: Final = re.compile(rf"n,(?:a={_NAME})?,")
_PAIR: Final = re.compile(r"[A-Za-z]+=")  # what its value is, is not asked
_AUTH: Final = re.compile(r"auth=[Bb]earer +([A-Za-z0-9._~+/=-]+)")


class BadMessage(ValueError):
    """The client's message is none of its mechanism. The text has no secret of it."""


@dataclass(frozen=True, slots=True)
class PlainLogin:
    name: str
    password: bytes = field(repr=False)


def plain_login(token: bytes) -> PlainLogin:
    """Raises BadMessage."""
    parts = _text(token).split("\0")
    if len(parts) != 3 or not parts[1] or not parts[2]:
        raise BadMessage("PLAIN: a name and a password are expected")
    authorization_id, name, password = parts
    if authorization_id not in ("", name):
        raise BadMessage("PLAIN: the authorization id is not the name")
    return PlainLogin(name, password.encode())


@dataclass(frozen=True, slots=True)
class ScramFirst:
    """The client's first message."""

    name: str
    nonce: str
    header: str  # GS2, which the last message repeats
    bare: str


def scram_first(token: bytes) -> ScramFirst:
    """Raises BadMessage."""
    found = _FIRST.fullmatch(_text(token))
    if found is None:
        raise BadMessage("SCRAM: the first message is malformed, or asks for channel binding")
    header, authorization_id, bare, name, nonce, extensions = found.groups()
    if "tokenauth=true" in extensions.split(","):
        raise BadMessage("SCRAM: delegation tokens are not served here")
    if authorization_id not in (None, name):
        raise BadMessage("SCRAM: the authorization id is not the name")
    return ScramFirst(_unescaped(name), nonce, header, bare + extensions)


@dataclass(frozen=True, slots=True)
class ScramServer:
    """Between the two messages of a client. `nonce`: of the server, fresh for every exchange, so
    the last message of another exchange is worth nothing here.
    """

    first: ScramFirst
    credential: ScramCredential
    nonce: str = field(repr=False)

    def challenge(self) -> bytes:
        salt = base64.b64encode(self.credential.salt).decode()
        return f"r={self.first.nonce}{self.nonce},s={salt},i={self.credential.iterations}".encode()

    def final(self, token: bytes) -> bytes | None:
        """The server's last message; None: the client does not know the password. Raises
        BadMessage.
        """
        found = _FINAL.fullmatch(_text(token))
        if found is None:
            raise BadMessage("SCRAM: the last message is malformed")
        without_proof, binding, nonce, proof_text = found.groups()
        if binding != base64.b64encode(self.first.header.encode()).decode():
            raise BadMessage("SCRAM: channel binding")
        if not hmac.compare_digest(nonce, self.first.nonce + self.nonce):
            raise BadMessage("SCRAM: the nonce is that of another exchange")
        credential = self.credential
        signed = f"{self.first.bare},{self.challenge().decode()},{without_proof}".encode()
        signature = hmac.new(credential.stored_key, signed, credential.hash_name).digest()
        try:
            proof = base64.b64decode(proof_text, validate=True)
        except ValueError as error:
            raise BadMessage("SCRAM: the proof is not base64") from error
        if len(proof) != len(signature):
            return None
        client_key = bytes(a ^ b for a, b in zip(proof, signature, strict=True))
        stored_key = hashlib.new(credential.hash_name, client_key).digest()
        if not hmac.compare_digest(stored_key, credential.stored_key):
            return None
        verifier = hmac.new(credential.server_key, signed, credential.hash_name).digest()
        return b"v=" + base64.b64encode(verifier)


@dataclass(frozen=True, slots=True)
class BearerLogin:
    authorization_id: str | None  # has to be the principal of the token
    token: str = field(repr=False)


def bearer_login(message: bytes) -> BearerLogin:
    """Raises BadMessage."""
    text = _text(message, BEARER_TOKEN_BYTES_MAX)
    if text.count("\x01") > BEARER_PAIRS_MAX + 2:  # behind the head, each pair, and the last
        raise BadMessage(f"OAUTHBEARER: more than {BEARER_PAIRS_MAX} pairs")
    head, *pairs = text.split("\x01")
    named = _BEARER_HEAD.fullmatch(head)
    ends = pairs[-2:] == ["", ""] and all(_PAIR.match(pair) for pair in pairs[:-2])
    tokens = [_AUTH.fullmatch(pair) for pair in pairs if pair.startswith("auth=")]
    if named is None or not ends or len(tokens) != 1 or tokens[0] is None:
        raise BadMessage("OAUTHBEARER: a bearer token is expected")
    name = named[1]
    return BearerLogin(None if name is None else _unescaped(name), tokens[0][1])


def _text(token: bytes, bytes_max: int = CREDENTIAL_MESSAGE_BYTES_MAX) -> str:
    if len(token) > bytes_max:
        raise BadMessage(f"a message of {len(token)} bytes")
    try:
        return token.decode()
    except UnicodeDecodeError as error:
        raise BadMessage("a message that is not UTF-8") from error


def _unescaped(name: str) -> str:
    return name.replace("=2C", ",").replace("=3D", "=")
