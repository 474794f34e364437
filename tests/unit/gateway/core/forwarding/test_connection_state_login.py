"""Playbooks of a connection whose client logs in at the gateway: nothing goes upstream before."""

from __future__ import annotations

import pytest

from gateway.core.forwarding.api_counts import ApiCounts
from gateway.core.forwarding.connection_state import ConnectionState
from gateway.core.forwarding.effects import Failed, Fault, Intercepted
from gateway.core.forwarding.served_apis import offered, rules
from gateway.core.wire.apis import ApiKey
from tests.rig.wire_frames import request, response, to_client, to_upstream

LOCAL = (ApiKey.SHARE_FETCH,)
LOGIN = rules(LOCAL, terminated=True, login=True)
BY_CERTIFICATE = rules(LOCAL, terminated=True)
HANDSHAKE = request(ApiKey.SASL_HANDSHAKE, version=1)
TOKEN = request(ApiKey.SASL_AUTHENTICATE, version=2)
VERSIONS = request(ApiKey.API_VERSIONS, version=3)
HEARTBEAT = request(ApiKey.HEARTBEAT, correlation_id=9)


def session(served: object = LOGIN) -> ConnectionState:
    assert served in (LOGIN, BY_CERTIFICATE)
    return ConnectionState(LOGIN if served is LOGIN else BY_CERTIFICATE, ApiCounts())


@pytest.mark.parametrize(
    "key",
    [ApiKey.METADATA, ApiKey.PRODUCE, ApiKey.SHARE_FETCH, ApiKey.HEARTBEAT, ApiKey.LIST_GROUPS],
)
def test_no_request_before_the_login(key: int) -> None:
    (failed,) = session().from_client(request(key))
    assert isinstance(failed, Failed)
    assert failed.fault is Fault.NOT_LOGGED_IN


@pytest.mark.parametrize("asked", [VERSIONS, HANDSHAKE, TOKEN])
def test_the_gateway_answers_the_login(asked: bytes) -> None:
    assert session().from_client(asked) == [Intercepted(asked[4:])]


def test_what_is_behind_a_login_waits_for_it() -> None:
    state = session()
    assert state.from_client(TOKEN + HEARTBEAT) == [Intercepted(TOKEN[4:])]
    state.logged_in()
    assert to_upstream(state.answered(b"answer")) == HEARTBEAT


def test_what_is_behind_a_login_that_failed_is_refused() -> None:
    state = session()
    state.from_client(TOKEN + HEARTBEAT)
    failed = state.answered(b"answer")[-1]
    assert isinstance(failed, Failed)
    assert failed.fault is Fault.NOT_LOGGED_IN


def test_after_the_login_versions_pass_and_sasl_never_does() -> None:
    state = session()
    state.logged_in()
    assert to_upstream(state.from_client(VERSIONS)) == VERSIONS
    for asked in (HANDSHAKE, TOKEN):
        for served in (LOGIN, BY_CERTIFICATE):
            other = session(served)
            other.logged_in()
            assert other.from_client(asked) == [Intercepted(asked[4:])]


def test_sasl_of_a_client_with_a_certificate_stays_here() -> None:
    state = session(BY_CERTIFICATE)
    assert to_upstream(state.from_client(HEARTBEAT)) == HEARTBEAT
    state.from_upstream(response(ApiKey.HEARTBEAT, correlation_id=9))
    assert state.from_client(HANDSHAKE) == [Intercepted(HANDSHAKE[4:])]


def test_a_handshake_without_frame_headers_is_refused() -> None:
    for state in (session(), session(BY_CERTIFICATE)):
        answer = to_client(state.from_client(request(ApiKey.SASL_HANDSHAKE, version=0)))
        assert int.from_bytes(answer[8:10], "big") == 35


def test_clients_are_told_of_both_apis_of_the_login() -> None:
    for served in (LOGIN, BY_CERTIFICATE):
        assert served.local[ApiKey.SASL_HANDSHAKE] == (1, 1)
        assert served.local[ApiKey.SASL_AUTHENTICATE] == (0, 2)
        assert offered(ApiKey.SASL_HANDSHAKE, 0, 1, served) is None, "upstream's are not"


def test_while_it_is_held_no_request_begins_and_none_is_lost() -> None:
    state = session(BY_CERTIFICATE)
    cut = len(HEARTBEAT) - 3
    assert to_upstream(state.from_client(HEARTBEAT[:cut])) == HEARTBEAT[:cut]
    state.hold()
    own = request(ApiKey.SASL_HANDSHAKE, version=1, correlation_id=77)
    assert state.inject(own, 77) == [], "it waits for the frame's end"
    second = request(ApiKey.HEARTBEAT, correlation_id=10)
    assert to_upstream(state.from_client(HEARTBEAT[cut:] + second)) == HEARTBEAT[cut:] + own
    state.from_upstream(response(ApiKey.HEARTBEAT, correlation_id=9))
    state.from_upstream(response(ApiKey.SASL_HANDSHAKE, version=1, correlation_id=77))
    assert state.answered_all
    assert state.held_bytes == len(second), "the second one waits"
    assert to_upstream(state.release(0)) == second
