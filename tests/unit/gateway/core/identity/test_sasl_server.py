"""The server's side of SCRAM against the example of RFC 7677, our own client, and liars."""

from __future__ import annotations

import base64
import time
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.core.cluster.scram import ScramClient, check_server_final
from gateway.core.identity.credentials import derived
from gateway.core.identity.limits import BEARER_PAIRS_MAX
from gateway.core.identity.sasl_server import (
    BadMessage,
    ScramServer,
    bearer_login,
    plain_login,
    scram_first,
)

# RFC 7677, section 3: user "user", password "pencil".
FIRST = b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO"
SALT = base64.b64decode("W22ZaJ0SNY7soEsUEjb6gQ==")
NONCE = "%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"
CHALLENGE = (
    b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
)
FINAL = (
    b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,"
    b"p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
)
SERVER_FINAL = b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="


def server(password: bytes = b"pencil", nonce: str = NONCE) -> ScramServer:
    return ScramServer(scram_first(FIRST), derived("sha256", password, SALT, 4096), nonce)


def test_the_example_of_rfc_7677() -> None:
    assert server().challenge() == CHALLENGE
    assert server().final(FINAL) == SERVER_FINAL


def test_a_wrong_password_and_a_changed_proof_are_refused() -> None:
    assert server(password=b"pen").final(FINAL) is None
    changed = FINAL.replace(b"p=dHz", b"p=dHy")
    assert server().final(changed) is None
    assert server().final(FINAL[:-44] + b"AAAA") is None, "a proof that is too short"


def test_the_last_message_of_another_exchange_is_worth_nothing() -> None:
    with pytest.raises(BadMessage, match="another exchange"):
        server(nonce="another").final(FINAL)


@pytest.mark.parametrize(
    ("message", "reason"),
    [
        (b"y,,n=user,r=abc", "channel binding"),
        (b"p=tls-unique,,n=user,r=abc", "channel binding"),
        (b"n,,n=,r=abc", "malformed"),
        (b"n,,n=us=er,r=abc", "malformed"),
        (b"n,,n=user", "malformed"),
        (b"n,,n=user,r=", "malformed"),
        (b"n,,n=user,r=a b", "malformed"),
        (b"n,,m=ext,n=user,r=abc", "malformed"),
        (b"n,a=admin,n=user,r=abc", "authorization id"),
        (b"n,,n=token,r=abc,tokenauth=true", "delegation"),
        (b"\xff", "UTF-8"),
        (b"n,,n=user,r=" + b"a" * 5_000, "5012 bytes"),
        (b"", "malformed"),
    ],
)
def test_a_first_message_that_is_none(message: bytes, reason: str) -> None:
    with pytest.raises(BadMessage, match=reason):
        scram_first(message)


@pytest.mark.parametrize(
    ("message", "reason"),
    [
        (FINAL.replace(b"c=biws", b"c=eSws"), "binding"),
        (b"r=abc,p=abc", "malformed"),
        (FINAL.split(b",p=")[0], "malformed"),
        (FINAL + b",x=y", "malformed"),
        (FINAL[:-2] + b"=", "base64"),
    ],
)
def test_a_last_message_that_is_none(message: bytes, reason: str) -> None:
    with pytest.raises(BadMessage, match=reason):
        server().final(message)


def test_names_come_unescaped_and_may_be_their_own_authorization_id() -> None:
    assert scram_first(b"n,a=a=3Db=2Cc,n=a=3Db=2Cc,r=x").name == "a=b,c"


def test_plain() -> None:
    login = plain_login("\0anna\0pass,wörd".encode())
    assert (login.name, login.password) == ("anna", "pass,wörd".encode())
    assert "wörd" not in repr(login)
    assert plain_login(b"anna\0anna\0x").name == "anna"
    for bad in (
        b"",
        b"anna\0x",
        b"\0\0x",
        b"\0anna\0",
        b"root\0anna\0x",
        b"\0a\0b\0c",
        b"\xff\0\0",
    ):
        with pytest.raises(BadMessage):
            plain_login(bad)


def test_bearer() -> None:
    login = bearer_login(b"n,,\x01auth=Bearer ab.c-d_.e=\x01\x01")
    assert (login.token, login.authorization_id) == ("ab.c-d_.e=", None)
    assert "ab.c" not in repr(login)
    named = b"n,a=an=2Cna,\x01host=x\x01auth=Bearer abc\x01traceId=7\x01\x01"
    assert bearer_login(named).authorization_id == "an,na"
    for bad in (
        b"",
        b"\x01",
        b"n,,\x01\x01",
        b"n,,\x01auth=Basic abc\x01\x01",
        b"n,,\x01auth=Bearer a b\x01\x01",
        b"n,,\x01auth=Bearer abc\x01",
        b"n,,\x01auth=Bearer abc\x01\x01\x01",
        b"n,,\x01auth=Bearer abc\x01no pair\x01\x01",
        b"n,,\x01auth=Bearer abc\x01auth=Bearer def\x01\x01",
        b"y,,\x01auth=Bearer abc\x01\x01",
        b"n,a=an=na,\x01auth=Bearer abc\x01\x01",
    ):
        with pytest.raises(BadMessage):
            bearer_login(bad)


def test_a_bearer_message_has_so_many_pairs_and_no_more() -> None:
    def message(pairs: int) -> bytes:
        return b"n,,\x01auth=Bearer abc\x01" + b"a=b\x01" * (pairs - 1) + b"\x01"

    assert bearer_login(message(BEARER_PAIRS_MAX)).token == "abc"
    with pytest.raises(BadMessage, match="pairs"):
        bearer_login(message(BEARER_PAIRS_MAX + 1))


@pytest.mark.parametrize("pair", [b"a=", b"auth=bearer "])
def test_a_bearer_message_costs_by_its_length_whatever_it_repeats(pair: bytes) -> None:
    def cpu_s(pairs: int) -> float:
        message = b"n,,\x01" + (pair.ljust(600, b"x") + b"\x01") * pairs + b"!\x01"
        began = time.process_time()
        with pytest.raises(BadMessage, match="a bearer token is expected"):
            bearer_login(message)
        return time.process_time() - began

    few, many = (
        min(cpu_s(pairs) for _ in range(9)) for pairs in (BEARER_PAIRS_MAX // 4, BEARER_PAIRS_MAX)
    )
    assert many < 8 * few, f"{many / few:.0f} times the time for four times the length"


@given(
    name=st.text(min_size=1, max_size=40).filter(lambda text: "\0" not in text),
    password=st.text(min_size=1, max_size=40),
    other=st.text(min_size=1, max_size=40),
    hash_name=st.sampled_from(["sha256", "sha512"]),
)
def test_our_client_and_our_server_agree_on_who_knows_the_password(
    name: str, password: str, other: str, hash_name: str
) -> None:
    client = ScramClient(hash_name, name, password, "client-nonce")
    first = scram_first(client.first())
    assert first.name == name
    known = derived(hash_name, password.encode(), b"salt", 4096)
    exchange = ScramServer(first, known, "server-nonce")
    challenge = exchange.challenge()
    final, signature = client.final(challenge, client.source(challenge).keys())
    answer = exchange.final(final)
    assert answer is not None
    check_server_final(answer, signature)
    if other != password:
        stranger = replace(exchange, credential=derived(hash_name, other.encode(), b"salt", 4096))
        assert stranger.final(final) is None


@given(st.binary(max_size=200))
def test_any_bytes_are_a_message_or_a_bad_one(data: bytes) -> None:
    for read in (plain_login, scram_first, bearer_login, server().final):
        try:
            read(data)
        except BadMessage:
            continue
