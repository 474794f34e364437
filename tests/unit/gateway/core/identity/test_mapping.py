"""Rules from principals to identities: the first that matches."""

from __future__ import annotations

import re

import pytest

from gateway.core.identity.limits import PRINCIPAL_CHARS_MAX
from gateway.core.identity.mapping import Rule, identity_of


def pattern(text: str, identity: str | None, case: str | None = None) -> Rule:
    return Rule(None, re.compile(text), identity, case)


RULES = (
    Rule("CN=stolen,OU=shop", None, None),
    Rule("CN=orders,OU=shop", None, "orders"),
    pattern(r"CN=([a-z0-9-]+),OU=fleet(,.*)?", "fleet-$1"),
    pattern(r"CN=(.*?),OU=(.*?)", "$2_$1", "lower"),
    pattern(r"(?:x|(y))z", "$1z"),
)


@pytest.mark.parametrize(
    ("principal", "identity"),
    [
        ("CN=stolen,OU=shop", None),
        ("CN=orders,OU=shop", "orders"),
        ("CN=orders,OU=shop,C=DE", "shop,c=de_orders"),
        ("CN=truck-7,OU=fleet,C=DE", "fleet-truck-7"),
        ("CN=truck-7,OU=fleet", "fleet-truck-7"),
        ("xCN=truck-7,OU=fleet", None),
        ("CN=Big,OU=Shop", "shop_big"),
        ("xz", "z"),
        ("yz", "yz"),
        ("CN=orders", None),
        ("cn=orders,ou=shop", None),
        ("", None),
    ],
)
def test_the_first_rule_that_matches(principal: str, identity: str | None) -> None:
    assert identity_of(principal, RULES) == identity


def test_a_principal_beyond_the_bound_has_none() -> None:
    rules = (pattern(".*", "all"),)
    assert identity_of("x" * PRINCIPAL_CHARS_MAX, rules) == "all"
    assert identity_of("x" * (PRINCIPAL_CHARS_MAX + 1), rules) is None


def test_an_escaped_comma_is_no_further_attribute() -> None:
    rules = (pattern(r"CN=([^,\\]+),OU=shop", "$1"),)
    assert identity_of(r"CN=x\,OU=shop,OU=guests", rules) is None
    assert identity_of(r"CN=x\,OU=shop", rules) is None
