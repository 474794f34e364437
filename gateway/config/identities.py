"""The two files beside keyway.yaml that a listener with `authentication` reads: the users that log
in, and the identities that they have at upstream. Both are read again when they change.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, SecretStr, ValidationError, model_validator

from gateway.config.section import Section
from gateway.core.identity.credentials import (
    BadCredentials,
    ScramCredential,
    Users,
    credential_of,
    of_password,
)
from gateway.core.identity.identities import Identities, Identity, Secret
from gateway.core.identity.limits import IDENTITIES_MAX, RULES_MAX, USERS_MAX
from gateway.core.identity.mapping import GROUP, Rule
from keyway.clusters.yaml_file import ConfigError, first_fault, read_mapping

_KEY_BYTES_MIN = 16
Text = Annotated[str, Field(min_length=1)]


class RuleSection(Section):
    """From principals to an identity."""

    principal: Text | None = None
    pattern: Text | None = None
    identity: Text | None = None
    case: Literal["lower", "upper"] | None = None
    refuse: bool = False

    @model_validator(mode="after")
    def _whole(self) -> RuleSection:
        if (self.principal is None) == (self.pattern is None):
            raise ValueError("either principal or pattern is needed")
        if self.refuse == (self.identity is not None):
            raise ValueError("either identity or refuse: true is needed")
        if self.case is not None and self.pattern is None:
            raise ValueError("case needs a pattern")
        try:
            groups = re.compile(self.pattern or "").groups
        except re.error as error:
            raise ValueError(f"pattern: {error}") from error
        if self.pattern is not None:
            for group in GROUP.findall(self.identity or ""):
                if int(group) > groups:
                    raise ValueError(f"identity: the pattern has no group {group}")
        return self

    @property
    def fixed(self) -> str | None:
        """The identity, if it is the same for all who match."""
        varies = self.pattern is not None and (self.case or "$" in (self.identity or ""))
        return None if varies else self.identity

    def rule(self) -> Rule:
        pattern = None if self.pattern is None else re.compile(self.pattern)
        return Rule(self.principal, pattern, self.identity, self.case)


class IdentitySection(Section):
    """A user of upstream."""

    mechanism: Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"] = "SCRAM-SHA-512"
    username: Text | None = None
    password: Annotated[SecretStr, Field(min_length=1)] | None = None
    password_env: Text | None = None
    password_file: Text | None = None

    @model_validator(mode="after")
    def _one_password(self) -> IdentitySection:
        given = [kind for kind in Secret if getattr(self, kind.value) is not None]
        if len(given) != 1:
            raise ValueError("one of password, password_env, password_file is needed")
        return self

    def identity(self, name: str) -> Identity:
        kind = next(kind for kind in Secret if getattr(self, kind.value) is not None)
        secret = getattr(self, kind.value)
        text = secret.get_secret_value() if isinstance(secret, SecretStr) else str(secret)
        return Identity(name, self.mechanism, self.username or name, kind, text)


class IdentitiesFile(Section):
    rules: Annotated[tuple[RuleSection, ...], Field(min_length=1, max_length=RULES_MAX)]
    identities: Annotated[
        dict[str, IdentitySection], Field(min_length=1, max_length=IDENTITIES_MAX)
    ]

    @model_validator(mode="after")
    def _known(self) -> IdentitiesFile:
        for at, rule in enumerate(self.rules):
            if rule.fixed is not None and rule.fixed not in self.identities:
                raise ValueError(f"rules.{at}: there is no identity {rule.fixed!r}")
        return self


class UserSection(BaseModel):
    """A client's secrets, by mechanism; or its password."""

    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=False)

    scram_sha_256: SecretStr | None = Field(default=None, alias="SCRAM-SHA-256")
    scram_sha_512: SecretStr | None = Field(default=None, alias="SCRAM-SHA-512")
    password: Annotated[SecretStr, Field(min_length=1)] | None = None

    @model_validator(mode="after")
    def _something(self) -> UserSection:
        hashed = self.hashed()
        if (self.password is None) == (not hashed):
            raise ValueError("either SCRAM-SHA-256 and SCRAM-SHA-512, or a password, is needed")
        for mechanism, secret in hashed.items():
            try:
                credential_of(mechanism, secret.get_secret_value())
            except BadCredentials as bad:
                raise ValueError(str(bad)) from bad
        return self

    def hashed(self) -> Mapping[str, SecretStr]:
        both = {"SCRAM-SHA-256": self.scram_sha_256, "SCRAM-SHA-512": self.scram_sha_512}
        return {mechanism: secret for mechanism, secret in both.items() if secret is not None}

    def credentials(self, name: str, key: bytes) -> Mapping[str, ScramCredential]:
        if self.password is not None:
            return of_password(name, self.password.get_secret_value(), key)
        return {
            mechanism: credential_of(mechanism, secret.get_secret_value())
            for mechanism, secret in self.hashed().items()
        }


class UsersFile(Section):
    key: Annotated[SecretStr, Field(min_length=_KEY_BYTES_MIN)] | None = None
    users: Annotated[dict[Text, UserSection], Field(max_length=USERS_MAX)]


def read_identities(path: Path) -> Identities:
    """Raises ConfigError."""
    raw = read_mapping(path)
    try:
        made = IdentitiesFile.model_validate(raw)
    except ValidationError as error:
        raise ConfigError(f"{path}: {first_fault(error)}") from error
    rules = tuple(rule.rule() for rule in made.rules)
    return Identities(
        rules, {name: identity.identity(name) for name, identity in made.identities.items()}
    )


def read_users(path: Path, key: bytes, *, passwords: bool) -> Users:
    """`key`: for a file without one of its own; `passwords`: plain ones may be in it. Raises
    ConfigError.
    """
    raw = read_mapping(path)
    try:
        made = UsersFile.model_validate(raw)
    except ValidationError as error:
        raise ConfigError(f"{path}: {first_fault(error)}") from error
    if not passwords:
        plain = next((name for name, user in made.users.items() if user.password is not None), None)
        if plain is not None:
            raise ConfigError(
                f"{path}: users.{plain}: a plain password needs plain_passwords: true in"
                " keyway.yaml"
            )
    if made.key is not None:
        key = made.key.get_secret_value().encode()
    return Users({name: user.credentials(name, key) for name, user in made.users.items()}, key)
