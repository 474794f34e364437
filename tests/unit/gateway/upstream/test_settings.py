"""Addresses, back-off, and that secrets do not show."""

from __future__ import annotations

from pathlib import Path

import pytest

from gateway.reading.letter_producer import producer_options
from gateway.upstream.settings import Address, SaslSettings, TlsSettings, UpstreamSettings


def test_bootstrap_servers() -> None:
    settings = UpstreamSettings(" a:9092, [::1]:9093 ,,b.example:1")
    assert settings.bootstrap() == [
        Address("a", 9092),
        Address("::1", 9093),
        Address("b.example", 1),
    ]
    assert [str(address) for address in settings.bootstrap()] == [
        "a:9092",
        "[::1]:9093",
        "b.example:1",
    ]


@pytest.mark.parametrize("entry", ["host", "host:", ":9092", "host:0", "host:65536", "host:x"])
def test_a_bad_bootstrap_server_is_named(entry: str) -> None:
    with pytest.raises(ValueError, match=entry):
        UpstreamSettings(f"good:9092,{entry}").bootstrap()


def test_backoff_doubles_up_to_its_limit() -> None:
    settings = UpstreamSettings("a:1", backoff_base_ms=50, backoff_max_ms=2_000)
    assert [settings.backoff_ms(n) for n in (1, 2, 3, 6, 7, 1_000)] == [
        50,
        100,
        200,
        1_600,
        2_000,
        2_000,
    ]


def test_secrets_do_not_show() -> None:
    settings = UpstreamSettings(
        "a:1",
        sasl=SaslSettings("PLAIN", "gateway", "swordfish"),
        tls=TlsSettings(key_file=Path("key.pem"), key_password="swordfish"),
    )
    assert "swordfish" not in repr(settings)
    assert "swordfish" not in str(settings)


def test_a_missing_certificate_is_an_os_error() -> None:
    with pytest.raises(OSError, match="No such file"):
        TlsSettings(ca_file=Path("missing.pem")).context()


def test_the_dead_letter_producer_has_the_same_identity() -> None:
    plain = producer_options(UpstreamSettings("a:1,b:2"))
    assert plain["bootstrap_servers"] == ["a:1", "b:2"]
    assert plain["security_protocol"] == "PLAINTEXT"
    sasl = SaslSettings("SCRAM-SHA-512", "gateway", "swordfish")
    both = producer_options(UpstreamSettings("a:1", sasl=sasl, tls=TlsSettings()))
    assert both["security_protocol"] == "SASL_SSL"
    assert both["sasl_mechanism"] == "SCRAM-SHA-512"
    assert (both["sasl_plain_username"], both["sasl_plain_password"]) == ("gateway", "swordfish")
    assert both["ssl_context"].check_hostname
