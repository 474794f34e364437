"""Stored secrets: Kafka's own form, passwords checked, and names that nobody has."""

from __future__ import annotations

import sys
from types import FrameType

import pytest

from gateway.core.identity.credentials import (
    BadCredentials,
    ScramCredential,
    Users,
    credential_of,
    derived,
    of_password,
)

KEY = b"k" * 32
ANNA = derived("sha256", b"swordfish", b"salt-of-anna", 5_000)
USERS = Users({"anna": {"SCRAM-SHA-256": ANNA}}, KEY)


def test_kafkas_form_there_and_back() -> None:
    assert credential_of("SCRAM-SHA-256", ANNA.text()) == ANNA
    assert ANNA.fits(b"swordfish")
    assert not ANNA.fits(b"swordfis")
    assert "stored_key" not in repr(ANNA), "no secret shows"


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "needs salt"),
        (ANNA.text() + ",more=1", "no more"),
        (ANNA.text().replace("iterations=5000", "iterations=100"), "outside"),
        (ANNA.text().replace("iterations=5000", "iterations=9000000"), "outside"),
        (ANNA.text().replace("iterations=5000", "iterations=x"), "no number"),
        (ANNA.text().replace("salt=", "salt=*"), "not base64"),
        (derived("sha512", b"x", b"y", 4096).text(), "keys of 32 bytes"),
    ],
)
def test_a_credential_that_is_none(text: str, reason: str) -> None:
    with pytest.raises(BadCredentials, match=reason) as refused:
        credential_of("SCRAM-SHA-256", text)
    assert "c2FsdC1vZi1hbm5h" not in str(refused.value), "nothing of it is quoted"


def test_an_unknown_name_looks_like_a_known_one() -> None:
    def shape(of: ScramCredential) -> tuple[int, int, int]:
        return len(of.salt), of.iterations, len(of.stored_key)

    known, yes = USERS.credential("anna", "SCRAM-SHA-256")
    fake, no = USERS.credential("nobody", "SCRAM-SHA-256")
    assert (yes, no) == (True, False)
    assert shape(fake) == shape(known)
    assert USERS.credential("nobody", "SCRAM-SHA-256")[0] == fake, "the same at every try"
    assert USERS.credential("nobody2", "SCRAM-SHA-256")[0].salt != fake.salt
    assert Users(USERS.known, b"other" * 8).credential("nobody", "SCRAM-SHA-256")[0] != fake
    # Anna has no SHA-512: nobody is told that either.
    assert USERS.credential("anna", "SCRAM-SHA-512")[1] is False


def test_a_password_is_checked_with_the_strongest_and_for_nobody_as_long() -> None:
    both = Users({"anna": of_password("anna", "swordfish", KEY)}, KEY)
    credential, known = both.for_password("anna")
    assert (credential.hash_name, known) == ("sha512", True)
    assert credential.fits(b"swordfish")
    fake, known = USERS.for_password("nobody")
    assert (fake.hash_name, fake.iterations, known) == ("sha256", 5_000, False)


def test_an_unknown_name_takes_the_steps_of_a_known_one() -> None:
    """Else its time tells that it is unknown, and many of them hold all clients up."""
    users = Users({f"user-{at}": {"SCRAM-SHA-256": ANNA} for at in range(1_000)}, KEY)

    def steps(*asked: str) -> int:
        """The calls of functions."""
        count = 0

        def counted(_frame: FrameType, event: str, _arg: object) -> None:
            nonlocal count
            count += event in ("call", "c_call")

        before = sys.getprofile()
        sys.setprofile(counted)
        try:
            users.credential(*asked) if len(asked) > 1 else users.for_password(*asked)
        finally:
            sys.setprofile(before)
        return count

    for mechanism in ([], ["SCRAM-SHA-256"]):
        known, unknown = (steps(name, *mechanism) for name in ("user-7", "nobody"))
        assert abs(known - unknown) <= 10 < unknown, f"{mechanism}: {known} and {unknown}"


def test_a_plain_password_stands_for_the_same_at_every_read() -> None:
    assert of_password("anna", "x", KEY) == of_password("anna", "x", KEY)
    assert of_password("anna", "x", KEY) != of_password("anna", "y", KEY)
    assert of_password("anna", "x", KEY) != of_password("bert", "x", KEY)
