"""Responses that end in node endpoints: small ones are rewritten, large ones as they stream."""

from __future__ import annotations

from collections import deque
from typing import Any

import pytest

from gateway.core.forwarding.api_counts import ApiCounts
from gateway.core.forwarding.effects import Call, Effect, Fault, Kind, Rewrite, Stop, ToClient
from gateway.core.forwarding.node_endpoints import MalformedResponse
from gateway.core.forwarding.requests import Requests
from gateway.core.forwarding.responses import Responses
from gateway.core.forwarding.served_apis import rules
from gateway.core.limits import (
    RESPONSE_TAIL_BYTES_MAX,
    REWRITTEN_CONFIGS_BYTES_MAX,
    WHOLE_RESPONSE_BYTES_MAX,
)
from gateway.core.wire.apis import ApiKey
from tests.rig.wire_frames import response, to_client

ENDPOINT = {"NodeId": 2, "Host": "upstream.internal", "Port": 9092}


def responses(version: int = 17) -> Responses:
    """One Fetch is open."""
    calls = deque([Call(Kind.WALK, ApiKey.FETCH, version, 1)])
    return opened(calls)


def opened(calls: deque[Call], counts: ApiCounts | None = None) -> Responses:
    served, counts = rules([]), counts or ApiCounts()
    return Responses(served, calls, Requests(served, calls, counts), counts)


def fetched(records: int, **top: Any) -> bytes:
    return response(
        ApiKey.FETCH, 17, {"Responses": [{"Partitions": [{"Records": bytes(records)}]}], **top}
    )


def test_a_small_response_without_endpoints_is_not_copied() -> None:
    effects: list[Effect] = []
    answer = fetched(1_000)
    responses().feed(answer, effects)
    (effect,) = effects
    assert isinstance(effect, ToClient)
    assert effect.data is answer


def test_a_small_response_without_endpoints_that_comes_in_pieces_is_the_same() -> None:
    effects: list[Effect] = []
    parser, answer = responses(), fetched(1_000)
    parser.feed(answer[:500], effects)
    assert effects == []
    parser.feed(answer[500:], effects)
    assert to_client(effects) == answer


def test_a_small_response_with_endpoints_is_rewritten() -> None:
    effects: list[Effect] = []
    answer = fetched(1_000, NodeEndpoints=[ENDPOINT])
    responses().feed(answer, effects)
    assert effects == [Rewrite(ApiKey.FETCH, 17, answer[4:])]


@pytest.mark.parametrize("step", [1_000, 65_536, 10**9])
def test_a_large_response_keeps_its_length(step: int) -> None:
    effects: list[Effect] = []
    parser, answer = responses(), fetched(WHOLE_RESPONSE_BYTES_MAX * 3, NodeEndpoints=[ENDPOINT])
    for start in range(0, len(answer), step):
        parser.feed(answer[start : start + step], effects)
    got = to_client(effects)
    assert len(got) == len(answer)
    assert b"upstream" not in got
    tail = len(answer) - len(fetched(WHOLE_RESPONSE_BYTES_MAX * 3)) + 1
    assert got[:-tail] == answer[:-tail]


@pytest.mark.parametrize("step", [1_000, 65_536, 10**9])
def test_a_large_response_without_endpoints_passes_as_it_comes(step: int) -> None:
    effects: list[Effect] = []
    parser, answer = responses(), fetched(WHOLE_RESPONSE_BYTES_MAX * 3)
    for start in range(0, len(answer), step):
        parser.feed(answer[start : start + step], effects)
        assert to_client(effects) == answer[: start + step]
    assert not parser.mid_frame


def test_tagged_fields_without_end_are_not_collected() -> None:
    big = {99: bytes(RESPONSE_TAIL_BYTES_MAX + 1)}
    with pytest.raises(MalformedResponse):
        responses().feed(fetched(WHOLE_RESPONSE_BYTES_MAX * 3, _tags=big), [])


def test_a_broker_has_no_configs_of_many_megabytes() -> None:
    """They are decoded and encoded in one turn of the event loop; of all topics, never."""
    size = REWRITTEN_CONFIGS_BYTES_MAX + 1
    head = size.to_bytes(4, "big") + (1).to_bytes(4, "big")
    for kind, api_key, fits in (
        (Kind.REWRITE, ApiKey.DESCRIBE_CONFIGS, False),
        (Kind.PASS, ApiKey.DESCRIBE_CONFIGS, True),
        (Kind.REWRITE, ApiKey.METADATA, True),
    ):
        calls = deque([Call(kind, api_key, 4, 1)])
        parser = opened(calls)
        if fits:
            parser.feed(head, [])
            assert parser.mid_frame
            continue
        with pytest.raises(Stop) as stopped:
            parser.feed(head, [])
        assert stopped.value.failed.fault is Fault.FRAME_SIZE


@pytest.mark.parametrize(
    ("api_key", "version", "kind"),
    [
        (ApiKey.FETCH, 4, Kind.PASS),
        (ApiKey.FETCH, 12, Kind.PASS),
        (ApiKey.FETCH, 17, Kind.WALK),
        (ApiKey.PRODUCE, 12, Kind.WALK),
    ],
)
def test_the_wait_that_upstream_imposes_is_counted(
    api_key: ApiKey, version: int, kind: Kind
) -> None:
    counts = ApiCounts()
    for throttle_ms in (0, 250, 30):
        parser = opened(deque([Call(kind, api_key, version, 1)]), counts)
        parser.feed(response(api_key, version, {"ThrottleTimeMs": throttle_ms}), [])
    assert counts.throttled_ms == {api_key: 280}


def test_an_answer_cut_off_before_its_wait_passes_without() -> None:
    counts = ApiCounts()
    parser = opened(deque([Call(Kind.PASS, ApiKey.FETCH, 4, 1)]), counts)
    answer = response(ApiKey.FETCH, 4, {"ThrottleTimeMs": 9})
    parser.feed(answer[:10], [])
    parser.feed(answer[10:], [])
    assert counts.throttled_ms == {}
    assert not parser.mid_frame
