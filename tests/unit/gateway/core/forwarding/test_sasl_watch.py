"""The name in a SASL exchange that passes, once upstream has accepted it."""

from __future__ import annotations

from gateway.core.client_limits.rules import ANONYMOUS
from gateway.core.forwarding.sasl_watch import SaslWatch, scram_name
from gateway.core.wire.apis import ApiKey
from tests.rig.wire_frames import request


def handshake(watch: SaslWatch, mechanism: str) -> None:
    payload = request(ApiKey.SASL_HANDSHAKE, 1, {"Mechanism": mechanism})[4:]
    watch.asked(ApiKey.SASL_HANDSHAKE, 1, payload)


def token(watch: SaslWatch, text: bytes, *, accepted: bool) -> str | None:
    payload = request(ApiKey.SASL_AUTHENTICATE, 2, {"AuthBytes": text})[4:]
    watch.asked(ApiKey.SASL_AUTHENTICATE, 2, payload)
    watch.answered(accepted=accepted)
    return watch.principal


def test_plain() -> None:
    watch = SaslWatch()
    handshake(watch, "PLAIN")
    assert token(watch, b"\0mallory\0wrong", accepted=False) is None
    handshake(watch, "PLAIN")
    assert token(watch, b"\0alice\0secret", accepted=True) == "alice"
    assert "secret" not in repr([getattr(watch, name, None) for name in dir(watch)])


def test_scram_counts_after_its_last_step() -> None:
    watch = SaslWatch()
    handshake(watch, "SCRAM-SHA-256")
    assert token(watch, b"n,,n=al=2Cice,r=nonce", accepted=True) is None
    assert token(watch, b"c=biws,r=nonce,p=proof", accepted=False) is None
    handshake(watch, "SCRAM-SHA-512")
    assert token(watch, b"n,,n=al=2Cice,r=nonce", accepted=True) is None
    assert token(watch, b"c=biws,r=nonce,p=proof", accepted=True) == "al,ice"


def test_what_does_not_show_a_name() -> None:
    watch = SaslWatch()
    handshake(watch, "OAUTHBEARER")
    assert token(watch, b"n,,\1auth=Bearer e30\1\1", accepted=True) == ANONYMOUS
    assert scram_name(b"n,,n=token-id,r=nonce,tokenauth=true") == ""
    assert scram_name(b"rubbish") == ""
