"""The option `authentication` of a listener: what goes together, and what does not."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from gateway.config.authentication import AuthenticationSection
from gateway.config.file import Config

IDENTITIES = {"identities_file": "i.yaml"}
USERS = {**IDENTITIES, "users_file": "u.yaml"}
TOKENS = {"jwks_url": "https://x/jwks", "issuer": "https://x", "audience": ["keyway"]}


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({**IDENTITIES, "mechanisms": []}, "at least 1"),
        ({**IDENTITIES, "mechanisms": ["GSSAPI"]}, "OAUTHBEARER"),
        ({**USERS, "mechanisms": ["PLAIN", "PLAIN"]}, "twice"),
        ({**USERS, "mechanisms": ["CERTIFICATE", "PLAIN"]}, "stands alone"),
        ({**IDENTITIES, "mechanisms": ["PLAIN"]}, "users_file"),
        ({**USERS, "mechanisms": ["CERTIFICATE"]}, "users_file"),
        ({**IDENTITIES, "mechanisms": ["OAUTHBEARER"]}, "oauthbearer"),
        ({**USERS, "mechanisms": ["PLAIN"], "oauthbearer": TOKENS}, "oauthbearer"),
        (
            {**IDENTITIES, "mechanisms": ["CERTIFICATE"], "session_lifetime_ms": 1},
            "session_lifetime_ms",
        ),
        (
            {
                **IDENTITIES,
                "mechanisms": ["OAUTHBEARER"],
                "oauthbearer": {**TOKENS, "jwks_url": "http://issuer.example/jwks"},
            },
            "https",
        ),
        (
            {
                **IDENTITIES,
                "mechanisms": ["OAUTHBEARER"],
                "oauthbearer": {**TOKENS, "jwks_file": "keys"},
            },
            "either jwks_file or jwks_url",
        ),
        (
            {
                **IDENTITIES,
                "mechanisms": ["OAUTHBEARER"],
                "oauthbearer": {**TOKENS, "algorithms": ["HS256"]},
            },
            "RS256",
        ),
        (
            {
                **IDENTITIES,
                "mechanisms": ["OAUTHBEARER"],
                "oauthbearer": {**TOKENS, "algorithms": ["none"]},
            },
            "RS256",
        ),
    ],
)
def test_what_does_not_go_together(options: dict[str, Any], reason: str) -> None:
    with pytest.raises(ValidationError, match=reason):
        AuthenticationSection.model_validate(options)


def test_a_certificate_has_to_be_asked_for() -> None:
    login = {**IDENTITIES, "mechanisms": ["CERTIFICATE"]}
    upstream = {"sasl": {"username": "keyway", "password": "x"}}
    tls = {"cert_file": "c.pem", "client_ca_file": "ca.pem", "client_auth": "required"}
    for given in (None, {"cert_file": "c.pem"}, {**tls, "client_auth": "requested"}):
        listen = {"authentication": login, **({} if given is None else {"tls": given})}
        with pytest.raises(ValidationError, match="client_auth: required"):
            Config.model_validate({"upstream": upstream, "listen": listen})
    Config.model_validate({"upstream": upstream, "listen": {"authentication": login, "tls": tls}})


def test_an_identity_needs_an_upstream_that_knows_users() -> None:
    listen = [{"name": "a", "authentication": {**USERS, "mechanisms": ["PLAIN"]}}]
    with pytest.raises(ValidationError, match=r"upstream\.sasl"):
        Config.model_validate({"listen": listen})
