"""docs/deploy.md names the rights that a node needs: with exactly those, everything works."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml
from confluent_kafka import AcknowledgeType, ShareConsumer
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)

from gateway.embedded.kafka import KafkaCluster
from tests.integration.security.test_group_acls import ANSWER_S_MAX, guarded
from tests.rig.committed import committed
from tests.rig.gateway_process import GatewayProcess
from tests.rig.kafka import create_topic, produce, read_partition
from tests.rig.operating import rest
from tests.rig.patience import wait_until

pytestmark = [pytest.mark.deep, pytest.mark.integration]
__all__ = ["guarded"]  # the broker with an authorizer

DEPLOY = Path(__file__).parents[3] / "docs" / "deploy.md"
ROW = re.compile(r"^\| (.+?) \| ([A-Z_]+) \|", re.MULTILINE)
TOPIC, LETTERS, GROUP = "rights-topic", "rights-letters", "rights-group"
RESOURCES = {
    "topics of Key-Shared groups": (ResourceType.TOPIC, TOPIC),
    "Key-Shared groups": (ResourceType.GROUP, GROUP),
    "dead-letter topics": (ResourceType.TOPIC, LETTERS),
    "the cluster": (ResourceType.BROKER, "kafka-cluster"),
}


def rights_of_the_page() -> list[tuple[ResourceType, str, AclOperation]]:
    _, _, section = DEPLOY.read_text().partition("### Permissions of the gateway's identity")
    found = [
        (*RESOURCES[what], AclOperation[operation]) for what, operation in ROW.findall(section)
    ]
    assert len(found) >= 7
    return found


def allow(
    cluster: KafkaCluster, user: str, *rights: tuple[ResourceType, str, AclOperation]
) -> None:
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
    bindings = [
        AclBinding(
            kind,
            name,
            ResourcePatternType.LITERAL,
            f"User:{user}",
            "*",
            operation,
            AclPermissionType.ALLOW,
        )
        for kind, name, operation in rights
    ]
    for answer in admin.create_acls(bindings).values():
        answer.result(ANSWER_S_MAX)


def test_a_node_with_the_rights_of_the_page(
    guarded: tuple[KafkaCluster, str],
    tmp_path: Path,
) -> None:
    """A group is read, committed and configured, writes a dead letter, and is deleted."""
    cluster, address = guarded
    for name in (TOPIC, LETTERS):
        create_topic(cluster.bootstrap_servers, name)
    records = [(b"k%d" % at, b"%d" % at) for at in range(5)]
    produce(cluster.bootstrap_servers, TOPIC, records)
    allow(cluster, "node", *rights_of_the_page())
    as_owner = [(ResourceType.TOPIC, TOPIC), (ResourceType.GROUP, GROUP)]
    allow(cluster, "owner", *[(kind, name, AclOperation.READ) for kind, name in as_owner])
    policy = {
        "match": GROUP,
        "auto_offset_reset": "earliest",
        "rejected": "dead_letter",
        "dead_letter_topic": LETTERS,
    }
    gateway = GatewayProcess(tmp_path, address, groups=[policy])
    settings = yaml.safe_load(gateway.config.read_text())
    settings["upstream"]["sasl"] = {"username": "node", "password": "node-secret"}
    gateway.config.write_text(yaml.safe_dump(settings))
    with gateway:
        consumer = ShareConsumer(
            {
                "bootstrap.servers": gateway.bootstrap,
                "group.id": GROUP,
                "share.acknowledgement.mode": "explicit",
                "security.protocol": "SASL_PLAINTEXT",
                "sasl.mechanism": "PLAIN",
                "sasl.username": "owner",
                "sasl.password": "owner-secret",
            }
        )
        consumer.subscribe([TOPIC])
        seen: set[bytes | None] = set()

        def all_seen() -> bool:
            for message in consumer.poll(timeout=0.5):
                assert message.error() is None, message.error()
                bad = message.value() == b"3"
                seen.add(message.value())
                verdict = AcknowledgeType.REJECT if bad else AcknowledgeType.ACCEPT
                consumer.acknowledge(message, verdict)
            return len(seen) == len(records)

        wait_until(all_seen, what="all records", deadline_s=60)
        consumer.close()
        wait_until(
            lambda: committed(cluster, GROUP, TOPIC, 0)[0] == len(records),
            what="the commit",
            deadline_s=60,
        )
        letters = read_partition(cluster.bootstrap_servers, LETTERS, 0)
        assert [value for _, _, value in letters] == [b"3"]
        values = {"values": {"deliveries_max": "4"}}
        status, answer = rest(gateway, f"/v1/settings?group={GROUP}", values, method="PUT")
        assert status == 200, answer
        status, answer = rest(gateway, f"/v1/settings?group={GROUP}")
        (row,) = [setting for setting in answer["settings"] if setting["name"] == "deliveries_max"]
        assert (str(row["value"]), row["origin"]) == ("4", "kafka")
        status, answer = rest(gateway, "/health")
        assert (status, answer["reasons"]) == (200, [])
        status, answer = rest(gateway, f"/v1/groups/{GROUP}", method="DELETE")
        assert status == 200, answer
        wait_until(
            lambda: committed(cluster, GROUP, TOPIC, 0)[0] == -1, what="deleted", deadline_s=60
        )
        assert "authoriz" not in gateway.log_text().lower()
