"""The name in a SASL exchange that passes, once upstream has accepted it."""

from __future__ import annotations

import pytest

from gateway.core.client_limits.account import Account
from gateway.core.client_limits.rules import ANONYMOUS
from gateway.core.forwarding.api_counts import ApiCounts
from gateway.core.forwarding.connection_state import ConnectionState
from gateway.core.forwarding.effects import Failed, Fault, Stop
from gateway.core.forwarding.sasl_watch import SaslWatch, scram_name
from gateway.core.forwarding.served_apis import rules
from gateway.core.wire.apis import ApiKey
from tests.rig.wire_frames import request, response, to_upstream


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


@pytest.mark.parametrize(
    ("first", "name"),
    [
        (b"n,a=alice,n=alice,r=nonce", "alice"),
        (b"n,,m=x,n=alice,r=nonce", "alice"),
        (b"n,,n=alice,r=nonce,tokenauth=false", "alice"),
        (b"n,,n=alice,r=nonce,x=y", "alice"),
        (b"n,,n=id,r=nonce,tokenauth=TRUE", ""),
        (b"n,,n=id,r=nonce,tokenauth=false,tokenauth=true", ""),
        (b"y,,n=alice,r=nonce", ""),
        (b"n,,n=al\xc3\xafce,r=nonce", ""),
    ],
)
def test_scram_is_read_as_kafka_reads_it(first: bytes, name: str) -> None:
    assert scram_name(first) == name


def hidden(key: ApiKey, body: dict[str, object]) -> bytes:
    """Kafka ignores what comes behind the body."""
    frame = request(key, 1, body) + b"\0\0"
    return (len(frame) - 4).to_bytes(4, "big") + frame[4:]


@pytest.mark.parametrize(
    ("key", "body"),
    [
        (ApiKey.SASL_HANDSHAKE, {"Mechanism": "PLAIN"}),
        (ApiKey.SASL_AUTHENTICATE, {"AuthBytes": b"\0alice\0secret"}),
    ],
)
def test_a_step_that_cannot_be_read_ends_the_connection(
    key: ApiKey, body: dict[str, object]
) -> None:
    state = ConnectionState(rules([], sasl=True), ApiCounts())
    (failed,) = state.from_client(hidden(key, body))
    assert isinstance(failed, Failed)
    assert failed.fault is Fault.HEADER
    assert "secret" not in repr(failed)
    with pytest.raises(Stop):
        SaslWatch().asked(key, 1, hidden(key, body)[4:])


def test_each_step_is_answered_before_the_next_one_begins() -> None:
    """Or another exchange, whose name is not proved, would be taken for the one that is."""
    state = ConnectionState(rules([], sasl=True), ApiCounts())
    handshake = request(ApiKey.SASL_HANDSHAKE, 1, {"Mechanism": "PLAIN"})
    alice = request(ApiKey.SASL_AUTHENTICATE, 1, {"AuthBytes": b"\0alice\0secret"})
    bob = request(ApiKey.SASL_AUTHENTICATE, 1, {"AuthBytes": b"\0bob\0"})
    assert to_upstream(state.from_client(handshake + alice + handshake + bob)) == handshake
    shaken = response(ApiKey.SASL_HANDSHAKE, 1)
    assert to_upstream(state.from_upstream(shaken)) == alice
    assert to_upstream(state.from_upstream(response(ApiKey.SASL_AUTHENTICATE, 1))) == b""
    assert state.principal == "alice"
    assert to_upstream(state.release(0)) == handshake, "the shell knows alice now"


@pytest.mark.parametrize("version", [0, 1, 2])
@pytest.mark.parametrize("message", [None, ""])
@pytest.mark.parametrize(
    ("told", "name"), [(b'{"status":"invalid_token"}', None), (b"", ANONYMOUS)]
)
def test_a_token_that_upstream_refuses_names_nobody(
    version: int, message: str | None, told: bytes, name: str | None
) -> None:
    """The refusal of OAUTHBEARER has no error code."""
    key = ApiKey.SASL_AUTHENTICATE
    state = ConnectionState(rules([], sasl=True), ApiCounts())
    state.from_client(request(ApiKey.SASL_HANDSHAKE, 1, {"Mechanism": "OAUTHBEARER"}))
    state.from_upstream(response(ApiKey.SASL_HANDSHAKE, 1))
    state.from_client(request(key, version, {"AuthBytes": b"n,,\1auth=Bearer e30\1\1"}))
    state.from_upstream(response(key, version, {"ErrorMessage": message, "AuthBytes": told}))
    assert state.principal == name


def test_what_came_behind_the_last_step_waits_until_its_limits_are_known() -> None:
    state = ConnectionState(rules([], sasl=True), ApiCounts())
    state.from_client(request(ApiKey.SASL_HANDSHAKE, 1, {"Mechanism": "PLAIN"}))
    state.from_upstream(response(ApiKey.SASL_HANDSHAKE, 1))
    beats = request(ApiKey.HEARTBEAT, 4) * 3
    alice = request(ApiKey.SASL_AUTHENTICATE, 1, {"AuthBytes": b"\0alice\0secret"})
    assert to_upstream(state.from_client(alice + beats)) == alice
    assert to_upstream(state.from_upstream(response(ApiKey.SASL_AUTHENTICATE, 1))) == b""
    state.account = account = Account("rule", "alice", None, None, None)
    assert to_upstream(state.release(0)) == beats
    assert account.requests == 3


def test_an_exchange_that_upstream_accepts_always_has_a_name() -> None:
    watch = SaslWatch()
    watch.answered(accepted=True)
    assert watch.principal == ANONYMOUS
