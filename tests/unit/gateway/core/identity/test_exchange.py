"""Logins on one connection, step by step."""

from __future__ import annotations

import pytest

from gateway.core.cluster.scram import ScramClient
from gateway.core.identity.credentials import Users, of_password
from gateway.core.identity.exchange import (
    Challenge,
    CheckPassword,
    CheckToken,
    Denial,
    Denied,
    Exchange,
    Outcome,
    Proven,
    State,
)

KEY = b"k" * 32
USERS = Users({name: of_password(name, f"{name}-secret", KEY) for name in ("anna", "bert")}, KEY)
ALL = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")
SHA256 = "SCRAM-SHA-256"


def why(outcome: Outcome | None) -> Denial:
    assert isinstance(outcome, Denied)
    return outcome.why


def scram(it: Exchange, name: str, password: str, mechanism: str = SHA256) -> Outcome:
    assert it.handshake(mechanism) is None
    hash_name = "sha256" if mechanism == SHA256 else "sha512"
    client = ScramClient(hash_name, name, password, "client")
    challenge = it.token(client.first(), USERS, "server")
    assert isinstance(challenge, Challenge)
    return it.token(client.final(challenge.data)[0], USERS, "unused")


def plain(it: Exchange, name: str, password: str) -> Outcome:
    assert it.handshake("PLAIN") is None
    check = it.token(f"\0{name}\0{password}".encode(), USERS, "")
    assert isinstance(check, CheckPassword)
    assert password not in repr(check)
    return it.checked(name if check.right() else None)


@pytest.mark.parametrize("mechanism", [SHA256, "SCRAM-SHA-512"])
def test_scram(mechanism: str) -> None:
    proven = scram(Exchange(ALL), "anna", "anna-secret", mechanism)
    assert isinstance(proven, Proven)
    assert proven.principal == "anna"
    assert proven.answer.startswith(b"v=")
    assert why(scram(Exchange(ALL), "anna", "wrong", mechanism)) is Denial.CREDENTIALS
    assert why(scram(Exchange(ALL), "nobody", "wrong", mechanism)) is Denial.CREDENTIALS


def test_plain() -> None:
    proven = plain(Exchange(ALL), "anna", "anna-secret")
    assert isinstance(proven, Proven)
    assert (proven.principal, proven.answer) == ("anna", b"")
    assert why(plain(Exchange(ALL), "anna", "bert-secret")) is Denial.CREDENTIALS
    assert why(plain(Exchange(ALL), "nobody", "nobody-secret")) is Denial.CREDENTIALS


def test_a_bearer_token_is_for_others_to_judge() -> None:
    it = Exchange(ALL)
    assert it.handshake("OAUTHBEARER") is None
    check = it.token(b"n,,\x01auth=Bearer abc\x01\x01", USERS, "")
    assert check == CheckToken(None, "abc")
    assert "abc" not in repr(check)
    assert it.checked("anna") == Proven("anna", b"")
    assert it.handshake("OAUTHBEARER") is None
    it.token(b"n,,\x01auth=Bearer abc\x01\x01", USERS, "")
    assert why(it.checked(None)) is Denial.TOKEN


def test_a_mechanism_that_is_not_offered() -> None:
    it = Exchange(("PLAIN",))
    assert why(it.handshake(SHA256)) is Denial.MECHANISM
    assert why(it.handshake("GSSAPI")) is Denial.MECHANISM
    assert why(it.token(b"\0anna\0anna-secret", USERS, "")) is Denial.OUT_OF_ORDER


def test_steps_out_of_order() -> None:
    it = Exchange(ALL)
    assert why(it.token(b"\0anna\0anna-secret", USERS, "")) is Denial.OUT_OF_ORDER
    assert it.handshake(SHA256) is None
    assert why(it.handshake(SHA256)) is Denial.OUT_OF_ORDER, "not in the middle"
    assert it.state is State.RESTING
    plain(it, "anna", "anna-secret")
    assert why(it.token(b"\0anna\0anna-secret", USERS, "")) is Denial.OUT_OF_ORDER, "it is over"


def test_a_malformed_message_ends_it() -> None:
    it = Exchange(ALL)
    assert it.handshake("PLAIN") is None
    assert why(it.token(b"anna", USERS, "")) is Denial.MALFORMED
    assert it.state is State.RESTING


def test_a_replayed_last_message() -> None:
    it = Exchange(ALL)
    client = ScramClient("sha256", "anna", "anna-secret", "client")
    assert it.handshake(SHA256) is None
    challenge = it.token(client.first(), USERS, "server-1")
    assert isinstance(challenge, Challenge)
    final = client.final(challenge.data)[0]
    assert isinstance(it.token(final, USERS, ""), Proven)
    assert why(it.token(final, USERS, "")) is Denial.OUT_OF_ORDER
    other = Exchange(ALL)
    assert other.handshake(SHA256) is None
    other.token(client.first(), USERS, "server-2")
    assert why(other.token(final, USERS, "")) is Denial.MALFORMED


def test_a_later_login_keeps_principal_and_mechanism() -> None:
    it = Exchange(ALL)
    assert isinstance(scram(it, "anna", "anna-secret"), Proven)
    assert isinstance(scram(it, "anna", "anna-secret"), Proven)
    assert why(it.handshake("PLAIN")) is Denial.OTHER_MECHANISM
    assert why(scram(it, "bert", "bert-secret")) is Denial.OTHER_PRINCIPAL
    assert why(scram(it, "bert", "wrong")) is Denial.CREDENTIALS


def test_a_failed_login_is_of_no_use_to_the_next_one() -> None:
    it = Exchange(ALL)
    assert why(scram(it, "anna", "wrong")) is Denial.CREDENTIALS
    proven = plain(it, "bert", "bert-secret")
    assert isinstance(proven, Proven)
    assert proven.principal == "bert", "nobody was logged in before"
