"""The gateway's own in place of upstream addresses and upstream's list of APIs."""

from __future__ import annotations

from typing import Any

import pytest

from gateway.core.cluster.topology import Broker
from gateway.core.forwarding.effects import Rewrite
from gateway.core.forwarding.rewrite import Address, OfferedApis, read, write
from gateway.core.forwarding.served_apis import rules
from gateway.core.wire.apis import ApiKey
from gateway.core.wire.codec import decode_response, encode_response
from gateway.core.wire.errors import WireError
from gateway.core.wire.frames import parse_response_header
from tests.rig.wire_frames import response

SHARE = (
    ApiKey.SHARE_GROUP_HEARTBEAT,
    ApiKey.SHARE_GROUP_DESCRIBE,
    ApiKey.SHARE_FETCH,
    ApiKey.SHARE_ACKNOWLEDGE,
)
RULES = rules(SHARE)
ADDRESSES = {1: Address("gate", 9_201), 2: Address("gate", 9_202)}


def rewritten(key: int, version: int, message: dict[str, Any]) -> dict[str, Any]:
    payload = response(key, version, message)[4:]
    shown = read(Rewrite(key, version, payload))
    frame = write(shown, ADDRESSES, RULES)
    body_at = parse_response_header(key, shown.version, frame[4:]).body_at
    return decode_response(key, shown.version, frame[4:], body_at)


def api(key: int, low: int, high: int) -> dict[str, int]:
    return {"ApiKey": key, "MinVersion": low, "MaxVersion": high}


def clamped(*upstream: dict[str, int]) -> dict[int, tuple[int, int]]:
    message = rewritten(ApiKey.API_VERSIONS, 4, {"ApiKeys": list(upstream)})
    keys = [each["ApiKey"] for each in message["ApiKeys"]]
    assert keys == sorted(set(keys))
    return {each["ApiKey"]: (each["MinVersion"], each["MaxVersion"]) for each in message["ApiKeys"]}


def test_offered_apis_are_the_same_bytes_for_every_connection() -> None:
    """200 connections that asked at the same time held the node up for 100 ms."""
    known = OfferedApis(RULES)
    versions = {"ApiKeys": [api(ApiKey.METADATA, 0, 99), api(ApiKey.SHARE_FETCH, 0, 9)]}
    for version in (0, 2, 3, 4):
        for correlation in (7, 8):
            payload = response(ApiKey.API_VERSIONS, version, versions, correlation_id=correlation)[
                4:
            ]
            rewrite = Rewrite(ApiKey.API_VERSIONS, version, payload)
            assert known.frame(rewrite) == write(read(rewrite), {}, RULES)
    other = {"ApiKeys": [api(ApiKey.METADATA, 0, 3)]}
    rewrite = Rewrite(ApiKey.API_VERSIONS, 4, response(ApiKey.API_VERSIONS, 4, other)[4:])
    assert known.frame(rewrite) == write(read(rewrite), {}, RULES)
    with pytest.raises(WireError):
        known.frame(Rewrite(ApiKey.API_VERSIONS, 4, rewrite.payload[:-1]))


def test_share_apis_are_offered_whatever_upstream_has() -> None:
    ours = {76: (1, 1), 77: (1, 1), 78: (1, 2), 79: (1, 2)}
    assert clamped() == ours
    assert clamped(api(76, 0, 0), api(78, 0, 9), api(79, 1, 1)) == ours


def test_share_apis_without_a_handler_are_not_offered() -> None:
    assert not {90, 91, 92} & clamped(api(90, 0, 1), api(91, 0, 0), api(92, 0, 0)).keys()


def test_versions_are_clamped_to_what_is_known() -> None:
    got = clamped(
        api(ApiKey.METADATA, 0, 99),
        api(ApiKey.FETCH, 4, 99),
        api(ApiKey.LIST_OFFSETS, 1, 99),
        api(ApiKey.PRODUCE, 3, 99),
        api(ApiKey.SASL_HANDSHAKE, 0, 1),
        api(ApiKey.FIND_COORDINATOR, 7, 9),  # nothing of this is known
        api(999, 0, 1),
        api(ApiKey.VOTE, 0, 2),
    )
    assert got[ApiKey.METADATA] == (0, 13)
    assert got[ApiKey.FETCH] == (4, 18)
    assert got[ApiKey.LIST_OFFSETS] == (1, 11)
    assert got[ApiKey.PRODUCE] == (0, 13)
    assert got[ApiKey.SASL_HANDSHAKE] == (1, 1)
    assert got.keys() - set(SHARE) == {0, 1, 2, 3, 17}


def test_old_upstreams_keep_their_old_versions_of_what_passes_unread() -> None:
    got = clamped(api(ApiKey.FETCH, 0, 11), api(ApiKey.JOIN_GROUP, 0, 5))
    assert got[ApiKey.FETCH] == (0, 11)
    assert got[ApiKey.JOIN_GROUP] == (0, 5)


def test_features_stay_as_upstream_has_them() -> None:
    features = {
        "SupportedFeatures": [{"Name": "share.version", "MinVersion": 0, "MaxVersion": 1}],
        "FinalizedFeaturesEpoch": 17,
        "FinalizedFeatures": [
            {"Name": "share.version", "MaxVersionLevel": 1, "MinVersionLevel": 1}
        ],
    }
    message = rewritten(ApiKey.API_VERSIONS, 3, features)
    assert {name: message[name] for name in features} == features


def test_an_upstream_that_is_older_than_the_client_answers_in_v0() -> None:
    body = encode_response(
        ApiKey.API_VERSIONS, 0, {"ErrorCode": 35, "ApiKeys": [api(ApiKey.API_VERSIONS, 0, 2)]}
    )
    shown = read(Rewrite(ApiKey.API_VERSIONS, 4, b"\0\0\0\1" + body))
    frame = write(shown, ADDRESSES, RULES)
    assert frame == (4 + len(body)).to_bytes(4, "big") + b"\0\0\0\1" + body


def test_unknown_tagged_fields_stay() -> None:
    message = rewritten(ApiKey.METADATA, 12, {"_tags": {40: b"new"}})
    assert message["_tags"] == {40: b"new"}


@pytest.mark.parametrize("version", [0, 3, 4, 6])
def test_coordinators_that_are_not_known_stay_unknown(version: int) -> None:
    nowhere = {"NodeId": -1, "Host": "", "Port": -1, "ErrorCode": 15, "ErrorMessage": "later"}
    message = nowhere if version < 4 else {"Coordinators": [{**nowhere, "Key": "g"}]}
    got = rewritten(ApiKey.FIND_COORDINATOR, version, message)
    found = got if version < 4 else got["Coordinators"][0]
    assert {name: found[name] for name in ("NodeId", "Host", "Port", "ErrorCode")} == {
        "NodeId": -1,
        "Host": "",
        "Port": -1,
        "ErrorCode": 15,
    }


def shown_brokers(key: int, version: int, message: dict[str, Any]) -> tuple[Broker, ...]:
    return read(Rewrite(key, version, response(key, version, message)[4:])).brokers


def test_the_brokers_a_response_shows_are_told_to_the_shell() -> None:
    node = {"NodeId": 3, "Host": "up", "Port": 9, "Rack": "r"}
    assert shown_brokers(ApiKey.METADATA, 9, {"Brokers": [node]}) == (Broker(3, "up", 9),)
    endpoints = {"NodeEndpoints": [node]}
    assert shown_brokers(ApiKey.PRODUCE, 10, endpoints) == (Broker(3, "up", 9),)
    assert shown_brokers(ApiKey.FETCH, 16, endpoints) == (Broker(3, "up", 9),)
    found = {"NodeId": 3, "Host": "up", "Port": 9}
    both = {"Coordinators": [found, {**found, "NodeId": -1, "Host": "", "Port": -1}]}
    assert shown_brokers(ApiKey.FIND_COORDINATOR, 4, both) == (Broker(3, "up", 9),)
    assert shown_brokers(ApiKey.FIND_COORDINATOR, 2, found) == (Broker(3, "up", 9),)


def test_controllers_and_fenced_brokers_are_no_virtual_brokers() -> None:
    broker = {"BrokerId": 3, "Host": "up", "Port": 9}
    fenced = {**broker, "BrokerId": 4, "IsFenced": True}
    message = {"EndpointType": 1, "Brokers": [broker, fenced]}
    assert shown_brokers(ApiKey.DESCRIBE_CLUSTER, 2, message) == (Broker(3, "up", 9),)
    assert shown_brokers(ApiKey.DESCRIBE_CLUSTER, 2, {**message, "EndpointType": 2}) == ()


def test_configs_of_topics_keep_their_values() -> None:
    config = {"Name": "listeners", "Value": "x"}
    result = {"ResourceType": 2, "Configs": [config]}
    message = rewritten(ApiKey.DESCRIBE_CONFIGS, 4, {"Results": [result]})
    assert message["Results"][0]["Configs"][0]["Value"] == "x"


def test_listeners_of_a_broker_are_those_of_its_virtual_broker() -> None:
    synonyms = [{"Name": "listeners", "Value": "PLAINTEXT://up:9"}]
    configs: list[dict[str, Any]] = [
        {"Name": "advertised.listeners", "Value": "SSL://up:9", "Synonyms": synonyms},
        {"Name": "listeners", "Value": "SSL://:9,CONTROLLER://:8"},
        {"Name": "advertised.listeners", "Value": None},
        {"Name": "controller.quorum.voters", "Value": "1@up:8"},
    ]

    def shown(resource: str) -> list[tuple[str | None, bool]]:
        rows = [{"ResourceType": 4, "ResourceName": resource, "Configs": configs}]
        (result,) = rewritten(ApiKey.DESCRIBE_CONFIGS, 4, {"Results": rows})["Results"]
        first = result["Configs"][0]
        assert [synonym["Value"] for synonym in first["Synonyms"]] == [first["Value"]]
        return [(config["Value"], config["IsSensitive"]) for config in result["Configs"]]

    here = "PLAINTEXT://gate:9201"
    assert shown("1") == [(here, False), (here, False), (None, False), (None, True)]
    # Of a broker that has no port here, and of the defaults of all brokers.
    assert shown("77") == shown("") == [(None, True)] * 4


def test_listeners_where_upstream_has_passwords_and_the_gateway_a_number() -> None:
    configs = [{"Name": "listeners", "Value": "x"}]
    message = {"Results": [{"ResourceType": 4, "ResourceName": "1", "Configs": configs}]}
    payload = response(ApiKey.DESCRIBE_CONFIGS, 4, message)[4:]
    shown = read(Rewrite(ApiKey.DESCRIBE_CONFIGS, 4, payload))
    frame = write(shown, {1: Address("::1", 9_201)}, rules([], sasl=True))
    assert b"SASL_PLAINTEXT://[::1]:9201" in frame


@pytest.mark.parametrize(("sasl", "protocol"), [(True, b"SASL_SSL"), (False, b"SSL")])
def test_listeners_where_clients_speak_tls(sasl: bool, protocol: bytes) -> None:
    configs = [{"Name": "listeners", "Value": "x"}]
    message = {"Results": [{"ResourceType": 4, "ResourceName": "1", "Configs": configs}]}
    shown = read(
        Rewrite(ApiKey.DESCRIBE_CONFIGS, 4, response(ApiKey.DESCRIBE_CONFIGS, 4, message)[4:])
    )
    frame = write(shown, ADDRESSES, rules([], sasl=sasl), secure=True)
    at = frame.index(b"SSL://gate:9201")
    assert frame[at + 3 - len(protocol) : at + 3] == protocol
    assert (b"SASL_" in frame) == sasl


def test_configs_without_addresses_keep_their_values() -> None:
    names = ["log.retention.ms", "listener.security.protocol.map"]
    configs = [{"Name": name, "Value": "x"} for name in names]
    message = rewritten(
        ApiKey.DESCRIBE_CONFIGS, 1, {"Results": [{"ResourceType": 4, "Configs": configs}]}
    )
    assert [config["Value"] for config in message["Results"][0]["Configs"]] == ["x", "x"]


def test_a_response_that_does_not_parse_is_a_wire_error() -> None:
    with pytest.raises(WireError):
        read(Rewrite(ApiKey.METADATA, 12, b"\0\0\0\1\0\0\0\0\0\xff\xff"))
