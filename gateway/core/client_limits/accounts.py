"""The accounts of all clients that a rule limits."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice

from gateway.core.client_limits.account import Account
from gateway.core.client_limits.bucket import Bucket
from gateway.core.client_limits.rules import (
    Per,
    Rule,
    Undecided,
    Who,
    first_match,
    rule_of_address,
)
from gateway.core.limits import LIMIT_ACCOUNTS_MAX

_Key = tuple[str, str]  # the rule's name; the principal, client id or address, or empty


class Accounts:
    def __init__(self, rules: Sequence[Rule] = ()) -> None:
        self.rules = {rule.name: rule for rule in rules}
        self.totals: dict[str, Account] = {}  # by rule: the figures of accounts that are given up
        self._accounts: dict[_Key, Account] = {}

    def __len__(self) -> int:
        return len(self._accounts)

    def find(self, who: Who, now_ns: int) -> Account | Undecided | None:
        """None: no rule limits this client."""
        rule = first_match(tuple(self.rules.values()), who)
        if rule is None or isinstance(rule, Undecided):
            return rule
        return self._account(rule, who, now_ns)

    def of_address(self, who: Who, now_ns: int) -> Account | None:
        """The account for which its address is enough; it may get another one later."""
        rule = rule_of_address(tuple(self.rules.values()), who.address)
        return None if rule is None else self._account(rule, who, now_ns)

    def _account(self, rule: Rule, who: Who, now_ns: int) -> Account:
        part = who.part(rule.per)
        assert part is not None, rule
        key = rule.name, part
        account = self._accounts.get(key)
        if account is None:
            self._make_room(now_ns)
            account = self._accounts[key] = Account(*key, *_buckets(rule))
        return account

    def replace(self, rules: Sequence[Rule]) -> None:
        """Other rules. Accounts of rules that have kept their name go on, with their debts; the
        caller looks for the account of each connection again.
        """
        self.rules = {rule.name: rule for rule in rules}
        kept = {}
        for key, account in self._accounts.items():
            rule = self.rules.get(account.rule)
            if rule is not None and (rule.per is Per.RULE) == (account.who == ""):
                account.limit_again(*_buckets(rule))
                kept[key] = account
        self._accounts = kept
        self.totals = {name: total for name, total in self.totals.items() if name in self.rules}

    def rule(self, account: Account) -> Rule:
        return self.rules[account.rule]

    def all(self) -> list[Account]:
        """Sorted by rule, in the order of the rules, and within one by whom it is for."""
        order = {name: at for at, name in enumerate(self.rules)}
        return sorted(
            self._accounts.values(), key=lambda account: (order[account.rule], account.who)
        )

    def _make_room(self, now_ns: int) -> None:
        """Gives up accounts without a connection: first those that owe nothing."""
        if len(self._accounts) < LIMIT_ACCOUNTS_MAX:
            return
        idle = [key for key, held in self._accounts.items() if not held.connections]
        free = [key for key in idle if not self._accounts[key].debt_ms(now_ns)]
        for key in free or list(islice(idle, max(1, len(idle) // 2))):
            account = self._accounts.pop(key)
            total = self.totals.setdefault(
                account.rule, Account(account.rule, "", None, None, None)
            )
            total.add(account)


def _buckets(rule: Rule) -> tuple[Bucket | None, Bucket | None, Bucket | None]:
    requests, bytes_in, bytes_out = (
        None if rate is None else Bucket(rate, rule.burst_s)
        for rate in (rule.requests_per_s, rule.bytes_in_per_s, rule.bytes_out_per_s)
    )
    return requests, bytes_in, bytes_out
