"""The first rule that matches a client, as more and more is known about it."""

from __future__ import annotations

from gateway.core.client_limits.rules import (
    UNDECIDED,
    Per,
    Rule,
    Who,
    first_match,
    rule_of_address,
)

ALICE = Rule(name="alice", principal="alice", connections=1)
BATCH = Rule(name="batch", client_id="batch-*", connections=2)
LAN = Rule(name="lan", address="10.0.*", connections=3)
EACH = Rule(name="each", per=Per.PRINCIPAL, connections=4)


def test_the_first_match_wins() -> None:
    who = Who(address="10.0.0.1", client_id="batch-1", principal="alice")
    assert first_match((BATCH, ALICE, LAN), who) is BATCH
    assert first_match((LAN, BATCH), who) is LAN
    assert first_match((ALICE,), Who(address="::1", client_id="", principal="bob")) is None


def test_nothing_is_decided_before_a_rule_that_may_match() -> None:
    connected = Who(address="10.0.0.1")
    asked = Who(address="10.0.0.1", client_id="web")
    named = Who(address="10.0.0.1", client_id="web", principal="bob")
    rules = (BATCH, ALICE, LAN)
    assert first_match(rules, connected) is UNDECIDED
    assert first_match(rules, asked) is UNDECIDED
    assert first_match(rules, named) is LAN
    assert first_match((LAN, ALICE), connected) is LAN, "nothing stands in front of it"


def test_an_account_for_each_principal_waits_for_the_name() -> None:
    assert first_match((EACH,), Who(address="10.0.0.1", client_id="web")) is UNDECIDED
    assert first_match((EACH,), Who(address="a", client_id="web", principal="bob")) is EACH


def test_the_rule_that_an_address_is_sure_of() -> None:
    rest = Rule(name="rest", per=Per.ADDRESS, connections=5)
    assert rule_of_address((BATCH, ALICE, EACH, LAN, rest), "10.0.0.1") is LAN
    assert rule_of_address((BATCH, ALICE, EACH, LAN, rest), "::1") is rest
    assert rule_of_address((BATCH, ALICE, EACH), "::1") is None
