"""Rules for clients, and the first that matches one.

A client is known bit by bit: its address when it connects, its client id with its first request,
its principal once it has authenticated. A rule that needs what is not known yet may still match, so
nothing behind that rule is decided before.
"""

from __future__ import annotations

import fnmatch
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

ANONYMOUS: Final = "ANONYMOUS"  # Kafka's name for a client that has not authenticated


class Per(StrEnum):
    """Who shares the limits of a rule."""

    RULE = "rule"
    PRINCIPAL = "principal"
    CLIENT_ID = "client_id"
    ADDRESS = "address"


@dataclass(frozen=True, slots=True, kw_only=True)
class Who:
    """A client; None: not known yet."""

    address: str
    client_id: str | None = None
    principal: str | None = None

    def part(self, per: Per) -> str | None:
        match per:
            case Per.RULE:
                return ""
            case Per.PRINCIPAL:
                return self.principal
            case Per.CLIENT_ID:
                return self.client_id
            case Per.ADDRESS:
                return self.address


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """Globs that a client has to match, and its limits; None: no limit."""

    name: str
    principal: str = "*"
    client_id: str = "*"
    address: str = "*"
    per: Per = Per.RULE
    connections: int | None = None
    requests_per_s: int | None = None
    bytes_in_per_s: int | None = None
    bytes_out_per_s: int | None = None
    share_sessions: int | None = None
    burst_s: int = 1

    def matches(self, who: Who) -> bool | None:
        """None: it depends on what is not known yet."""
        verdicts = (
            _matches(who.address, self.address),
            _matches(who.client_id, self.client_id),
            _matches(who.principal, self.principal),
        )
        if False in verdicts:
            return False
        return None if None in verdicts or who.part(self.per) is None else True


class Undecided:
    """No rule is chosen yet: more has to be known about the client."""


UNDECIDED: Final = Undecided()


def first_match(rules: Sequence[Rule], who: Who) -> Rule | Undecided | None:
    for rule in rules:
        verdict = rule.matches(who)
        if verdict is None:
            return UNDECIDED
        if verdict:
            return rule
    return None


def rule_of_address(rules: Sequence[Rule], address: str) -> Rule | None:
    """The first rule that a client with this address is sure to match, whoever it is."""
    who = Who(address=address)
    return next((rule for rule in rules if rule.matches(who)), None)


def _matches(known: str | None, glob: str) -> bool | None:
    if glob == "*":
        return True
    return None if known is None else fnmatch.fnmatchcase(known, glob)
