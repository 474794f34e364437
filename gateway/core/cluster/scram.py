"""The client's side of SASL SCRAM (RFC 5802), as Kafka uses it: no channel binding, no
authorization identity.

The nonce comes in; everything else is arithmetic on messages.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
from dataclasses import dataclass, field

# A server asking for more is broken or wants our processor time (Kafka's default is 4,096).
ITERATIONS_MAX = 1_000_000
ITERATIONS_MIN = 4_096  # RFC 7677, section 4; Kafka refuses to store fewer


class ScramError(Exception):
    """The server's message is malformed or weak, or its signature shows that the server does not
    know the password.
    """


@dataclass(frozen=True, slots=True)
class ScramKeys:
    """What a client may keep of its password for the next exchange (RFC 5802, section 9)."""

    client_key: bytes = field(repr=False)
    server_key: bytes = field(repr=False)


@dataclass(frozen=True, slots=True)
class KeySource:
    hash_name: str
    password: str = field(repr=False)
    salt: bytes
    iterations: int

    def keys(self) -> ScramKeys:
        """Takes milliseconds and more: 5 for Kafka's 4,096 iterations of SHA-512."""
        password = self.password.encode()
        salted = hashlib.pbkdf2_hmac(self.hash_name, password, self.salt, self.iterations)
        return ScramKeys(
            hmac.new(salted, b"Client Key", self.hash_name).digest(),
            hmac.new(salted, b"Server Key", self.hash_name).digest(),
        )


@dataclass(frozen=True, slots=True)
class ScramClient:
    hash_name: str  # "sha256" or "sha512"
    username: str
    password: str = field(repr=False)
    nonce: str = field(repr=False)  # printable, no comma, fresh for every exchange

    def first(self) -> bytes:
        return ("n,," + self._first_bare()).encode()

    def _first_bare(self) -> str:
        name = self.username.replace("=", "=3D").replace(",", "=2C")
        return f"n={name},r={self.nonce}"

    def source(self, server_first: bytes) -> KeySource:
        """What the keys come from that this server wants to see. Raises ScramError."""
        fields = _fields(server_first.decode("utf-8", "replace"))
        nonce = fields.get("r", "")
        if not nonce.startswith(self.nonce) or nonce == self.nonce:
            raise ScramError("the server did not extend our nonce")
        iterations = int(fields["i"]) if fields.get("i", "").isdecimal() else 0
        if not ITERATIONS_MIN <= iterations <= ITERATIONS_MAX:
            raise ScramError(
                f"{iterations} iterations are outside [{ITERATIONS_MIN}, {ITERATIONS_MAX}]"
            )
        try:
            salt = base64.b64decode(fields.get("s", ""), validate=True)
        except ValueError as error:
            raise ScramError("the salt is not base64") from error
        return KeySource(self.hash_name, self.password, salt, iterations)

    def final(self, server_first: bytes, keys: ScramKeys) -> tuple[bytes, bytes]:
        """The client's final message, and the signature that the server's must carry. `keys`: of
        `source(server_first)`.
        """
        challenge = server_first.decode("utf-8", "replace")
        without_proof = f"c=biws,r={_fields(challenge)['r']}"
        signed = f"{self._first_bare()},{challenge},{without_proof}".encode()
        stored_key = hashlib.new(self.hash_name, keys.client_key).digest()
        signature = hmac.new(stored_key, signed, self.hash_name).digest()
        proof = bytes(a ^ b for a, b in zip(keys.client_key, signature, strict=True))
        server_signature = hmac.new(keys.server_key, signed, self.hash_name).digest()
        return f"{without_proof},p={base64.b64encode(proof).decode()}".encode(), server_signature


def check_server_final(server_final: bytes, signature: bytes) -> None:
    """Raises ScramError unless the server proved that it knows the password too."""
    verifier = _fields(server_final.decode("utf-8", "replace")).get("v", "")
    if not hmac.compare_digest(verifier, base64.b64encode(signature).decode()):
        raise ScramError("the server's signature is wrong")


def _fields(message: str) -> dict[str, str]:
    return {part[0]: part[2:] for part in message.split(",") if part[1:2] == "="}
