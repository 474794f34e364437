"""Brokers that admin requests name: upstream's on the way there, the client's on the way back."""

from __future__ import annotations

from typing import Any

import pytest

from gateway.core.cluster.slots import ONE_SLOT, Slots
from gateway.core.forwarding.broker_names import named_for_client, named_for_upstream
from gateway.core.wire.apis import ApiKey

TWO = Slots(2)


@pytest.mark.parametrize(
    ("key", "asked", "wanted"),
    [
        (ApiKey.UNREGISTER_BROKER, {"BrokerId": 1_000_003}, {"BrokerId": 3}),
        (
            ApiKey.ALTER_PARTITION_REASSIGNMENTS,
            {"Topics": [{"Partitions": [{"Replicas": [1_000_001, 2]}, {"Replicas": None}]}]},
            {"Topics": [{"Partitions": [{"Replicas": [1, 2]}, {"Replicas": None}]}]},
        ),
        (
            ApiKey.CREATE_TOPICS,
            {"Topics": [{"Assignments": [{"BrokerIds": [2, 1_000_001]}]}]},
            {"Topics": [{"Assignments": [{"BrokerIds": [2, 1]}]}]},
        ),
        (
            ApiKey.CREATE_PARTITIONS,
            {"Topics": [{"Assignments": None}, {"Assignments": [{"BrokerIds": [1_000_001]}]}]},
            {"Topics": [{"Assignments": None}, {"Assignments": [{"BrokerIds": [1]}]}]},
        ),
    ],
)
def test_ids_are_upstreams(key: int, asked: dict[str, Any], wanted: dict[str, Any]) -> None:
    assert named_for_upstream(key, asked, TWO) == {}
    assert asked == wanted


def resource(kind: int, name: str) -> dict[str, Any]:
    return {"ResourceType": kind, "ResourceName": name}


def test_configs_of_brokers_are_asked_for_and_answered() -> None:
    """The default of all brokers has no name, and a topic may be named like a number."""
    rows = [
        resource(4, "1000001"),
        resource(8, "1000001"),
        resource(4, "2"),
        resource(4, ""),
        resource(2, "1000001"),
    ]
    body = {"Resources": rows}
    used = named_for_upstream(ApiKey.ALTER_CONFIGS, body, TWO)
    assert [row["ResourceName"] for row in rows] == ["1", "1", "2", "", "1000001"]
    named_for_client(rows, used)
    assert [row["ResourceName"] for row in rows] == ["1000001", "1000001", "2", "", "1000001"]


def test_with_one_slot_nothing_changes() -> None:
    body = {"Resources": [resource(4, "1000001")]}
    assert named_for_upstream(ApiKey.ALTER_CONFIGS, body, ONE_SLOT) == {}
    assert body["Resources"][0]["ResourceName"] == "1000001"
