"""Playbooks of one connection: which bytes go where, and where they stop."""

from __future__ import annotations

import pytest

from gateway.core.cluster.slots import Slots
from gateway.core.forwarding.api_counts import ApiCounts
from gateway.core.forwarding.connection_state import ConnectionState
from gateway.core.forwarding.effects import (
    Answered,
    Effect,
    Failed,
    Fault,
    Intercepted,
    Rewrite,
    Side,
    ToClient,
    ToUpstream,
)
from gateway.core.forwarding.served_apis import rules
from gateway.core.wire.apis import ApiKey
from gateway.core.wire.frames import request_frame
from tests.rig.wire_frames import request, response, to_client, to_upstream

LOCAL = (ApiKey.SHARE_GROUP_HEARTBEAT, ApiKey.SHARE_FETCH)
HEARTBEAT = request(ApiKey.SHARE_GROUP_HEARTBEAT, correlation_id=50)


def session(frame_bytes_max: int = 1_000_000) -> ConnectionState:
    return ConnectionState(rules(LOCAL, frame_bytes_max=frame_bytes_max), ApiCounts())


def test_a_whole_chunk_goes_on_as_the_object_that_was_read() -> None:
    state = session()
    asked = request(ApiKey.LIST_OFFSETS, correlation_id=7)
    assert state.from_client(asked) == [ToUpstream(asked)]
    effects = state.from_upstream(response(ApiKey.LIST_OFFSETS, correlation_id=7))
    assert len(effects) == 1


def test_a_request_passes_before_it_is_complete() -> None:
    state = session()
    asked = request(ApiKey.CREATE_TOPICS, message={"Topics": [{"Name": "t" * 5_000}]})
    first = state.from_client(asked[:40])
    assert to_upstream(first) == asked[:40]
    assert state.mid_request
    assert to_upstream(state.from_client(asked[40:])) == asked[40:]


def test_a_large_response_passes_before_it_is_complete() -> None:
    state = session()
    state.from_client(request(ApiKey.FETCH))
    answer = response(
        ApiKey.FETCH,
        message={"Responses": [{"Partitions": [{"Records": b"r" * 200_000}]}]},
    )
    assert to_client(state.from_upstream(answer[:100_000])) == answer[:100_000]
    assert to_client(state.from_upstream(answer[100_000:])) == answer[100_000:]
    assert state.answered_all
    assert not state.mid_request


def test_pipelined_requests_pass_at_once_and_are_counted() -> None:
    counts = ApiCounts()
    state = ConnectionState(rules(LOCAL), counts)
    asked = [request(ApiKey.HEARTBEAT, correlation_id=n) for n in range(3)]
    assert to_upstream(state.from_client(b"".join(asked))) == b"".join(asked)
    assert state.calls_open == 3
    assert counts.requests == {ApiKey.HEARTBEAT: 3}


def test_a_local_request_waits_for_the_answers_before_it() -> None:
    state = session()
    state.from_client(request(ApiKey.HEARTBEAT, correlation_id=1))
    assert state.from_client(HEARTBEAT) == []
    answer = response(ApiKey.HEARTBEAT, correlation_id=1)
    assert state.from_upstream(answer) == [ToClient(answer), Intercepted(HEARTBEAT[4:])]


def test_requests_behind_a_local_one_wait_for_its_answer() -> None:
    state = session()
    later = request(ApiKey.HEARTBEAT, correlation_id=51)
    assert state.from_client(HEARTBEAT + later) == [Intercepted(HEARTBEAT[4:])]
    assert state.held_bytes == len(later)
    more = request(ApiKey.HEARTBEAT, correlation_id=52)
    assert state.from_client(more) == []
    answer = response(ApiKey.SHARE_GROUP_HEARTBEAT, correlation_id=50)
    assert state.answered(answer) == [ToClient(answer), ToUpstream(later + more)]
    assert state.held_bytes == 0


def test_bytes_behind_a_cut_local_request_keep_their_place() -> None:
    state = session()
    later = request(ApiKey.HEARTBEAT, correlation_id=51)
    assert state.from_client(HEARTBEAT[:20]) == []
    assert state.from_client(HEARTBEAT[20:] + later) == [Intercepted(HEARTBEAT[4:])]
    assert state.held_bytes == len(later)


def test_an_injected_request_waits_for_the_frame_boundary_and_stays_hidden() -> None:
    state = session()
    asked = request(ApiKey.LIST_OFFSETS, correlation_id=7)
    state.from_client(asked[:-3])
    injected = request(ApiKey.METADATA, correlation_id=900)
    assert state.inject(injected, 900) == []
    assert state.from_client(asked[-3:]) == [ToUpstream(asked[-3:]), ToUpstream(injected)]
    answer = response(ApiKey.LIST_OFFSETS, correlation_id=7)
    hidden = response(ApiKey.METADATA, correlation_id=900)
    assert state.from_upstream(answer + hidden) == [ToClient(answer), Answered(900, hidden[4:])]
    assert state.answered_all
    assert not state.mid_request


def test_a_handler_may_ask_upstream_while_its_request_is_open() -> None:
    state = session()
    state.from_client(HEARTBEAT)
    injected = request(ApiKey.METADATA, correlation_id=900)
    assert state.inject(injected, 900) == [ToUpstream(injected)]
    assert state.open_apis == [], "those of the client"
    hidden = response(ApiKey.METADATA, correlation_id=900)
    assert state.from_upstream(hidden) == [Answered(900, hidden[4:])]
    answer = response(ApiKey.SHARE_GROUP_HEARTBEAT, correlation_id=50)
    assert state.answered(answer) == [ToClient(answer)]


def test_a_response_with_addresses_is_assembled() -> None:
    state = session()
    state.from_client(request(ApiKey.METADATA))
    answer = response(ApiKey.METADATA)
    assert state.from_upstream(answer[:9]) == []
    assert state.from_upstream(answer[9:]) == [Rewrite(ApiKey.METADATA, 13, answer[4:])]


@pytest.mark.parametrize("version", [3, 8, 9, 12, 13])
@pytest.mark.parametrize("transactional_id", [None, "", "tx-1"])
@pytest.mark.parametrize("acks", [0, 1, -1])
def test_produce_without_acks_has_no_response(
    version: int, transactional_id: str | None, acks: int
) -> None:
    state = session()
    asked = request(
        ApiKey.PRODUCE, version, {"TransactionalId": transactional_id, "Acks": acks}, client_id="c"
    )
    got = b"".join(to_upstream(state.from_client(bytes([byte]))) for byte in asked)
    assert got == asked
    assert state.calls_open == (1 if acks else 0)


def test_produce_with_acks_zero_behind_a_long_head() -> None:
    state = session()
    head = {"TransactionalId": "t" * 20_000, "Acks": 0}
    asked = request(ApiKey.PRODUCE, 11, head, client_id="c" * 20_000)
    for start in range(0, len(asked), 4_096):
        state.from_client(asked[start : start + 4_096])
    assert state.calls_open == 0
    assert state.answered_all
    assert not state.mid_request


def test_produce_versions_that_kafka_dropped_pass() -> None:
    state = session()
    body = b"\0\0" + bytes(8)  # acks=0, timeout, no topics
    asked = b"\0\0\0\x14" + b"\0\0\0\0\0\0\0\1\0\0" + body
    assert to_upstream(state.from_client(asked)) == asked
    assert state.calls_open == 0


def test_sasl_handshake_v0_is_refused_as_a_newer_broker_would() -> None:
    state = session()
    asked = request_frame(ApiKey.SASL_HANDSHAKE, 0, 5, None, b"\0\5PLAIN")
    refusal = response(
        ApiKey.SASL_HANDSHAKE, 0, {"ErrorCode": 35, "Mechanisms": []}, correlation_id=5
    )
    assert state.from_client(asked) == [ToClient(refusal)]
    assert to_upstream(state.from_client(request(ApiKey.SASL_HANDSHAKE, 1)))


def test_api_versions_of_a_newer_client_is_answered_in_v0() -> None:
    state = session()
    newest = {"ApiKey": 18, "MinVersion": 0, "MaxVersion": 4}
    refusal = response(
        ApiKey.API_VERSIONS, 0, {"ErrorCode": 35, "ApiKeys": [newest]}, correlation_id=9
    )
    asked = request_frame(ApiKey.API_VERSIONS, 5, 9, "new", b"\0" * 40)
    assert state.from_client(asked) == [ToClient(refusal)]
    assert to_upstream(state.from_client(request(ApiKey.API_VERSIONS, 4)))


@pytest.mark.parametrize(
    ("data", "fault"),
    [
        (b"\x16\x03\x01\x02\0\x01\0\x01\xfc\x03\x03", Fault.TLS),
        (b"GET / HTTP/1.1\r\n\r\n", Fault.HTTP),
        (b"PRI * HTTP/2.0\r\n\r\n", Fault.HTTP),
        (b"\xff\xff\xff\xff" + bytes(20), Fault.FRAME_SIZE),
        (b"\0\0\0\0" + bytes(20), Fault.FRAME_SIZE),
        (b"\0\0\0\7" + bytes(20), Fault.FRAME_SIZE),
        ((1_000_001).to_bytes(4, "big") + bytes(20), Fault.FRAME_SIZE),
        (b"\0\0\0\x0c\x7f\x77\0\1\0\0\0\1\xff\xff\0\0", Fault.UNKNOWN_API),
        (b"\0\0\0\x0c\xff\xfe\0\1\0\0\0\1\xff\xff\0\0", Fault.UNKNOWN_API),
        (b"\0\0\0\x0c\0\x34\0\0\0\0\0\1\xff\xff\0\0", Fault.UNKNOWN_API),  # Vote
        (b"\0\0\0\x0c\0\x4f\0\1\0\0\0\1\xff\xff\0\0", Fault.UNKNOWN_API),  # no handler
        (b"\0\0\0\x0c\0\x4e\0\0\0\0\0\1\xff\xff\0\0", Fault.UNSUPPORTED_VERSION),
        (b"\0\0\0\x0c\0\3\0\x63\0\0\0\1\xff\xff\0\0", Fault.UNSUPPORTED_VERSION),
        (b"\0\0\0\x0c\0\1\0\x13\0\0\0\1\xff\xff\0\0", Fault.UNSUPPORTED_VERSION),
        (b"\0\0\0\x0c\0\0\0\x09\0\0\0\1\x00\x30\0\0", Fault.HEADER),  # client id of 48 bytes
        (b"\0\x81\0\0\0\x4e\0\1" + bytes(8), Fault.FRAME_SIZE),  # too much for a handler
    ],
)
def test_bad_input_ends_the_connection(data: bytes, fault: Fault) -> None:
    state = session() if fault is not Fault.FRAME_SIZE or data[1] != 0x81 else session(10**8)
    effects = state.from_client(data)
    assert [type(effect) for effect in effects] == [Failed]
    failed = effects[0]
    assert isinstance(failed, Failed)
    assert (failed.fault, failed.side) == (fault, Side.CLIENT)
    assert state.from_client(request(ApiKey.HEARTBEAT)) == []


def test_what_came_before_the_fault_still_passes() -> None:
    state = session()
    asked = request(ApiKey.HEARTBEAT)
    passed, failed = state.from_client(asked + b"\xff" * 20)
    assert passed == ToUpstream(asked)
    assert isinstance(failed, Failed)


def test_http_is_only_looked_for_in_the_first_frame() -> None:
    state = session()
    state.from_client(request(ApiKey.HEARTBEAT))
    (failed,) = state.from_client(b"GET / HTTP/1.1\r\n\r\n")
    assert isinstance(failed, Failed)
    assert failed.fault is Fault.FRAME_SIZE


@pytest.mark.parametrize(
    ("answer", "fault"),
    [
        (response(ApiKey.LIST_OFFSETS, correlation_id=8), Fault.OUT_OF_STEP),
        (b"\0\0\0\3\0\0\0\7\0", Fault.FRAME_SIZE),
        (b"\x7f\0\0\0\0\0\0\7", Fault.FRAME_SIZE),
    ],
)
def test_a_broken_upstream_ends_the_connection(answer: bytes, fault: Fault) -> None:
    state = session()
    state.from_client(request(ApiKey.LIST_OFFSETS, correlation_id=7))
    (failed,) = state.from_upstream(answer)
    assert isinstance(failed, Failed)
    assert (failed.fault, failed.side) == (fault, Side.UPSTREAM)


def test_a_response_nobody_asked_for_ends_the_connection() -> None:
    (failed,) = session().from_upstream(response(ApiKey.HEARTBEAT))
    assert isinstance(failed, Failed)
    assert failed.fault is Fault.OUT_OF_STEP


@pytest.mark.parametrize("records", [0, 100_000])
def test_a_fetch_response_that_cannot_be_walked_ends_the_connection(records: int) -> None:
    state = session()
    state.from_client(request(ApiKey.FETCH))
    message = {"Responses": [{"Partitions": [{"Records": bytes(records)}]}]}
    whole = response(ApiKey.FETCH, message=message)
    answer = (len(whole) - 5).to_bytes(4, "big") + whole[4:-1]  # the last tagged fields are missing
    effects = state.from_upstream(answer)
    failed = effects[-1]
    assert isinstance(failed, Failed)
    assert failed.fault is Fault.MALFORMED_RESPONSE


def test_a_truncated_request_is_told_from_a_clean_end() -> None:
    state = session()
    assert state.client_ended() == []
    state = session()
    state.from_client(request(ApiKey.LIST_OFFSETS)[:-2])
    assert state.client_ended() == [Failed(Fault.TRUNCATED, Side.CLIENT, "missing_bytes=2")]
    state = session()
    state.from_client(HEARTBEAT[:-1])
    assert state.client_ended() == [Failed(Fault.TRUNCATED, Side.CLIENT, "missing_bytes=1")]
    state = session()
    state.from_client(HEARTBEAT[:3])
    assert state.client_ended() == [Failed(Fault.TRUNCATED, Side.CLIENT, "in the header")]


def test_a_truncated_response_is_told_from_a_clean_end() -> None:
    state = session()
    state.from_client(request(ApiKey.METADATA))
    state.from_upstream(response(ApiKey.METADATA)[:-1])
    assert state.upstream_ended() == [Failed(Fault.TRUNCATED, Side.UPSTREAM, "missing_bytes=1")]
    assert session().upstream_ended() == []


def test_a_client_that_never_reads_its_answers_is_not_read_on() -> None:
    state = session()
    many = b"".join(request(ApiKey.HEARTBEAT, correlation_id=n) for n in range(2_000))
    passed = to_upstream(state.from_client(many))
    assert state.calls_open == 1_024
    assert state.held_bytes == len(many) - len(passed)
    for n in range(2_000):
        passed += to_upstream(state.from_upstream(response(ApiKey.HEARTBEAT, correlation_id=n)))
    assert passed == many
    assert state.answered_all
    assert not state.mid_request


# ---------------------------------------------------------------------------------- DescribeConfigs

TOPIC_RESOURCE, BROKER_RESOURCE = 2, 4


def describe_configs(*kinds: int, version: int = 4) -> bytes:
    resources = [
        {"ResourceType": kind, "ResourceName": "1", "ConfigurationKeys": None} for kind in kinds
    ]
    return request(ApiKey.DESCRIBE_CONFIGS, version, {"Resources": resources}, correlation_id=9)


@pytest.mark.parametrize("version", [1, 4])
def test_configs_of_topics_pass_as_they_come(version: int) -> None:
    """35 KB of request can ask for 95 MB of answer: it must not gather here."""
    state = session()
    asked = describe_configs(TOPIC_RESOURCE, TOPIC_RESOURCE, version=version)
    sent = b"".join(to_upstream(state.from_client(asked[at : at + 1])) for at in range(len(asked)))
    assert sent == asked
    answer = response(ApiKey.DESCRIBE_CONFIGS, version, correlation_id=9)
    assert to_client(state.from_upstream(answer[:11])) == answer[:11]
    assert to_client(state.from_upstream(answer[11:])) == answer[11:]
    assert state.answered_all
    assert not state.mid_request


@pytest.mark.parametrize("kinds", [(BROKER_RESOURCE,), (TOPIC_RESOURCE, BROKER_RESOURCE)])
def test_configs_of_brokers_are_rewritten(kinds: tuple[int, ...]) -> None:
    state = session()
    asked = describe_configs(*kinds)
    assert to_upstream(state.from_client(asked)) == asked
    (effect,) = state.from_upstream(response(ApiKey.DESCRIBE_CONFIGS, 4, correlation_id=9))
    assert isinstance(effect, Rewrite)


def test_configs_of_a_virtual_broker_are_those_of_upstreams() -> None:
    two = rules(LOCAL, slots=Slots(2))
    for kind, asked, wanted in ((4, "1000001", "1"), (8, "1000002", "2"), (4, "2", "2")):
        state = ConnectionState(two, ApiCounts())
        body = {"Resources": [{"ResourceType": kind, "ResourceName": asked}], "IncludeSynonyms": 1}
        sent = to_upstream(
            state.from_client(request(ApiKey.DESCRIBE_CONFIGS, 4, body, correlation_id=9))
        )
        body["Resources"][0]["ResourceName"] = wanted  # type: ignore[index]
        assert sent == request(ApiKey.DESCRIBE_CONFIGS, 4, body, correlation_id=9)
        (effect,) = state.from_upstream(response(ApiKey.DESCRIBE_CONFIGS, 4, correlation_id=9))
        assert isinstance(effect, Rewrite), "its answer gets the client's name again"


def test_a_describe_configs_that_cannot_be_read_is_upstreams_to_refuse() -> None:
    state = session()
    asked = describe_configs(TOPIC_RESOURCE)
    malformed = (len(asked) - 6).to_bytes(4, "big") + asked[4:-2]
    assert to_upstream(state.from_client(malformed)) == malformed
    (effect,) = state.from_upstream(response(ApiKey.DESCRIBE_CONFIGS, 4, correlation_id=9))
    assert isinstance(effect, Rewrite)


def test_a_request_behind_a_describe_configs_keeps_its_place() -> None:
    state = session()
    first, second = describe_configs(TOPIC_RESOURCE), request(ApiKey.LIST_OFFSETS, correlation_id=8)
    assert to_upstream(state.from_client(first + second)) == first + second
    answers = [
        response(ApiKey.DESCRIBE_CONFIGS, 4, correlation_id=9),
        response(ApiKey.LIST_OFFSETS, correlation_id=8),
    ]
    assert to_client(state.from_upstream(b"".join(answers))) == b"".join(answers)


@pytest.mark.parametrize(
    ("api", "most"), [(ApiKey.DESCRIBE_CLUSTER, 16 << 20), (ApiKey.METADATA, 64 << 20)]
)
def test_a_response_too_large_to_be_rewritten_ends_the_connection(api: ApiKey, most: int) -> None:
    def begun(size: int) -> list[Effect]:
        state = session(frame_bytes_max=100_000_000)
        state.from_client(request(api, correlation_id=3))
        return state.from_upstream(size.to_bytes(4, "big") + b"\0\0\0\3" + bytes(100))

    assert begun(most) == []
    (effect,) = begun(most + 1)
    assert isinstance(effect, Failed)
    assert effect.fault is Fault.FRAME_SIZE


def test_a_request_that_is_read_whole_counts_until_it_is_answered() -> None:
    state = session()
    later = request(ApiKey.HEARTBEAT, correlation_id=51)
    state.from_client(HEARTBEAT[:20])
    assert (state.collected_bytes, state.mid_request) == (16, True)
    state.from_client(HEARTBEAT[20:])
    assert (state.collected_bytes, state.mid_request) == (len(HEARTBEAT) - 4, False)
    state.answered(response(ApiKey.SHARE_GROUP_HEARTBEAT, correlation_id=50))
    assert state.collected_bytes == 0
    state.from_client(later)
    state.from_client(HEARTBEAT)
    assert state.collected_bytes == len(HEARTBEAT) - 4, "it waits for the answers before it"
    state.forget()
    assert (state.collected_bytes, state.held_bytes) == (0, 0)
    assert state.from_client(HEARTBEAT) == []


# ------------------------------------------------------------------------------------ counts, times


MS = 1_000_000


def counted() -> tuple[ConnectionState, ApiCounts]:
    counts = ApiCounts()
    return ConnectionState(rules(LOCAL), counts), counts


def took_ms(counts: ApiCounts) -> dict[int, float]:
    """The time of all requests of an API together."""
    return {key: times.sum_ns / MS for key, times in counts.times.items()}


def test_a_forwarded_request_takes_from_its_last_byte_to_the_last_of_its_answer() -> None:
    state, counts = counted()
    asked, answer = request(ApiKey.LIST_OFFSETS), response(ApiKey.LIST_OFFSETS)
    state.from_client(asked[:-1], 1 * MS)
    state.from_client(asked[-1:], 5 * MS)
    state.from_upstream(answer[:-1], 7 * MS)
    assert took_ms(counts) == {}
    state.from_upstream(answer[-1:], 11 * MS)
    assert took_ms(counts) == {ApiKey.LIST_OFFSETS: 6}
    assert counts.times[ApiKey.LIST_OFFSETS].buckets[3] == 1, "5 to 10 ms"


def test_requests_in_a_row_wait_for_each_other() -> None:
    state, counts = counted()
    asked, answer = request(ApiKey.LIST_OFFSETS), response(ApiKey.LIST_OFFSETS)
    state.from_client(asked + asked, 1 * MS)
    state.from_upstream(answer, 3 * MS)
    state.from_upstream(answer, 8 * MS)
    assert took_ms(counts) == {ApiKey.LIST_OFFSETS: 2 + 7}


def test_a_request_that_is_answered_here_takes_until_it_is_answered() -> None:
    state, counts = counted()
    state.from_client(request(ApiKey.METADATA, correlation_id=1), 1 * MS)
    state.from_client(HEARTBEAT, 2 * MS)
    state.from_upstream(response(ApiKey.METADATA, correlation_id=1), 4 * MS)
    state.answered(response(ApiKey.SHARE_GROUP_HEARTBEAT), 9 * MS)
    assert took_ms(counts) == {ApiKey.METADATA: 3, ApiKey.SHARE_GROUP_HEARTBEAT: 7}


def test_a_request_without_an_answer_is_counted_and_takes_no_time() -> None:
    state, counts = counted()
    state.from_client(request(ApiKey.PRODUCE, 11, {"Acks": 0}), 1 * MS)
    state.inject(request(ApiKey.METADATA, correlation_id=900), 900)
    state.from_upstream(response(ApiKey.METADATA, correlation_id=900), 2 * MS)
    assert counts.requests == {ApiKey.PRODUCE: 1}
    assert took_ms(counts) == {}


def test_bytes_by_topic_count_once_a_client_has_authenticated() -> None:
    """A stranger, who may send whatever upstream refuses, moves no counter."""
    counts = ApiCounts()
    state = ConnectionState(rules(LOCAL, sasl=True), counts)
    topic = {"Name": "t", "PartitionData": [{"Index": 0, "Records": b"records"}]}
    asked = request(ApiKey.PRODUCE, 11, {"Acks": 0, "TopicData": [topic]})
    state.from_client(asked)
    assert counts.topics.take() == ([], [])
    state.from_client(request(ApiKey.SASL_AUTHENTICATE, 2))
    state.from_upstream(response(ApiKey.SASL_AUTHENTICATE, 2))
    state.release(0)
    state.from_client(asked)
    assert counts.topics.take() == ([("other", 7)], [])
