"""A client at its limits: told in the response, and held if it does not listen."""

from __future__ import annotations

from gateway.core.client_limits.account import Account
from gateway.core.client_limits.accounts import Accounts
from gateway.core.client_limits.rules import Rule, Who
from gateway.core.forwarding.api_counts import ApiCounts
from gateway.core.forwarding.connection_state import ConnectionState
from gateway.core.forwarding.served_apis import rules
from gateway.core.wire.apis import ApiKey
from gateway.core.wire.codec import decode_response
from gateway.core.wire.frames import parse_response_header
from tests.rig.wire_frames import request, response, to_client, to_upstream

S_NS = 1_000_000_000
NOW_NS = 100 * S_NS


def limited(**limits: int) -> tuple[ConnectionState, Account]:
    state = ConnectionState(rules([]), ApiCounts())
    account = Accounts([Rule(name="all", **limits)]).find(  # type: ignore[arg-type]
        Who(address="a", client_id="c", principal="p"), NOW_NS
    )
    assert isinstance(account, Account)
    state.account = account
    return state, account


def told_ms(key: int, version: int, frame: bytes) -> int:
    body_at = parse_response_header(key, version, frame[4:]).body_at
    return int(decode_response(key, version, frame[4:], body_at)["ThrottleTimeMs"])


def test_a_client_that_ignores_its_wait_is_held() -> None:
    state, account = limited(requests_per_s=2)
    one = request(ApiKey.HEARTBEAT, 4)
    assert to_upstream(state.from_client(one * 5, NOW_NS)) == one * 3
    assert state.muted_until_ns == NOW_NS + S_NS // 2
    assert account.muted == 1
    assert state.from_client(one, NOW_NS) == [], "what comes meanwhile waits behind it"
    assert to_upstream(state.unmute(NOW_NS + S_NS // 2)) == one
    assert state.muted_until_ns == NOW_NS + S_NS
    passed = 4
    for tick in range(2, 4):
        passed += len(to_upstream(state.unmute(NOW_NS + tick * S_NS // 2))) // len(one)
    assert passed == 6
    assert state.muted_until_ns == 0


def test_the_wait_is_told_and_the_longer_one_wins() -> None:
    key, version = ApiKey.FETCH, 12
    for upstream_ms, expected_ms in ((0, 1_000), (5_000, 5_000)):
        state, account = limited(bytes_out_per_s=1_000)
        state.from_client(request(key, version, correlation_id=9), NOW_NS)
        answer = response(key, version, {"ThrottleTimeMs": upstream_ms}, correlation_id=9)
        account.answered(key, 2_000 - len(answer), NOW_NS)
        passed = to_client(state.from_upstream(answer, NOW_NS))
        assert len(passed) == len(answer)
        assert told_ms(key, version, passed) == expected_ms


def test_a_response_in_pieces_passes_and_the_wait_holds_all_the_same() -> None:
    key, version = ApiKey.FETCH, 12
    state, _ = limited(bytes_out_per_s=1)
    state.from_client(request(key, version, correlation_id=9), NOW_NS)
    answer = response(key, version, correlation_id=9)
    passed = b"".join(
        to_client(state.from_upstream(answer[at : at + 1], NOW_NS)) for at in range(len(answer))
    )
    assert passed == answer, "its field is cut off: nothing is told"
    assert to_upstream(state.from_client(request(key, version), NOW_NS)) == b""
    assert state.muted_until_ns == NOW_NS + (len(answer) - 1) * S_NS


def test_without_an_account_nothing_changes() -> None:
    state = ConnectionState(rules([]), ApiCounts())
    many = request(ApiKey.HEARTBEAT, 4) * 100
    assert to_upstream(state.from_client(many, NOW_NS)) == many
    assert state.muted_until_ns == 0
