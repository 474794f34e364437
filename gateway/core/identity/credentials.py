"""Secrets of clients as SCRAM keeps them (RFC 5802): nobody can log in with what is stored.

A PLAIN password is checked against the same: hashed as the credential's, and compared. A name that
is not known has a credential, too, which no password fits: its salt is the same at every try, so a
stranger cannot tell it from a real one.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final, TypeVar

from gateway.core.identity.limits import (
    ITERATIONS_MAX,
    ITERATIONS_MIN,
    SALT_BYTES,
)

HASHES: Final = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}  # by mechanism
_BEST_FIRST: Final = ("SCRAM-SHA-512", "SCRAM-SHA-256")
_T = TypeVar("_T")
_FIELDS: Final = ("salt", "stored_key", "server_key", "iterations")


class BadCredentials(ValueError):
    """One line with the fault. No secret is in it."""


@dataclass(frozen=True, slots=True)
class ScramCredential:
    hash_name: str  # "sha256" or "sha512"
    salt: bytes
    iterations: int
    stored_key: bytes = field(repr=False)
    server_key: bytes = field(repr=False)

    def fits(self, password: bytes) -> bool:
        """Takes as long for a wrong password as for the right one: milliseconds and more."""
        made = derived(self.hash_name, password, self.salt, self.iterations)
        return hmac.compare_digest(made.stored_key, self.stored_key)

    def text(self) -> str:
        """The credential in Kafka's own form, as ScramCredentialUtils writes it."""
        salt, stored, server = (
            base64.b64encode(part).decode()
            for part in (self.salt, self.stored_key, self.server_key)
        )
        return f"salt={salt},stored_key={stored},server_key={server},iterations={self.iterations}"


def derived(hash_name: str, password: bytes, salt: bytes, iterations: int) -> ScramCredential:
    """What is kept in place of a password."""
    salted = hashlib.pbkdf2_hmac(hash_name, password, salt, iterations)
    client_key = hmac.new(salted, b"Client Key", hash_name).digest()
    stored_key = hashlib.new(hash_name, client_key).digest()
    server_key = hmac.new(salted, b"Server Key", hash_name).digest()
    return ScramCredential(hash_name, salt, iterations, stored_key, server_key)


def credential_of(mechanism: str, text: str) -> ScramCredential:
    """Reads a credential in Kafka's form. Raises BadCredentials."""
    hash_name = HASHES[mechanism]
    given = dict(part.split("=", 1) for part in text.split(",") if "=" in part)
    if sorted(given) != sorted(_FIELDS):
        raise BadCredentials(f"{mechanism} needs {', '.join(_FIELDS)}, and no more")
    try:
        salt, stored, server = (
            base64.b64decode(given[name], validate=True) for name in _FIELDS[:3]
        )
        iterations = int(given["iterations"])
    except ValueError as error:
        raise BadCredentials(f"{mechanism}: a field is not base64, or no number") from error
    if not ITERATIONS_MIN <= iterations <= ITERATIONS_MAX:
        raise BadCredentials(
            f"{mechanism}: {iterations} iterations are outside [{ITERATIONS_MIN}, {ITERATIONS_MAX}]"
        )
    size = hashlib.new(hash_name).digest_size
    if not salt or len(stored) != size or len(server) != size:
        raise BadCredentials(f"{mechanism}: keys of {size} bytes and a salt are expected")
    return ScramCredential(hash_name, salt, iterations, stored, server)


class Users:
    """The clients of a listener, by name and mechanism, and the key that the salts of unknown names
    come from.

    A fake is made for known names, too: their logins take no less time than those of others.
    """

    def __init__(self, known: Mapping[str, Mapping[str, ScramCredential]], key: bytes) -> None:
        self.known = known
        self.key = key
        best = (_best(mine) for mine in known.values() if mine)
        self._usual_mechanism = _most_common(best, _BEST_FIRST[0])
        self._usual_sizes = {mechanism: self._sizes(mechanism) for mechanism in HASHES}

    def credential(self, name: str, mechanism: str) -> tuple[ScramCredential, bool]:
        """False: there is none; the credential fits no password."""
        fake = self._fake(name, mechanism)
        found = self.known.get(name, {}).get(mechanism)
        return (fake, False) if found is None else (found, True)

    def for_password(self, name: str) -> tuple[ScramCredential, bool]:
        """The credential that a PLAIN password is checked with. False: it is a fake, for an unknown
        name: of the mechanism that most passwords are checked with, so that it takes as long.
        """
        fake = self._fake(name, self._usual_mechanism)
        mine = self.known.get(name)
        return (fake, False) if not mine else (mine[_best(mine)], True)

    def _sizes(self, mechanism: str) -> tuple[int, int]:
        """The bytes of a salt and the iterations that most users have."""
        known = [mine[mechanism] for mine in self.known.values() if mechanism in mine]
        return (
            _most_common((len(credential.salt) for credential in known), SALT_BYTES),
            _most_common((credential.iterations for credential in known), ITERATIONS_MIN),
        )

    def _fake(self, name: str, mechanism: str) -> ScramCredential:
        hash_name = HASHES[mechanism]
        size, iterations = self._usual_sizes[mechanism]

        def made(what: str, count: int) -> bytes:
            seed = hmac.new(self.key, f"{what}:{mechanism}:{name}".encode(), "sha256").digest()
            return hashlib.shake_256(seed).digest(count)

        digest = hashlib.new(hash_name).digest_size
        return ScramCredential(
            hash_name, made("salt", size), iterations, made("key", digest), made("server", digest)
        )


def _best(mine: Mapping[str, ScramCredential]) -> str:
    return next(mechanism for mechanism in _BEST_FIRST if mechanism in mine)


def _most_common(values: Iterable[_T], other: _T) -> _T:
    return next((value for value, _ in Counter(values).most_common(1)), other)


def of_password(name: str, password: str, key: bytes) -> dict[str, ScramCredential]:
    """The credential of a plain password in the file; `key` is that of `Users`. Takes some
    milliseconds.
    """
    salt = hmac.new(key, f"password:{name}".encode(), "sha256").digest()[:SALT_BYTES]
    return {
        mechanism: derived(hash_name, password.encode(), salt, ITERATIONS_MIN)
        for mechanism, hash_name in HASHES.items()
    }
