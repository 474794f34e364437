"""The tokens of REST: their owners, and the sessions of browsers that logged in with one.

A token is 256 random bits, made by `keyway token`. The configuration has its SHA-256 only. A slow,
salted hash would add nothing: those protect passwords, which can be guessed from a list, while 256
random bits cannot be guessed at any speed, and no two tokens are the same. So a request costs one
SHA-256, and a wrong token costs the node as little as a right one.

A browser gets a session for its token: a cookie of 256 other random bits. Sessions are in memory
and end with the node, with their time, at logout, and as soon as their token is not configured any
more.
"""

from __future__ import annotations

import fnmatch
import hashlib
import hmac
import secrets
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from gateway.admin.limits import LOGIN_SESSIONS_MAX, SESSION_MS
from gateway.config.admin import Role, TokenSection

TOKEN_BYTES = 32
TOKEN_PREFIX = "keyway_"  # noqa: S105 - scanners of repositories find tokens by it
EVERY_GROUP = "*"


@dataclass(frozen=True, slots=True)
class Caller:
    """`name` None: the node has no tokens."""

    name: str | None
    role: Role
    groups: tuple[str, ...]  # globs
    keys: bool  # may see keys of records
    values: bool = False  # may look at values of parked records

    @property
    def sees_all(self) -> bool:
        return EVERY_GROUP in self.groups

    def sees(self, group: str) -> bool:
        return self.sees_all or any(fnmatch.fnmatchcase(group, glob) for glob in self.groups)


# Without tokens REST is on loopback, and all who reach it may do everything. But keys may be
# personal data, and no token was named that may see them.
ANYBODY = Caller(None, Role.ADMIN, (EVERY_GROUP,), keys=False)


@dataclass(frozen=True, slots=True, repr=False)
class Token:
    """A caller's own, to ask other nodes with; in no log and no error."""

    name: str
    text: str

    @property
    def sha256(self) -> bytes:
        return hashlib.sha256(self.text.encode("utf-8", "surrogatepass")).digest()


class _Token(NamedTuple):
    sha256: bytes
    caller: Caller


def new_token() -> str:
    return TOKEN_PREFIX + secrets.token_urlsafe(TOKEN_BYTES)


def sha256_of(token: str) -> str:
    """64 hex digits, as the configuration has them."""
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).hexdigest()


class Tokens:
    def __init__(self, sections: Sequence[TokenSection] = ()) -> None:
        self._tokens: tuple[_Token, ...] = ()
        self.replace(sections)

    def replace(self, sections: Sequence[TokenSection]) -> None:
        self._tokens = tuple(
            _Token(bytes.fromhex(section.sha256.get_secret_value()), _caller(section))
            for section in sections
        )

    @property
    def required(self) -> bool:
        return bool(self._tokens)

    def sha256_of(self, name: str) -> bytes | None:
        """The hash of the token with this name."""
        return next((token.sha256 for token in self._tokens if token.caller.name == name), None)

    def caller(self, sha256: bytes) -> Caller | None:
        """The owner of the token with this hash. Compares with every token, each in constant time:
        the answer's delay says nothing about the hashes.
        """
        found: Caller | None = None
        for token in self._tokens:
            if hmac.compare_digest(token.sha256, sha256):
                found = token.caller
        return found


def _caller(section: TokenSection) -> Caller:
    keys = section.role is not Role.VIEWER if section.keys is None else section.keys
    return Caller(section.name, section.role, section.groups, keys, section.values)


class _LoginSession(NamedTuple):
    token_sha256: bytes
    ends_ms: int
    sealed: bytes  # the token: only the cookie opens it


@dataclass(slots=True)
class LoginSessions:
    """The sessions of browsers, by the hash of their cookie. The cookie itself is kept nowhere."""

    tokens: Tokens
    now_ms: Callable[[], int]
    _sessions: dict[bytes, _LoginSession] = field(default_factory=dict)  # the oldest first

    def open(self, token: str) -> str:
        """The cookie of a new session."""
        cookie = secrets.token_urlsafe(TOKEN_BYTES)
        text = token.encode("utf-8", "surrogatepass")
        self._sessions[_key(cookie)] = _LoginSession(
            bytes.fromhex(sha256_of(token)), self.now_ms() + SESSION_MS, _sealed(text, cookie)
        )
        while len(self._sessions) > LOGIN_SESSIONS_MAX:
            del self._sessions[next(iter(self._sessions))]
        return cookie

    def caller(self, cookie: str) -> Caller | None:
        session = self._sessions.get(_key(cookie))
        if session is None:
            return None
        caller = self.tokens.caller(session.token_sha256)
        if caller is None or session.ends_ms <= self.now_ms():
            self.close(cookie)
            return None
        return caller

    def token(self, cookie: str) -> str | None:
        """The token that the session was opened with, to ask other nodes."""
        session = self._sessions.get(_key(cookie))
        if session is None:
            return None
        return _sealed(session.sealed, cookie).decode("utf-8", "surrogatepass")

    def close(self, cookie: str) -> None:
        self._sessions.pop(_key(cookie), None)


def _sealed(text: bytes, cookie: str) -> bytes:
    """Sealed, or opened again: a stream that only the cookie's 256 random bits make, used once."""
    stream = hashlib.shake_256(b"keyway sealed token" + cookie.encode()).digest(len(text))
    return bytes(a ^ b for a, b in zip(text, stream, strict=True))


def _key(cookie: str) -> bytes:
    return hashlib.sha256(cookie.encode("utf-8", "surrogatepass")).digest()
