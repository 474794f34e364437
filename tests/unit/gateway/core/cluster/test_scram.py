"""The SCRAM client against the examples of RFC 7677 and against a server that lies."""

from __future__ import annotations

import base64

import pytest

from gateway.core.cluster.scram import ScramClient, ScramError, check_server_final

# RFC 7677, section 3.
NONCE = "rOprNGfwEbeRWgbNEkqO"
SERVER_FIRST = (
    b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
)
CLIENT_FINAL = (
    b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,"
    b"p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
)
SERVER_FINAL = b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="


def client(username: str = "user", password: str = "pencil") -> ScramClient:
    return ScramClient("sha256", username, password, NONCE)


def answered(scram: ScramClient) -> tuple[bytes, bytes]:
    return scram.final(SERVER_FIRST, scram.source(SERVER_FIRST).keys())


def test_the_example_of_rfc_7677() -> None:
    assert client().first() == b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO"
    final, signature = answered(client())
    assert final == CLIENT_FINAL
    check_server_final(SERVER_FINAL, signature)


def test_a_wrong_password_is_noticed_on_both_sides() -> None:
    final, signature = answered(client(password="pen"))
    assert final != CLIENT_FINAL
    with pytest.raises(ScramError, match="signature"):
        check_server_final(SERVER_FINAL, signature)


@pytest.mark.parametrize(
    ("challenge", "reason"),
    [
        (SERVER_FIRST.replace(b"r=rOp", b"r=xOp"), "nonce"),
        (b"r=" + NONCE.encode() + b",s=W22Z,i=4096", "nonce"),
        (SERVER_FIRST.replace(b"i=4096", b"i=1"), "iterations"),
        (SERVER_FIRST.replace(b"i=4096", b"i=999999999"), "iterations"),
        (SERVER_FIRST.replace(b"i=4096", b"i=many"), "iterations"),
        (SERVER_FIRST.replace(b"s=W22Z", b"s=*"), "salt"),
        (b"e=other-error", "nonce"),
        (b"\xff\xfe", "nonce"),
    ],
)
def test_a_bad_challenge_is_refused(challenge: bytes, reason: str) -> None:
    with pytest.raises(ScramError, match=reason):
        client().source(challenge)


def test_names_are_escaped_and_secrets_do_not_show() -> None:
    scram = client(username="a=b,c", password="swordfish")
    assert scram.first() == b"n,,n=a=3Db=2Cc,r=" + NONCE.encode()
    assert "swordfish" not in repr(scram)
    assert NONCE not in repr(scram)
    source = scram.source(SERVER_FIRST)
    assert "swordfish" not in repr(source)
    assert repr(source.keys()) == "ScramKeys()"


def test_an_empty_verifier_is_no_verifier() -> None:
    _, signature = answered(client())
    for said in (b"", b"v=", b"e=invalid-proof", b"v=" + base64.b64encode(b"\0" * 32)):
        with pytest.raises(ScramError):
            check_server_final(said, signature)
