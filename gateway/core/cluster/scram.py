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

    def final(self, server_first: bytes) -> tuple[bytes, bytes]:
        """The client's final message, and the signature that the server's must carry. Raises
        ScramError.
        """
        challenge = server_first.decode("utf-8", "replace")
        fields = _fields(challenge)
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
        without_proof = f"c=biws,r={nonce}"
        signed = f"{self._first_bare()},{challenge},{without_proof}".encode()
        salted = hashlib.pbkdf2_hmac(self.hash_name, self.password.encode(), salt, iterations)
        client_key = self._hmac(salted, b"Client Key")
        stored_key = hashlib.new(self.hash_name, client_key).digest()
        signature = self._hmac(stored_key, signed)
        proof = bytes(a ^ b for a, b in zip(client_key, signature, strict=True))
        server_signature = self._hmac(self._hmac(salted, b"Server Key"), signed)
        return f"{without_proof},p={base64.b64encode(proof).decode()}".encode(), server_signature

    def _hmac(self, key: bytes, message: bytes) -> bytes:
        return hmac.new(key, message, self.hash_name).digest()


def check_server_final(server_final: bytes, signature: bytes) -> None:
    """Raises ScramError unless the server proved that it knows the password too."""
    verifier = _fields(server_final.decode("utf-8", "replace")).get("v", "")
    if not hmac.compare_digest(verifier, base64.b64encode(signature).decode()):
        raise ScramError("the server's signature is wrong")


def _fields(message: str) -> dict[str, str]:
    return {part[0]: part[2:] for part in message.split(",") if part[1:2] == "="}
