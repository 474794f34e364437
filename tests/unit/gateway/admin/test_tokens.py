"""Tokens and the sessions of browsers; the limit of failed logins."""

from __future__ import annotations

import re

import pytest

from gateway.admin import failed_logins, limits, tokens
from gateway.admin.failed_logins import FailedLogins
from gateway.admin.tokens import Caller, LoginSessions, Tokens, new_token, sha256_of
from gateway.config.admin import Role
from tests.rig.rest_parts import token


class Clock:
    ms = 1_000_000

    def __call__(self) -> int:
        return self.ms


def found(known: Tokens, text: str) -> Caller | None:
    return known.caller(bytes.fromhex(sha256_of(text)))


def test_a_token_is_256_random_bits() -> None:
    made = {new_token() for _ in range(100)}
    assert len(made) == 100
    assert all(re.fullmatch(r"keyway_[A-Za-z0-9_-]{43}", text) for text in made)


def test_the_owner_of_a_token() -> None:
    known = Tokens([token("ann", Role.VIEWER), token("bob", Role.ADMIN, ["a*", "b?"])])
    ann, bob = found(known, "ann"), found(known, "bob")
    assert ann == Caller("ann", Role.VIEWER, ("*",), keys=False)
    assert bob == Caller("bob", Role.ADMIN, ("a*", "b?"), keys=True)
    assert found(known, "Ann") is found(known, "") is found(known, "\ud800") is None
    assert ann.sees("anything")
    assert [bob.sees(name) for name in ("a", "ab", "b1", "b", "b12", "xa", "A")] == [
        *(True, True, True, False, False, False, False),
    ]


def test_keys_go_to_those_who_may_see_them() -> None:
    assert [Tokens([token("t", role)])._tokens[0].caller.keys for role in Role] == [
        *(False, True, True),
    ]
    asked = [Tokens([token("t", Role.VIEWER, keys=keys)]) for keys in (True, False)]
    assert [made._tokens[0].caller.keys for made in asked] == [True, False]


def test_a_session_ends_with_its_time_its_token_and_at_logout() -> None:
    clock = Clock()
    known = Tokens([token("ann", Role.VIEWER), token("bob", Role.VIEWER)])
    sessions = LoginSessions(known, clock)
    first, second, third = (sessions.open("ann") for _ in range(3))
    assert len({first, second, third}) == 3
    assert sessions.caller(first) == found(known, "ann")
    assert sessions.token(first) == "ann"
    assert sessions.token("x") is None
    assert b"ann" not in {session.sealed for session in sessions._sessions.values()}
    assert sessions.caller("x") is sessions.caller("\ud800") is None
    sessions.close(first)
    sessions.close("unknown")
    assert sessions.caller(first) is None
    assert sessions.caller(second) is not None
    known.replace([token("bob", Role.VIEWER)])
    assert sessions.caller(second) is None, "its token is not configured any more"
    known.replace([token("ann", Role.OPERATOR)])
    assert sessions.caller(third) == Caller("ann", Role.OPERATOR, ("*",), keys=True)
    clock.ms += limits.SESSION_MS
    assert sessions.caller(third) is None


def test_the_oldest_of_too_many_sessions_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tokens, "LOGIN_SESSIONS_MAX", 3)
    sessions = LoginSessions(Tokens([token("ann", Role.VIEWER)]), Clock())
    cookies = [sessions.open("ann") for _ in range(5)]
    assert [sessions.caller(cookie) is not None for cookie in cookies] == [
        False,
        False,
        True,
        True,
        True,
    ]


def test_failed_logins_of_one_address() -> None:
    clock = Clock()
    failed = FailedLogins(clock)
    most = limits.FAILED_LOGINS_PER_ADDRESS_MAX
    assert [failed.note("a") for _ in range(most)] == [0] * most
    assert failed.note("a") == limits.FAILED_LOGINS_MS // 1_000
    assert failed.note("b") == 0, "another address"
    clock.ms += limits.FAILED_LOGINS_MS - 1_500
    assert failed.note("a") == 2, "rounded up"
    clock.ms += 1_500
    assert failed.note("a") == 0


def test_failed_logins_of_all_addresses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(failed_logins, "FAILED_ADDRESSES_MAX", 50)
    failed = FailedLogins(Clock())
    most = limits.FAILED_LOGINS_MAX
    waits = [failed.note(f"10.0.0.{at}") for at in range(most + 1)]
    assert waits[:most] == [0] * most
    assert waits[most] > 0
    assert len(failed._by_address) == 50
