"""Seals: what they cover, and that a keyed one gives nothing away."""

from __future__ import annotations

import hmac

import pytest

from keyway.clusters.core.seals import Stood, checksum, fits, keyed, made
from keyway.clusters.core.trust import CHECKSUM, Seals

CLAIMED = "00000005-q7GdPzq4RbC5nTZ0m9Zx1w-3-4711-ams-1/orders"
RECORD = Stood("orders", 1_700_000_000_000, b"key", b"value")


@pytest.mark.parametrize("seals", [CHECKSUM, Seals(("one",))])
def test_null_and_empty_and_swapped_differ(seals: Seals) -> None:
    fields = (None, b"", b"a")
    found = {made(seals)(CLAIMED, "t", 0, key, value) for key in fields for value in fields}
    assert len(found) == 9


def test_the_checksum_is_that_of_spark() -> None:
    """Of version 1."""
    assert checksum("00000005-3-4711-ams-1/orders", RECORD) == 0x1ADD591412421F2E


@pytest.mark.parametrize("secret", ["", "one", "x" * 64, "x" * 65, "\N{SNOWMAN}"])
def test_a_keyed_seal_is_an_hmac(secret: str) -> None:
    message = f"{CLAIMED} orders 1700000000000 3 5 keyvalue".encode()
    digest = hmac.new(secret.encode(), message, "sha256").hexdigest()
    assert f"{keyed(CLAIMED, RECORD, secret):016x}" == digest[:16]


def test_the_state_behind_the_secret_makes_no_seal() -> None:
    """The chained checksum is a function of 64 bits that one copy gives away, as version 1 used it:
    whoever knows them makes any seal. Of a keyed one they make none.
    """
    other = Stood("orders", 1_700_000_000_001, b"key", b"forged")
    stolen = checksum(CLAIMED, other, "a secret")  # what a recovered state gives
    seals = Seals(("a secret",))
    assert fits(1, CLAIMED, other, stolen, seals)
    assert not fits(2, CLAIMED, other, stolen, seals)
    assert not fits(1, CLAIMED, other, stolen, Seals(("new",)))


def test_the_words_for_a_seal() -> None:
    assert str(CHECKSUM) == "a checksum"
    assert str(Seals(("one",))) == "HMAC-SHA-256"
    assert "one" not in repr(Seals(("one",)))
