"""What the claims of a token (RFC 7519) say, once its signature is known to be good."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


class BadToken(ValueError):
    """Why a token is refused; for the log. Neither the token nor a claim's value is in it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenRules:
    issuer: str
    audiences: tuple[str, ...]  # the token has to be for one of them
    principal_claim: str = "sub"
    skew_s: float = 30.0  # between the clocks


@dataclass(frozen=True, slots=True)
class Bearer:
    principal: str
    expires_s: float  # seconds since the epoch


def judged(claims: Mapping[str, Any], rules: TokenRules, now_s: float) -> Bearer:
    """`now_s`: seconds since the epoch. Raises BadToken."""
    if claims.get("iss") != rules.issuer:
        raise BadToken("another issuer")
    audience = claims.get("aud")
    audiences = audience if isinstance(audience, list) else [audience]
    if not any(name in rules.audiences for name in audiences if isinstance(name, str)):
        raise BadToken("for another audience")
    expires_s = _time(claims, "exp")
    if expires_s is None:
        raise BadToken("without an expiry")
    if now_s >= expires_s + rules.skew_s:
        raise BadToken("expired")
    for claim in ("nbf", "iat"):
        begins_s = _time(claims, claim)
        if begins_s is not None and now_s < begins_s - rules.skew_s:
            raise BadToken(f"not valid yet ({claim})")
    principal = claims.get(rules.principal_claim)
    if not isinstance(principal, str) or not principal:
        raise BadToken(f"without the claim {rules.principal_claim!r}")
    return Bearer(principal, expires_s)


def _time(claims: Mapping[str, Any], name: str) -> float | None:
    value = claims.get(name)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) < 1e12:
        raise BadToken(f"{name} is no time")
    return float(value)
