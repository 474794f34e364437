"""No upstream address reaches a client: every API and version whose response can show one.

Responses are filled from the tables themselves, every host a sentinel, and take the whole way:
ConnectionState, `read`, `write`. The result must not hold the sentinel, and must otherwise be the
response that went in.
"""

from __future__ import annotations

import copy
from typing import Any

import pytest

from gateway.core.forwarding.api_counts import ApiCounts
from gateway.core.forwarding.connection_state import ConnectionState
from gateway.core.forwarding.effects import Rewrite, ToClient
from gateway.core.forwarding.rewrite import Address, read, write
from gateway.core.forwarding.served_apis import REWRITTEN, rules
from gateway.core.wire.apis import APIS, KNOWN, ApiKey
from gateway.core.wire.codec import decode_response
from gateway.core.wire.frames import parse_response_header
from gateway.core.wire.schema import Field
from tests.rig.wire_frames import request, response

SENTINEL = "upstream-secret.internal"
PORT = 29_292
RULES = rules([])
ADDRESSES = {1: Address("gate.example", 9_201)}  # of broker 1; broker 7 has no listener
LEFT_OUT = 7

ADDRESS_FIELDS = {"Host", "Port"}
# Where an application of Kafka Streams itself is (application.server), as it has told.
THEIR_OWN = {ApiKey.STREAMS_GROUP_HEARTBEAT, ApiKey.STREAMS_GROUP_DESCRIBE}
SHARE = {ApiKey.SHARE_FETCH, ApiKey.SHARE_ACKNOWLEDGE}  # the gateway's own answers

CASES = [
    (key, version)
    for key in REWRITTEN
    for version in range(APIS[key].min_version, APIS[key].max_version + 1)
]


def names(fields: list[Field]) -> set[str]:
    found = set()
    for field in fields:
        found |= {field.name} | names(field.fields)
    return found


def test_every_api_of_the_tables_that_shows_an_address_is_rewritten() -> None:
    showing = {key for key, api in APIS.items() if names(api.response.fields) & ADDRESS_FIELDS}
    showing -= THEIR_OWN
    # Read for something else: versions, names of configs, partitions that are hidden.
    others = {ApiKey.API_VERSIONS, ApiKey.DESCRIBE_CONFIGS, ApiKey.DESCRIBE_TOPIC_PARTITIONS}
    assert showing - SHARE == set(REWRITTEN) - others
    assert showing <= set(REWRITTEN) | SHARE


def test_what_is_not_in_the_tables_and_shows_addresses_is_not_served() -> None:
    controllers_only = {
        ApiKey.VOTE,
        ApiKey.BEGIN_QUORUM_EPOCH,
        ApiKey.END_QUORUM_EPOCH,
        ApiKey.FETCH_SNAPSHOT,
        ApiKey.UPDATE_RAFT_VOTER,
        ApiKey.ENVELOPE,
    }
    assert not RULES.passed & (controllers_only | SHARE)
    assert RULES.passed <= set(KNOWN)


FILLERS: dict[str, Any] = {
    "Host": SENTINEL,
    "Port": PORT,
    "EndpointType": 1,
    "ResourceType": 4,
    "ResourceName": "1",
    "Value": f"PLAINTEXT://{SENTINEL}:{PORT}",
}


def filled(fields: list[Field], node: int) -> dict[str, Any]:
    """Two elements per array of structs: brokers 1 and 7."""
    message: dict[str, Any] = {}
    for field in fields:
        value = FILLERS.get(field.name, field.default_value())
        if field.name in ("NodeId", "BrokerId"):
            value = node
        elif field.fields and isinstance(value, list):
            value = [filled(field.fields, number) for number in (1, LEFT_OUT)]
        elif field.fields:
            value = filled(field.fields, node)
        message[field.name] = value
    if "Value" in message:
        message["Name"] = "advertised.listeners" if "Synonyms" in message else "listeners"
    return message


# Requests that decide whether the answer is read.
ASKED: dict[int, dict[str, Any]] = {
    ApiKey.PRODUCE: {"Acks": -1},
    ApiKey.DESCRIBE_CONFIGS: {"Resources": [{"ResourceType": 4, "ResourceName": "1"}]},
}


def through(key: int, version: int, message: dict[str, Any]) -> bytes:
    """The frame a client gets."""
    session = ConnectionState(RULES, ApiCounts())
    session.from_client(request(key, version, ASKED.get(key, {})))
    (effect,) = session.from_upstream(response(key, version, message))
    if isinstance(effect, ToClient):
        return bytes(effect.data)
    assert isinstance(effect, Rewrite)
    return write(read(effect), ADDRESSES, RULES)


def decoded(key: int, version: int, frame: bytes) -> dict[str, Any]:
    assert int.from_bytes(frame[:4], "big") == len(frame) - 4
    header = parse_response_header(key, version, frame[4:])
    assert header.correlation_id == 1
    return decode_response(key, version, frame[4:], header.body_at)


@pytest.mark.parametrize(("key", "version"), CASES, ids=lambda value: str(int(value)))
@pytest.mark.parametrize("node", [1, LEFT_OUT])
def test_no_upstream_address(key: int, version: int, node: int) -> None:
    message = filled(APIS[key].response.fields, node)
    before = decoded(key, version, response(key, version, message))
    frame = through(key, version, message)
    after = decoded(key, version, frame)
    assert SENTINEL.encode() not in frame
    assert PORT.to_bytes(4, "big") not in frame
    assert str(PORT).encode() not in frame
    assert after == expected(key, version, before)


def expected(key: int, version: int, before: dict[str, Any]) -> dict[str, Any]:
    after = copy.deepcopy(before)
    match key:
        case ApiKey.API_VERSIONS:
            after["ApiKeys"] = [{"ApiKey": 0, "MinVersion": 0, "MaxVersion": 0}] * 2
        case ApiKey.DESCRIBE_CONFIGS:
            for config in (each for result in after["Results"] for each in result["Configs"]):
                shown = {"Value": "PLAINTEXT://gate.example:9201"}
                config |= shown
                config["Synonyms"] = [{**each, **shown} for each in config["Synonyms"]]
        case ApiKey.DESCRIBE_QUORUM:
            for node in after["Nodes"]:
                shown = node["Listeners"] if node["NodeId"] != LEFT_OUT else []
                node["Listeners"] = [_at_gateway(each) for each in shown]
        case ApiKey.FIND_COORDINATOR:
            after["Coordinators"] = [_coordinator(each) for each in after["Coordinators"]]
            after = _coordinator(after) if version < 4 else after
        case ApiKey.DESCRIBE_CLUSTER:
            after["Brokers"] = _nodes(after["Brokers"], "BrokerId")
        case ApiKey.METADATA:
            after["Brokers"] = _nodes(after["Brokers"], "NodeId")
        case ApiKey.DESCRIBE_TOPIC_PARTITIONS:
            pass
        case _:
            after["NodeEndpoints"] = _nodes(after["NodeEndpoints"], "NodeId")
    return after


def _nodes(nodes: list[dict[str, Any]], id_field: str) -> list[dict[str, Any]]:
    return [_at_gateway(node) for node in nodes if node[id_field] != LEFT_OUT]


def _at_gateway(node: dict[str, Any]) -> dict[str, Any]:
    return {**node, "Host": "gate.example", "Port": 9_201}


def _coordinator(found: dict[str, Any]) -> dict[str, Any]:
    if found["NodeId"] == LEFT_OUT:
        return {**found, "NodeId": -1, "Host": "", "Port": -1, "ErrorCode": 15}
    return _at_gateway(found)


@pytest.mark.parametrize("version", [16, 17, 18])
def test_no_upstream_address_in_a_fetch_response_that_streams(version: int) -> None:
    message = {
        "Responses": [{"Partitions": [{"Records": b"r" * 200_000}]}],
        "NodeEndpoints": [{"NodeId": 1, "Host": SENTINEL, "Port": PORT, "Rack": "a"}],
    }
    session = ConnectionState(RULES, ApiCounts())
    session.from_client(request(ApiKey.FETCH, version))
    sent = response(ApiKey.FETCH, version, message)
    got = b""
    for start in range(0, len(sent), 9_000):
        for effect in session.from_upstream(sent[start : start + 9_000]):
            assert isinstance(effect, ToClient)
            got += effect.data
    assert len(got) == len(sent)
    assert SENTINEL.encode() not in got
    assert PORT.to_bytes(4, "big") not in got
    after = decoded(ApiKey.FETCH, version, got)
    assert after["NodeEndpoints"] == []
    assert after["Responses"] == decoded(ApiKey.FETCH, version, sent)["Responses"]
