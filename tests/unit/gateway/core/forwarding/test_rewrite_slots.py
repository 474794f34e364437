"""Answers where brokers have two slots: what clients, and what admin tools are shown."""

from __future__ import annotations

from typing import Any

import pytest

from gateway.core.cluster.slots import Slots
from gateway.core.forwarding.effects import Rewrite
from gateway.core.forwarding.rewrite import Address, read, write
from gateway.core.forwarding.served_apis import rules
from gateway.core.wire.apis import ApiKey
from gateway.core.wire.codec import decode_response
from gateway.core.wire.frames import parse_response_header
from tests.rig.wire_frames import response

TWO = Slots(2)
RULES = rules([], slots=TWO)
ADDRESSES = {
    virtual: Address("gate", 9_200 + broker + 1_000 * slot)
    for broker in (1, 2)
    for slot, virtual in enumerate(TWO.all_of(broker))
}
ID = b"orders" + bytes(10)
SLOTS = [TWO.slot(ID, partition) for partition in range(4)]


def rewritten(
    key: int, version: int, message: dict[str, Any], asked: int | None = None
) -> dict[str, Any]:
    payload = response(key, version, message)[4:]
    frame = write(read(Rewrite(key, version, payload)), ADDRESSES, RULES, asked)
    body_at = parse_response_header(key, version, frame[4:]).body_at
    return decode_response(key, version, frame[4:], body_at)


def metadata(version: int) -> dict[str, Any]:
    partitions = [
        {"PartitionIndex": at, "LeaderId": 1 + at % 2, "ReplicaNodes": [1, 2], "IsrNodes": [2]}
        for at in range(4)
    ]
    partitions.append({"PartitionIndex": 4, "LeaderId": -1})
    topic = {"Name": "orders", "Partitions": partitions} | ({"TopicId": ID} if version > 9 else {})
    brokers = [{"NodeId": broker, "Host": "up", "Port": 9} for broker in (1, 2)]
    message = {"Brokers": brokers, "ControllerId": 2, "Topics": [topic]}
    return rewritten(ApiKey.METADATA, version, message)


def test_clients_are_shown_all_virtual_brokers_and_those_that_lead() -> None:
    assert set(SLOTS) == {0, 1}, "or the test shows nothing"
    message = metadata(13)
    shown = {row["NodeId"]: (row["Host"], row["Port"]) for row in message["Brokers"]}
    assert shown == ADDRESSES
    partitions = message["Topics"][0]["Partitions"]
    leaders = [row["LeaderId"] for row in partitions]
    assert leaders == [TWO.virtual(1 + at % 2, SLOTS[at]) for at in range(4)] + [-1]
    # A client knows all of them: it would show an unknown one without a host.
    assert all((row["ReplicaNodes"], row["IsrNodes"]) == ([1, 2], [2]) for row in partitions[:4])
    assert message["ControllerId"] == 2


def test_a_client_without_topic_ids_finds_upstreams_leaders() -> None:
    partitions = metadata(9)["Topics"][0]["Partitions"]
    assert [row["LeaderId"] for row in partitions] == [1, 2, 1, 2, -1]


def test_an_admin_is_shown_upstreams_brokers() -> None:
    brokers = [{"BrokerId": broker, "Host": "up", "Port": 9} for broker in (1, 2)]
    message = rewritten(ApiKey.DESCRIBE_CLUSTER, 2, {"EndpointType": 1, "Brokers": brokers})
    assert [(row["BrokerId"], row["Port"]) for row in message["Brokers"]] == [(1, 9201), (2, 9202)]


@pytest.mark.parametrize(
    ("key", "version", "partitions", "index"),
    [
        (ApiKey.PRODUCE, 13, "PartitionResponses", "Index"),
        (ApiKey.FETCH, 18, "Partitions", "PartitionIndex"),
    ],
)
def test_a_new_leader_is_a_virtual_broker(
    key: int, version: int, partitions: str, index: str
) -> None:
    rows = [
        {index: at, "CurrentLeader": {"LeaderId": 2, "LeaderEpoch": 5}, "ErrorCode": 6}
        for at in range(4)
    ]
    rows.append({index: 4})
    message = {
        "Responses": [{"TopicId": ID, partitions: rows}],
        "NodeEndpoints": [{"NodeId": 2, "Host": "up", "Port": 9}],
    }
    answer = rewritten(key, version, message)
    found = answer["Responses"][0][partitions]
    leaders = [row["CurrentLeader"]["LeaderId"] for row in found]
    assert leaders == [TWO.virtual(2, slot) for slot in SLOTS] + [-1]
    endpoints = {row["NodeId"]: row["Port"] for row in answer["NodeEndpoints"]}
    assert endpoints == {2: 9202, 1_000_002: 10_202}, "each leader has an endpoint"


def test_a_broker_is_described_under_the_name_it_was_asked_by() -> None:
    configs = [{"Name": "advertised.listeners", "Value": "PLAINTEXT://up:9"}]
    message = {"Results": [{"ResourceType": 4, "ResourceName": "1", "Configs": configs}]}
    for asked, port in ((1, 9201), (1_000_001, 10_201)):
        (row,) = rewritten(ApiKey.DESCRIBE_CONFIGS, 4, message, asked)["Results"]
        assert row["ResourceName"] == str(asked)
        assert row["Configs"][0]["Value"] == f"PLAINTEXT://gate:{port}"
