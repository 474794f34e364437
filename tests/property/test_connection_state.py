"""However the two streams of a connection are cut, the same comes out as of whole frames."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from gateway.core.forwarding.api_counts import ApiCounts
from gateway.core.forwarding.connection_state import ConnectionState
from gateway.core.forwarding.effects import (
    Answered,
    Effect,
    Failed,
    Intercepted,
    Rewrite,
    ToClient,
    ToUpstream,
)
from gateway.core.forwarding.served_apis import rules
from gateway.core.wire.apis import ApiKey
from tests.rig.wire_frames import joined, request, response, to_client, to_upstream

RULES = rules([ApiKey.SHARE_GROUP_HEARTBEAT])
ENDPOINTS = [{"NodeId": 2, "Host": "upstream.internal", "Port": 9092}]

# An API, a version, the fields of a request and of its response, if it has one.
Asked = tuple[int, int, dict[str, Any], dict[str, Any] | None]


def _fetch(version: int, records: int, *, endpoints: bool) -> dict[str, Any]:
    partition = {
        "PartitionIndex": 1,
        "AbortedTransactions": [{"ProducerId": 4, "FirstOffset": 5}],
        "CurrentLeader": {"LeaderId": 2, "LeaderEpoch": 3},
        "Records": b"r" * records,
    }
    topic = {"Topic": "t", "TopicId": b"i" * 16, "Partitions": [partition, partition]}
    message: dict[str, Any] = {"Responses": [topic]}
    if endpoints and version >= 16:
        message["NodeEndpoints"] = ENDPOINTS
    return message


@st.composite
def exchanges(draw: st.DrawFn) -> Asked:
    kind = draw(st.sampled_from(["fetch", "produce", "metadata", "plain", "no acks"]))
    if kind == "fetch":
        version = draw(st.sampled_from([4, 11, 12, 15, 16, 17, 18]))
        records = draw(st.sampled_from([0, 10, 1_000, 70_000]))
        return ApiKey.FETCH, version, {}, _fetch(version, records, endpoints=draw(st.booleans()))
    if kind == "metadata":
        broker = {"NodeId": 1, "Host": "upstream.internal", "Port": 9092}
        return ApiKey.METADATA, draw(st.integers(0, 13)), {}, {"Brokers": [broker]}
    if kind == "plain":
        return ApiKey.LIST_OFFSETS, draw(st.integers(1, 11)), {}, {}
    version = draw(st.integers(3, 13))
    transactional_id = draw(st.none() | st.text(max_size=5))
    ask = {"TransactionalId": transactional_id, "Acks": 0 if kind == "no acks" else -1}
    if kind == "no acks":
        return ApiKey.PRODUCE, version, ask, None
    partition = {"Index": 0, "RecordErrors": [{"BatchIndex": 1}], "ErrorMessage": "why"}
    answer: dict[str, Any] = {
        "Responses": [{"Name": "t", "TopicId": b"i" * 16, "PartitionResponses": [partition]}]
    }
    if version >= 10 and draw(st.booleans()):
        answer["NodeEndpoints"] = ENDPOINTS
    return ApiKey.PRODUCE, version, ask, answer


def streams(
    asked: list[Asked],
) -> tuple[bytes, bytes]:
    requests, responses = b"", b""
    for number, (key, version, ask, answer) in enumerate(asked):
        requests += request(key, version, ask, correlation_id=number)
        if answer is not None:
            responses += response(key, version, answer, correlation_id=number)
    return requests, responses


def chunks(data: bytes, cuts: list[int]) -> list[bytes]:
    places = [0, *sorted({cut % (len(data) + 1) for cut in cuts}), len(data)]
    return [data[a:b] for a, b in pairwise(places) if a < b]


CUTS = st.lists(st.integers(0, 10**9), max_size=30)


@given(st.lists(exchanges(), min_size=1, max_size=8), CUTS, CUTS)
def test_cuts_change_nothing(
    asked: list[Asked],
    request_cuts: list[int],
    response_cuts: list[int],
) -> None:
    requests, responses = streams(asked)
    whole, cut = ConnectionState(RULES, ApiCounts()), ConnectionState(RULES, ApiCounts())

    whole_sent = whole.from_client(requests)
    cut_sent = [
        effect for data in chunks(requests, request_cuts) for effect in cut.from_client(data)
    ]
    assert to_upstream(whole_sent) == to_upstream(cut_sent) == requests
    assert whole.calls_open == cut.calls_open == sum(answer is not None for *_, answer in asked)

    whole_got = whole.from_upstream(responses)
    cut_got = [e for data in chunks(responses, response_cuts) for e in cut.from_upstream(data)]
    assert joined(whole_got) == joined(cut_got)
    assert whole.answered_all
    assert not whole.mid_request
    assert cut.answered_all
    assert not cut.mid_request
    assert b"upstream.internal" not in to_client(whole_got)


@given(st.lists(exchanges(), max_size=3), st.lists(exchanges(), max_size=3), CUTS, CUTS)
def test_answers_come_in_the_order_of_the_requests(
    before: list[Asked], after: list[Asked], request_cuts: list[int], response_cuts: list[int]
) -> None:
    """A local request among forwarded ones; each side's pieces as soon as they can be there."""
    local = request(ApiKey.SHARE_GROUP_HEARTBEAT, correlation_id=77)
    answer = response(ApiKey.SHARE_GROUP_HEARTBEAT, correlation_id=77)
    ask_first, answer_first = streams(before)
    ask_last, answer_last = streams(after)
    session = ConnectionState(RULES, ApiCounts())
    effects: list[Effect] = []
    for piece in chunks(ask_first + local + ask_last, request_cuts):
        effects += session.from_client(piece)
    assert to_upstream(effects) == ask_first
    for piece in chunks(answer_first, response_cuts):
        effects += session.from_upstream(piece)
    assert [e for e in effects if isinstance(e, Intercepted)] == [Intercepted(local[4:])]
    assert isinstance(effects[-1], Intercepted)
    effects += session.answered(answer)
    assert to_upstream(effects) == ask_first + ask_last
    for piece in chunks(answer_last, response_cuts):
        effects += session.from_upstream(piece)
    assert session.answered_all
    assert not session.mid_request
    answered = [number for number, (*_, got) in enumerate(before) if got is not None]
    answered_last = [number for number, (*_, got) in enumerate(after) if got is not None]
    assert correlations(effects) == [*answered, 77, *answered_last]


def correlations(effects: list[Effect]) -> list[int]:
    """Of the responses the client gets, in order."""
    stream = b"".join(
        len(e.payload).to_bytes(4, "big") + e.payload if isinstance(e, Rewrite) else bytes(e.data)
        for e in effects
        if isinstance(e, Rewrite | ToClient)
    )
    found = []
    while stream:
        size = int.from_bytes(stream[:4], "big")
        found.append(int.from_bytes(stream[4:8], "big"))
        stream = stream[4 + size :]
    return found


@given(st.binary(max_size=400), CUTS)
def test_garbage_from_a_client_ends_in_at_most_one_fault(data: bytes, cuts: list[int]) -> None:
    session = ConnectionState(RULES, ApiCounts())
    effects = [e for piece in chunks(data, cuts) for e in session.from_client(piece)]
    effects += session.client_ended()
    faults = [effect for effect in effects if isinstance(effect, Failed)]
    assert len(faults) <= 1
    assert all(isinstance(e, Failed | ToUpstream | Intercepted | ToClient) for e in effects)
    if faults:
        assert effects[-1] is faults[0]


@given(st.sampled_from([0, 1, 3, 10, 18, 32, 55, 60, 2]), st.binary(max_size=400), CUTS)
def test_garbage_from_upstream_ends_in_at_most_one_fault(
    key: int, data: bytes, cuts: list[int]
) -> None:
    session = ConnectionState(RULES, ApiCounts())
    session.from_client(request(key, correlation_id=1))
    frame = (len(data) + 4).to_bytes(4, "big") + b"\0\0\0\1" + data
    effects = [e for piece in chunks(frame, cuts) for e in session.from_upstream(piece)]
    effects += session.upstream_ended()
    assert sum(isinstance(effect, Failed) for effect in effects) <= 1
    assert not any(isinstance(effect, Answered) for effect in effects)
