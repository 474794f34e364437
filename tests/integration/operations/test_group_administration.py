"""A group's settings changed through the node, seen by Kafka; and a group deleted for good."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest
from confluent_kafka.admin import AdminClient, ConfigResource

from gateway.embedded.kafka import KafkaCluster
from tests.rig.clients.share_members import ShareHost
from tests.rig.gateway_process import GatewayProcess
from tests.rig.kafka import ANSWER_S_MAX, produce
from tests.rig.operating import keyway, rest
from tests.rig.patience import wait_until

pytestmark = pytest.mark.integration

Topic = Callable[..., str]
Names = Callable[[str], str]


def in_kafka(kafka: KafkaCluster, group: str) -> str | None:
    """The delivery limit that a broker shows for the group; None: it is not set there."""
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap_servers, "log_level": 4})
    resource = ConfigResource(ConfigResource.Type.GROUP, group)
    found = admin.describe_configs([resource])[resource].result(ANSWER_S_MAX)
    entry = found.get("share.delivery.count.limit")
    return None if entry is None or entry.source != 8 else str(entry.value)


def test_settings_and_the_end_of_a_group(
    gateway: GatewayProcess,
    kafka: KafkaCluster,
    topic: Topic,
    fresh_name: Names,
    librdkafka_host: ShareHost,
) -> None:
    name, group = topic(), fresh_name("to/delete")
    produce(gateway.bootstrap, name, [(b"a", b"1")])
    member = librdkafka_host.member(gateway.bootstrap, group, [name])
    assert [record.offset for record in member.poll_some()] == [0]

    status, said, _ = keyway(gateway, "group", "settings", group, "-o", "json")
    rows = {setting["name"]: setting for setting in json.loads(said)["settings"]}
    assert (status, rows["deliveries_max"]["kafka_name"]) == (0, "share.delivery.count.limit")
    change = ("group", "settings", group, "--set", "deliveries_max=3")
    status, said, _ = keyway(gateway, *change)
    assert (status, "nothing is done without --execute" in said) == (0, True)
    status, said, _ = keyway(gateway, *change, "--execute", "-o", "json")
    rows = {setting["name"]: setting for setting in json.loads(said)["settings"]}
    assert (rows["deliveries_max"]["value"], rows["deliveries_max"]["origin"]) == (3, "kafka")
    wait_until(lambda: in_kafka(kafka, group) == "3", what="the limit in Kafka", deadline_s=30)
    status, _, said = keyway(
        gateway, "group", "settings", group, "--set", "deliveries_max=0", "--execute"
    )
    assert (status, "share.delivery.count.limit" in said) == (1, True), "Kafka's own words"
    status, _, said = keyway(
        gateway, "group", "settings", group, "--set", "backoff_base_ms=1", "--execute"
    )
    assert (status, "set in keyway.yaml" in said) == (1, True)

    status, _, said = keyway(gateway, "group", "delete", group, "--execute")
    assert (status, group in said) == (1, True), "it has a member"
    member.close()
    wait_until(
        lambda: keyway(gateway, "group", "delete", group, "--execute")[0] == 0,
        what="the group deleted",
        deadline_s=30,
    )
    assert keyway(gateway, "group", "delete", group, "--execute")[0] == 1, "it is not there"
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap_servers, "log_level": 4})
    listed = admin.list_consumer_groups().result(ANSWER_S_MAX).valid
    assert group not in {row.group_id for row in listed}
    _, audit = rest(gateway, "/v1/audit?action=group.delete")
    outcomes = [entry["outcome"] for entry in audit["audit"] if entry["group"] == group]
    assert "done" in outcomes
