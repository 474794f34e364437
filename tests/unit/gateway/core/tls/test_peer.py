"""The subject of a client's certificate, in the form of Kafka's principals."""

from __future__ import annotations

import pytest

from gateway.core.tls.peer import peer_certificate


def subject(*names: tuple[tuple[str, str], ...]) -> str:
    found = peer_certificate({"subject": names})
    assert found is not None
    return found.subject


@pytest.mark.parametrize("nothing", [None, {}])
def test_no_certificate(nothing: dict[str, str] | None) -> None:
    assert peer_certificate(nothing) is None


def test_the_last_name_of_the_certificate_comes_first() -> None:
    country, place = (("countryName", "DE"),), (("localityName", "Berlin"),)
    assert subject(country, place, (("commonName", "orders"),)) == "CN=orders,L=Berlin,C=DE"


def test_names_that_belong_together() -> None:
    assert subject((("commonName", "a"), ("userId", "7"))) == "CN=a+UID=7"


@pytest.mark.parametrize(
    ("value", "escaped"),
    [
        ("a,O=admin", "a\\,O=admin"),
        ('quo"te', 'quo\\"te'),
        ("back\\slash", "back\\\\slash"),
        ("#1", "\\#1"),
        (" both ", "\\ both\\ "),
        (" ", "\\ "),
        ("a;b<c>d+e", "a\\;b\\<c\\>d\\+e"),
        ("nul\x00", "nul\\00"),
        ("Bücher", "Bücher"),
    ],
)
def test_a_value_cannot_look_like_another_attribute(value: str, escaped: str) -> None:
    assert subject((("commonName", value),)) == f"CN={escaped}"


def test_a_name_that_rfc_2253_does_not_have() -> None:
    assert subject((("emailAddress", "a@b.example"),)) == "emailAddress=a@b.example"
