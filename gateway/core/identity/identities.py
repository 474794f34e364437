"""Rules from principals to identities, and the secrets of these at upstream."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum

from gateway.core.identity.mapping import Rule, identity_of


class Secret(Enum):
    """Where a password is."""

    HERE = "password"
    ENVIRONMENT = "password_env"
    FILE = "password_file"


@dataclass(frozen=True, slots=True)
class Identity:
    name: str  # by which rules name it
    mechanism: str
    username: str
    kind: Secret
    secret: str = field(repr=False)  # the password, or the name of its place


@dataclass(frozen=True, slots=True)
class Identities:
    rules: tuple[Rule, ...]
    known: Mapping[str, Identity]

    def of(self, principal: str) -> Identity | None:
        """None: its client is refused."""
        name = identity_of(principal, self.rules)
        return None if name is None else self.known.get(name)
