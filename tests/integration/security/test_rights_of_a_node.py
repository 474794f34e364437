"""docs/deploy.md names the rights that a node needs: with exactly those, everything works."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

import pytest
import yaml
from confluent_kafka import AcknowledgeType, KafkaException, ShareConsumer
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ResourcePatternType,
    ResourceType,
)

from gateway.core.share.dead_letter_queue import ENABLED, SHARE_VERSION_MIN, TOPIC_NAME
from gateway.embedded.jars import kafka_libs
from gateway.embedded.kafka import KafkaCluster
from tests.integration.security.test_group_acls import ANSWER_S_MAX, guarded, guarded_kafka
from tests.rig.committed import committed
from tests.rig.gateway_process import GatewayProcess, Settings
from tests.rig.kafka import NEWEST, create_topic, produce, read_partition
from tests.rig.operating import rest
from tests.rig.patience import wait_until

pytestmark = [pytest.mark.deep, pytest.mark.integration]
__all__ = ["guarded"]  # the broker with an authorizer

DEPLOY = Path(__file__).parents[3] / "docs" / "deploy.md"
ROW = re.compile(r"^\| (.+?) \| ([A-Z_]+) \|", re.MULTILINE)
TOPIC, LETTERS, GROUP = "rights-topic", "dlq.rights-letters", "rights-group"
RECORDS = [(b"k%d" % at, b"%d" % at) for at in range(5)]
AS_OWNER = {
    "security.protocol": "SASL_PLAINTEXT",
    "sasl.mechanism": "PLAIN",
    "sasl.username": "owner",
    "sasl.password": "owner-secret",
}
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


def prepare(cluster: KafkaCluster) -> None:
    """The rights, and records of which the owner of the group rejects one."""
    produce(cluster.bootstrap_servers, TOPIC, RECORDS)
    allow(cluster, "node", *rights_of_the_page())
    as_owner = [(ResourceType.TOPIC, TOPIC), (ResourceType.GROUP, GROUP)]
    allow(cluster, "owner", *[(kind, name, AclOperation.READ) for kind, name in as_owner])


def as_node(directory: Path, address: str, policy: Settings) -> GatewayProcess:
    gateway = GatewayProcess(directory, address, groups=[policy])
    settings = yaml.safe_load(gateway.config.read_text())
    settings["upstream"]["sasl"] = {"username": "node", "password": "node-secret"}
    gateway.config.write_text(yaml.safe_dump(settings))
    return gateway


def consume_all(gateway: GatewayProcess) -> None:
    where = {"bootstrap.servers": gateway.bootstrap, "group.id": GROUP}
    consumer = ShareConsumer({**where, "share.acknowledgement.mode": "explicit", **AS_OWNER})
    consumer.subscribe([TOPIC])
    seen: set[bytes | None] = set()

    def all_seen() -> bool:
        for message in consumer.poll(timeout=0.5):
            assert message.error() is None, message.error()
            bad = message.value() == b"3"
            seen.add(message.value())
            verdict = AcknowledgeType.REJECT if bad else AcknowledgeType.ACCEPT
            consumer.acknowledge(message, verdict)
        return len(seen) == len(RECORDS)

    wait_until(all_seen, what="all records", deadline_s=60)
    consumer.close()


def set_queue(bootstrap: str, config: Mapping[str, str]) -> None:
    """Names the dead letter queue of the group (KIP-1191)."""
    entry = ConfigEntry(TOPIC_NAME, LETTERS, incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.GROUP, GROUP, incremental_configs=[entry])
    admin = AdminClient({"bootstrap.servers": bootstrap, **config})
    (answer,) = admin.incremental_alter_configs([resource]).values()
    answer.result(ANSWER_S_MAX)


def test_they_suffice_for_a_queue_of_kafkas_and_who_sets_it_needs_rights_at_upstream(
    tmp_path: Path,
) -> None:
    libs = kafka_libs(NEWEST)
    with guarded_kafka(libs, SHARE_VERSION_MIN) as (cluster, address):
        create_topic(cluster.bootstrap_servers, TOPIC)
        create_topic(cluster.bootstrap_servers, LETTERS, config={ENABLED: "true"})
        prepare(cluster)
        earliest = {"match": GROUP, "auto_offset_reset": "earliest"}
        with as_node(tmp_path, address, earliest) as gateway:
            refusals = []
            for front in (address, gateway.bootstrap):
                with pytest.raises(KafkaException) as refused:
                    set_queue(front, AS_OWNER)
                refusals.append((refused.value.args[0].code(), refused.value.args[0].str()))
            assert refusals[0] == refusals[1]
            set_queue(cluster.bootstrap_servers, {})
            consume_all(gateway)
            wait_until(
                lambda: len(read_partition(cluster.bootstrap_servers, LETTERS, 0)) == 1,
                what="the letter",
                deadline_s=60,
            )
            assert "authoriz" not in gateway.log_text().lower()


def test_a_node_with_the_rights_of_the_page(
    guarded: tuple[KafkaCluster, str],
    tmp_path: Path,
) -> None:
    """A group is read, committed and configured, writes a dead letter, and is deleted."""
    cluster, address = guarded
    for name in (TOPIC, LETTERS):
        create_topic(cluster.bootstrap_servers, name)
    prepare(cluster)
    policy = {
        "match": GROUP,
        "auto_offset_reset": "earliest",
        "rejected": "dead_letter",
        "dead_letter_topic": LETTERS,
    }
    with as_node(tmp_path, address, policy) as gateway:
        consume_all(gateway)
        wait_until(
            lambda: committed(cluster, GROUP, TOPIC, 0)[0] == len(RECORDS),
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
