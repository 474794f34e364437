"""Accounts: who shares one, what survives other rules, and room for others."""

from __future__ import annotations

import pytest

from gateway.core.client_limits import accounts as module
from gateway.core.client_limits.account import Account
from gateway.core.client_limits.accounts import Accounts
from gateway.core.client_limits.rules import Per, Rule, Who

PRODUCE, FETCH, HEARTBEAT, API_VERSIONS = 0, 1, 12, 18
S_NS = 1_000_000_000
NOW_NS = 100 * S_NS


def who(principal: str, address: str = "10.0.0.1") -> Who:
    return Who(address=address, client_id="web", principal=principal)


def account_of(accounts: Accounts, principal: str) -> Account:
    found = accounts.find(who(principal), NOW_NS)
    assert isinstance(found, Account)
    return found


def test_an_account_for_each_principal_or_one_for_all() -> None:
    each = Accounts([Rule(name="each", per=Per.PRINCIPAL, requests_per_s=1)])
    assert account_of(each, "alice") is account_of(each, "alice")
    assert account_of(each, "alice") is not account_of(each, "bob")
    together = Accounts([Rule(name="all", requests_per_s=1)])
    assert account_of(together, "alice") is account_of(together, "bob")


def test_other_rules_keep_the_debts_of_an_account() -> None:
    accounts = Accounts([Rule(name="all", bytes_in_per_s=1_000)])
    before = account_of(accounts, "alice")
    before.asked(PRODUCE, 5_000, NOW_NS)
    accounts.replace([Rule(name="all", bytes_in_per_s=10_000)])
    assert account_of(accounts, "alice") is before
    assert before.wait_ns(PRODUCE, NOW_NS) == 4 * S_NS, "one second's worth was free"
    accounts.replace([Rule(name="all", connections=3)])
    assert before.wait_ns(PRODUCE, NOW_NS) == 0
    accounts.replace([Rule(name="other", connections=3)])
    assert account_of(accounts, "alice") is not before


def test_bytes_hold_back_records_and_not_memberships() -> None:
    account = account_of(Accounts([Rule(name="all", bytes_out_per_s=1_000)]), "alice")
    assert account.answered(FETCH, 3_000, NOW_NS) == 2_000
    assert account.wait_ns(FETCH, NOW_NS) == 2 * S_NS
    assert account.wait_ns(HEARTBEAT, NOW_NS) == 0
    assert account.answered(HEARTBEAT, 1_000, NOW_NS) == 0
    assert account.wait_ns(FETCH, NOW_NS) == 3 * S_NS, "its bytes count all the same"
    slow = account_of(Accounts([Rule(name="all", requests_per_s=1)]), "alice")
    for api_key in (HEARTBEAT, HEARTBEAT, API_VERSIONS):
        slow.asked(api_key, 10, NOW_NS)
    assert slow.wait_ns(HEARTBEAT, NOW_NS) == S_NS
    assert slow.wait_ns(API_VERSIONS, NOW_NS) == 0


def test_idle_accounts_make_room_and_their_figures_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LIMIT_ACCOUNTS_MAX", 3)
    accounts = Accounts([Rule(name="each", per=Per.PRINCIPAL, requests_per_s=1)])
    busy, owing, idle = (account_of(accounts, name) for name in ("busy", "owing", "idle"))
    busy.connections.add(1)
    for _ in range(5):
        owing.asked(PRODUCE, 10, NOW_NS)
    idle.asked(PRODUCE, 10, NOW_NS)
    account_of(accounts, "more")
    assert [account.who for account in accounts.all()] == ["busy", "more", "owing"]
    assert accounts.totals["each"].requests == 1
