"""Requests that a screen looks at: they are read whole, and go on or stop."""

from __future__ import annotations

import tracemalloc

import pytest

from gateway.core.forwarding.api_counts import ApiCounts
from gateway.core.forwarding.connection_state import ConnectionState
from gateway.core.forwarding.effects import Intercepted, Screen, ToClient, ToUpstream
from gateway.core.forwarding.served_apis import rules
from gateway.core.limits import LOCAL_REQUEST_BYTES_MAX
from gateway.core.wire.apis import ApiKey
from tests.rig.wire_frames import request, response, to_client, to_upstream

READ_BYTES = 256_000


def screened(*stopped: ApiKey, looks_at: frozenset[int]) -> ConnectionState:
    screen = Screen()
    screen.apis = looks_at
    screen.stops = lambda client, _, key, *__: client == ("host", "test") and key in stopped
    state = ConnectionState(rules((), screen=screen), ApiCounts())
    state.client = ("host", "test")
    return state


def test_a_request_that_the_screen_lets_pass_goes_on_whole() -> None:
    state = screened(looks_at=frozenset({ApiKey.LIST_OFFSETS, ApiKey.PRODUCE}))
    asked = request(ApiKey.LIST_OFFSETS, correlation_id=7)
    assert state.from_client(asked[:9]) == []
    assert state.from_client(asked[9:]) == [ToUpstream(asked)]
    for acks, answers in ((1, 2), (0, 2)):
        produce = request(ApiKey.PRODUCE, message={"Acks": acks, "TopicData": []})
        assert to_upstream(state.from_client(produce)) == produce
        assert state.calls_open == answers, "one without acks has no answer"
    assert state.produces


def test_a_request_that_the_screen_stops_waits_for_its_turn() -> None:
    state = screened(ApiKey.PRODUCE, looks_at=frozenset({ApiKey.PRODUCE}))
    state.from_client(request(ApiKey.HEARTBEAT, correlation_id=1))
    produce = request(ApiKey.PRODUCE, correlation_id=2, message={"Acks": 1})
    assert state.from_client(produce) == []
    assert state.oldest_produce_ns == 0, "it may be from before"
    answer = response(ApiKey.HEARTBEAT, correlation_id=1)
    assert state.from_upstream(answer) == [ToClient(answer), Intercepted(produce[4:])]
    assert state.oldest_produce_ns == 0
    assert to_client(state.answered(b"answer")) == b"answer"
    assert state.oldest_produce_ns is None


@pytest.mark.parametrize("cut", [2, 12, -1])
@pytest.mark.parametrize("acks", [0, 1])
def test_a_request_that_is_read_whole_waits_while_others_are_held(acks: int, cut: int) -> None:
    """None of it is upstream: it must not come between two steps of a login there."""
    state = screened(looks_at=frozenset({ApiKey.PRODUCE}))
    produce = request(ApiKey.PRODUCE, message={"Acks": acks, "TopicData": []})
    assert state.from_client(produce[:cut]) == []
    state.hold()
    own = request(ApiKey.SASL_HANDSHAKE, version=1, correlation_id=77)
    assert to_upstream(state.inject(own, 77)) == own
    assert state.from_client(produce[cut:]) == []
    state.from_upstream(response(ApiKey.SASL_HANDSHAKE, version=1, correlation_id=77))
    assert to_upstream(state.release(0)) == produce


def test_a_whole_produce_request_is_known_while_the_next_one_comes() -> None:
    state = screened(looks_at=frozenset())
    produce = request(ApiKey.PRODUCE, correlation_id=1, message={"Acks": 1, "TopicData": []})
    state.from_client(produce[:-1], now_ns=50)
    assert state.whole_produce_ns == 0
    state.from_client(produce[-1:], now_ns=100)
    state.from_client(produce[:20], now_ns=200)
    assert (state.oldest_produce_ns, state.whole_produce_ns) == (0, 100)
    state.from_upstream(response(ApiKey.PRODUCE, correlation_id=1))
    assert state.whole_produce_ns == 0


def test_a_produce_request_that_is_looked_at_may_be_as_long_as_any() -> None:
    state = screened(looks_at=frozenset({ApiKey.PRODUCE, ApiKey.FETCH}))
    rows = [{"Index": 0, "Records": bytes(LOCAL_REQUEST_BYTES_MAX)}]
    produce = request(
        ApiKey.PRODUCE, 12, {"Acks": 1, "TopicData": [{"Name": "t", "PartitionData": rows}]}
    )
    assert to_upstream(state.from_client(produce)) == produce


def test_a_long_produce_request_is_copied_once() -> None:
    """As it comes, and whole: not a third time to stand behind its size."""
    state = screened(looks_at=frozenset({ApiKey.PRODUCE}))
    rows = [{"Index": 0, "Records": bytes(LOCAL_REQUEST_BYTES_MAX)}]
    produce = memoryview(
        request(
            ApiKey.PRODUCE, 12, {"Acks": 1, "TopicData": [{"Name": "t", "PartitionData": rows}]}
        )
    )
    tracemalloc.start()
    try:
        effects = []
        for at in range(0, len(produce), READ_BYTES):
            effects += state.from_client(bytes(produce[at : at + READ_BYTES]))
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert to_upstream(effects) == produce
    assert most < 2.5 * len(produce)
