"""What the logins of one listener share: its files, and what became of its logins."""

from __future__ import annotations

import asyncio
import secrets
from collections import Counter
from collections.abc import Callable, Sequence
from enum import Enum
from functools import partial
from pathlib import Path
from typing import Any, TypeVar, cast

from gateway.config.identities import read_identities, read_users
from gateway.core.identity.credentials import Users
from gateway.core.identity.exchange import CheckPassword
from gateway.core.identity.identities import Identities, Identity, Secret
from gateway.listen.bearer_tokens import BearerTokens
from gateway.listen.limits import PASSWORDS_HASHED_AT_ONCE
from gateway.listen.settings import AuthenticationSettings, ListenerSettings
from gateway.listen.watched_file import WatchedFile
from gateway.upstream.scram_keys import ScramKeyring
from gateway.upstream.settings import SaslMechanism, SaslSettings
from keyway.clusters.sections import from_environment, from_file
from keyway.clusters.yaml_file import ConfigError

_T = TypeVar("_T")


class SessionEnd(Enum):
    """Why the gateway ended the session of a client, as logs and metrics name it."""

    EXPIRED = "expired"  # no new login in time, or the token or the certificate is over
    REVOKED = "revoked"  # its credentials are gone, or it has another identity now
    UPSTREAM = "upstream"  # upstream refused to go on with the session of its identity


class Authentication:
    """Raises ConfigError for a file that cannot be used."""

    def __init__(self, listener: str, settings: AuthenticationSettings, option: str) -> None:
        self.listener = listener
        self.settings = settings
        # For a file of users without a key: the salts of unknown names are others after a restart.
        key = secrets.token_hex(32).encode()
        self._identities = _opened(
            f"{option}.identities_file", settings.identities_file, _identities(settings)
        )
        self._users: WatchedFile[Users] | None = None
        path = settings.users_file
        if path is not None:
            self._users = _opened(
                f"{option}.users_file",
                path,
                lambda: read_users(path, key, passwords=settings.plain_passwords),
            )
        self._nobody = Users({}, key)
        self.tokens = None
        if settings.bearer is not None:
            self.tokens = BearerTokens(settings.bearer, f"{option}.oauthbearer")
        self.logins: Counter[tuple[str, str]] = Counter()  # by mechanism and outcome
        self.ended: Counter[SessionEnd] = Counter()
        self.upstream_keys = ScramKeyring()
        self._hashing = asyncio.Semaphore(PASSWORDS_HASHED_AT_ONCE)

    @property
    def identities(self) -> Identities:
        return self._identities.value

    @property
    def users(self) -> Users:
        return self._nobody if self._users is None else self._users.value

    async def right(self, check: CheckPassword) -> bool:
        async with self._hashing:
            return await asyncio.to_thread(check.right)

    def at_upstream(self, identity: Identity) -> SaslSettings:
        """The identity at upstream, with its password as it is now. Raises ConfigError."""
        mechanism = cast(SaslMechanism, identity.mechanism)
        return SaslSettings(mechanism, identity.username, password_of(identity))

    async def look(self) -> bool:
        """True: other users, identities or keys than before."""
        changed = [await file.look() for file in self._watched()]  # each of them is looked at
        return any(changed) or (self.tokens is not None and self.tokens.other_keys())

    def _watched(self) -> Sequence[WatchedFile[Any]]:
        keys = None if self.tokens is None else self.tokens.file
        return [file for file in (self._identities, self._users, keys) if file is not None]

    def warnings(self) -> Sequence[str]:
        """A line for each file that cannot be used as it is now."""
        lines = [file.problem for file in self._watched() if file.problem is not None]
        if self.tokens is not None and self.tokens.problem is not None:
            lines.append(self.tokens.problem)
        return [
            f"listener {self.listener}: what was read before is in use: {line}" for line in lines
        ]


def authentications_of(listeners: Sequence[ListenerSettings]) -> dict[str, Authentication]:
    """By listener, those that authenticate clients. Raises ConfigError for a file that cannot be
    used.
    """
    return {
        one.name: Authentication(one.name, one.authentication, f"{one.option}.authentication")
        for one in listeners
        if one.authentication is not None
    }


def password_of(identity: Identity) -> str:
    """Raises ConfigError."""
    place = f"identities.{identity.name}.{identity.kind.value}"
    match identity.kind:
        case Secret.HERE:
            return identity.secret
        case Secret.ENVIRONMENT:
            read = partial(from_environment, identity.secret)
        case Secret.FILE:
            read = partial(from_file, Path(identity.secret))
    try:
        return read()
    except ConfigError as error:
        raise ConfigError(f"{place}: {error}") from error


def _identities(settings: AuthenticationSettings) -> Callable[[], Identities]:
    def read() -> Identities:
        made = read_identities(settings.identities_file)
        for identity in made.known.values():
            password_of(identity)
        return made

    return read


def _opened(option: str, path: Path, read: Callable[[], _T]) -> WatchedFile[_T]:
    try:
        return WatchedFile(path, read)
    except ConfigError as error:
        raise ConfigError(f"{option}: {error}") from error
