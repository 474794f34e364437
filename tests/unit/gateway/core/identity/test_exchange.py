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


def scram(exchange: Exchange, name: str, password: str, mechanism: str = SHA256) -> Outcome:
    assert exchange.handshake(mechanism) is None
    hash_name = "sha256" if mechanism == SHA256 else "sha512"
    client = ScramClient(hash_name, name, password, "client")
    challenge = exchange.token(client.first(), USERS, "server")
    assert isinstance(challenge, Challenge)
    final, _ = client.final(challenge.data, client.source(challenge.data).keys())
    return exchange.token(final, USERS, "unused")


def plain(exchange: Exchange, name: str, password: str) -> Outcome:
    assert exchange.handshake("PLAIN") is None
    check = exchange.token(f"\0{name}\0{password}".encode(), USERS, "")
    assert isinstance(check, CheckPassword)
    assert password not in repr(check)
    return exchange.checked(name if check.right() else None)


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
    exchange = Exchange(ALL)
    assert exchange.handshake("OAUTHBEARER") is None
    check = exchange.token(b"n,,\x01auth=Bearer abc\x01\x01", USERS, "")
    assert check == CheckToken(None, "abc")
    assert "abc" not in repr(check)
    assert exchange.checked("anna") == Proven("anna", b"")
    assert exchange.handshake("OAUTHBEARER") is None
    exchange.token(b"n,,\x01auth=Bearer abc\x01\x01", USERS, "")
    assert why(exchange.checked(None)) is Denial.TOKEN


def test_a_mechanism_that_is_not_offered() -> None:
    exchange = Exchange(("PLAIN",))
    assert why(exchange.handshake(SHA256)) is Denial.MECHANISM
    assert why(exchange.handshake("GSSAPI")) is Denial.MECHANISM
    assert why(exchange.token(b"\0anna\0anna-secret", USERS, "")) is Denial.OUT_OF_ORDER


def test_steps_out_of_order() -> None:
    exchange = Exchange(ALL)
    assert why(exchange.token(b"\0anna\0anna-secret", USERS, "")) is Denial.OUT_OF_ORDER
    assert exchange.handshake(SHA256) is None
    assert why(exchange.handshake(SHA256)) is Denial.OUT_OF_ORDER, "not in the middle"
    assert exchange.state is State.RESTING
    plain(exchange, "anna", "anna-secret")
    assert why(exchange.token(b"\0anna\0anna-secret", USERS, "")) is Denial.OUT_OF_ORDER, (
        "it is over"
    )


def test_a_malformed_message_ends_it() -> None:
    exchange = Exchange(ALL)
    assert exchange.handshake("PLAIN") is None
    assert why(exchange.token(b"anna", USERS, "")) is Denial.MALFORMED
    assert exchange.state is State.RESTING


def test_a_replayed_last_message() -> None:
    exchange = Exchange(ALL)
    client = ScramClient("sha256", "anna", "anna-secret", "client")
    assert exchange.handshake(SHA256) is None
    challenge = exchange.token(client.first(), USERS, "server-1")
    assert isinstance(challenge, Challenge)
    final, _ = client.final(challenge.data, client.source(challenge.data).keys())
    assert isinstance(exchange.token(final, USERS, ""), Proven)
    assert why(exchange.token(final, USERS, "")) is Denial.OUT_OF_ORDER
    other = Exchange(ALL)
    assert other.handshake(SHA256) is None
    other.token(client.first(), USERS, "server-2")
    assert why(other.token(final, USERS, "")) is Denial.MALFORMED


def test_a_later_login_keeps_principal_and_mechanism() -> None:
    exchange = Exchange(ALL)
    assert isinstance(scram(exchange, "anna", "anna-secret"), Proven)
    assert isinstance(scram(exchange, "anna", "anna-secret"), Proven)
    assert why(exchange.handshake("PLAIN")) is Denial.OTHER_MECHANISM
    assert why(scram(exchange, "bert", "bert-secret")) is Denial.OTHER_PRINCIPAL
    assert why(scram(exchange, "bert", "wrong")) is Denial.CREDENTIALS


def test_a_failed_login_is_of_no_use_to_the_next_one() -> None:
    exchange = Exchange(ALL)
    assert why(scram(exchange, "anna", "wrong")) is Denial.CREDENTIALS
    proven = plain(exchange, "bert", "bert-secret")
    assert isinstance(proven, Proven)
    assert proven.principal == "bert", "nobody was logged in before"
