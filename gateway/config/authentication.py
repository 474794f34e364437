"""The option `authentication` of a listener: the gateway authenticates its clients itself."""

from __future__ import annotations

import ipaddress
from enum import StrEnum
from pathlib import Path
from typing import Annotated
from urllib.parse import urlsplit

from pydantic import Field, model_validator

from gateway.config.section import Section

_DAY_MS = 24 * 3600 * 1000


class Mechanism(StrEnum):
    """How clients show who they are."""

    CERTIFICATE = "CERTIFICATE"
    PLAIN = "PLAIN"
    SCRAM_SHA_256 = "SCRAM-SHA-256"
    SCRAM_SHA_512 = "SCRAM-SHA-512"
    OAUTHBEARER = "OAUTHBEARER"


class Algorithm(StrEnum):
    """The algorithm of a token's signature. None of them uses a shared secret: a public key would
    pass for one.
    """

    RS256 = "RS256"
    RS384 = "RS384"
    RS512 = "RS512"
    PS256 = "PS256"
    PS384 = "PS384"
    PS512 = "PS512"
    ES256 = "ES256"
    ES384 = "ES384"
    ES512 = "ES512"
    EDDSA = "EdDSA"


_WITH_USERS = (Mechanism.PLAIN, Mechanism.SCRAM_SHA_256, Mechanism.SCRAM_SHA_512)


class BearerSection(Section):
    """Tokens of OAUTHBEARER: JWTs, whose signature, issuer, audience and expiry are checked. Needs
    `pip install 'keyway-gateway[oauth]'`.
    """

    jwks_file: Path | None = None
    """The public keys of the issuer, a JSON Web Key Set. It is read again when it changes."""
    jwks_url: str | None = None
    """Where the issuer publishes them; https, or http on loopback. It is asked every five minutes,
    and for a key that is not known. Until it has answered once, tokens are refused.
    """
    issuer: Annotated[str, Field(min_length=1)]
    """The claim `iss` of good tokens."""
    audience: Annotated[tuple[Annotated[str, Field(min_length=1)], ...], Field(min_length=1)]
    """At least one value of the claim `aud` has to be here."""
    algorithms: Annotated[tuple[Algorithm, ...], Field(min_length=1)] = (
        Algorithm.RS256,
        Algorithm.ES256,
    )
    """The signatures that are accepted."""
    principal_claim: Annotated[str, Field(min_length=1)] = "sub"
    """The claim that is the principal."""
    clock_skew_ms: Annotated[int, Field(ge=0, le=300_000)] = 30_000
    """How far the clocks of issuer and gateway may differ."""

    @model_validator(mode="after")
    def _one_place(self) -> BearerSection:
        if (self.jwks_file is None) == (self.jwks_url is None):
            raise ValueError("either jwks_file or jwks_url is needed")
        if self.jwks_url is not None:
            url = urlsplit(self.jwks_url)
            if url.scheme != "https" and not (url.scheme == "http" and _loopback(url.hostname)):
                raise ValueError("jwks_url: https is needed: whoever changes the keys is everybody")
        return self


class AuthenticationSection(Section):
    """The gateway authenticates the clients of this listener, and gives each its identity at
    upstream (docs/identities.md). Needs `upstream.sasl`. Without this section the SASL exchange of
    a client passes through to upstream.
    """

    mechanisms: Annotated[tuple[Mechanism, ...], Field(min_length=1)]
    """`CERTIFICATE` alone: the subject of the client's certificate is its principal, and
    `tls.client_auth` has to be `required`. Or SASL mechanisms.
    """
    identities_file: Path
    """Rules from principals to identities, and their users and passwords at upstream. It is read
    again when it changes; clients whose identity is another one then, or none, are let go.
    """
    users_file: Path | None = None
    """Users and hashed passwords, for `PLAIN` and `SCRAM-SHA-*`: `keyway user` makes entries. It is
    read again when it changes; clients whose entry has changed or is gone are let go.
    """
    plain_passwords: bool = False
    """True: `users_file` may have plain passwords, too."""
    oauthbearer: BearerSection | None = None
    """Tokens, for `OAUTHBEARER`."""
    session_lifetime_ms: Annotated[int, Field(ge=0, le=_DAY_MS)] = 0
    """A client has to authenticate again within this time, as `connections.max.reauth.ms` of Kafka;
    its connection is closed otherwise. 0: it need not. A token or a certificate that expires ends a
    connection in any case.
    """
    failed_delay_ms: Annotated[int, Field(ge=0, le=60_000)] = 100
    """A failed login is answered after this time, as with
    `connection.failed.authentication.delay.ms` of Kafka.
    """

    @model_validator(mode="after")
    def _whole(self) -> AuthenticationSection:
        if len(set(self.mechanisms)) < len(self.mechanisms):
            raise ValueError("mechanisms: a mechanism is listed twice")
        if Mechanism.CERTIFICATE in self.mechanisms and len(self.mechanisms) > 1:
            raise ValueError("mechanisms: CERTIFICATE stands alone")
        users = any(mechanism in _WITH_USERS for mechanism in self.mechanisms)
        if users != (self.users_file is not None):
            raise ValueError("users_file is for PLAIN and SCRAM-SHA-*, and they need it")
        if (Mechanism.OAUTHBEARER in self.mechanisms) != (self.oauthbearer is not None):
            raise ValueError("the option oauthbearer is for OAUTHBEARER, which needs it")
        if Mechanism.CERTIFICATE in self.mechanisms and self.session_lifetime_ms:
            raise ValueError(
                "session_lifetime_ms is for SASL: a client shows its certificate only once"
            )
        return self


def _loopback(host: str | None) -> bool:
    try:
        return ipaddress.ip_address(host or "").is_loopback
    except ValueError:
        return host == "localhost"
