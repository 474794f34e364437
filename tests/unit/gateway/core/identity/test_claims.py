"""Claims of a token whose signature is good."""

from __future__ import annotations

from typing import Any

import pytest

from gateway.core.identity.claims import BadToken, Bearer, TokenRules, judged

RULES = TokenRules(issuer="https://issuer", audiences=("kafka", "keyway"), skew_s=30)
NOW_S = 1_000_000.0
GOOD: dict[str, Any] = {
    "iss": "https://issuer",
    "aud": "kafka",
    "sub": "anna",
    "exp": NOW_S + 60,
    "iat": NOW_S - 5,
}


def test_good_ones() -> None:
    assert judged(GOOD, RULES, NOW_S) == Bearer("anna", NOW_S + 60)
    assert judged({**GOOD, "aud": ["x", "keyway"]}, RULES, NOW_S).principal == "anna"
    assert judged({**GOOD, "exp": NOW_S - 29}, RULES, NOW_S).principal == "anna", "clocks differ"
    assert judged({**GOOD, "nbf": NOW_S + 29}, RULES, NOW_S).principal == "anna"
    named = TokenRules(issuer="https://issuer", audiences=("kafka",), principal_claim="client")
    assert judged({**GOOD, "client": "shop"}, named, NOW_S).principal == "shop"


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"iss": "https://other"}, "issuer"),
        ({"iss": None}, "issuer"),
        ({"aud": "other"}, "audience"),
        ({"aud": ["other"]}, "audience"),
        ({"aud": [["kafka"]]}, "audience"),
        ({"aud": None}, "audience"),
        ({"aud": "kaf"}, "audience"),
        ({"exp": None}, "without an expiry"),
        ({"exp": NOW_S - 31}, "expired"),
        ({"exp": NOW_S - 30}, "expired"),
        ({"exp": "never"}, "no time"),
        ({"exp": True}, "no time"),
        ({"exp": float("nan")}, "no time"),
        ({"exp": 1e300}, "no time"),
        ({"nbf": NOW_S + 31}, "not valid yet"),
        ({"iat": NOW_S + 31}, "not valid yet"),
        ({"sub": None}, "without the claim"),
        ({"sub": ""}, "without the claim"),
        ({"sub": ["anna"]}, "without the claim"),
    ],
)
def test_bad_ones(change: dict[str, Any], reason: str) -> None:
    with pytest.raises(BadToken, match=reason):
        judged({**GOOD, **change}, RULES, NOW_S)
