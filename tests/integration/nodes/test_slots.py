"""Two brokers of two slots each behind two nodes: admin tools see what they see at upstream, and
members of stock clients get every record from both nodes.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, ConfigResource

from gateway.core.wire.apis import ApiKey
from gateway.embedded.kafka import KafkaCluster
from tests.chaos.nodes.site import Nodes
from tests.integration.upstream.test_two_brokers import places_on
from tests.rig.clients.java_checks import ADMIN, report_of
from tests.rig.clients.java_programs import JavaPrograms
from tests.rig.clients.kafka_tools import CONFIGS, KafkaTools
from tests.rig.clients.order import assert_never_backwards
from tests.rig.clients.share_members import ShareHost, consume_all, deliveries_of
from tests.rig.clients.wire_client import WireClient
from tests.rig.kafka import create_topic, produce
from tests.rig.operating import windows_of
from tests.rig.patience import wait_until

pytestmark = pytest.mark.integration

Name = Callable[[str], str]
PARTITIONS = 16  # 8 led by each broker: as slots go by topic id, 6 miss one for 2 topics in 100
TOPICS = "org.apache.kafka.tools.TopicCommand"
LOG_DIRS = "org.apache.kafka.tools.LogDirsCommand"
REASSIGN = "org.apache.kafka.tools.reassign.ReassignPartitionsCommand"
ELECTION = "org.apache.kafka.tools.LeaderElectionCommand"
VIRTUAL = [1, 2, 1_000_001, 1_000_002]


@pytest.fixture(scope="module")
def nodes(kafka_pair: KafkaCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Nodes]:
    both = Nodes(tmp_path_factory.mktemp("slots"), kafka_pair, "ab", slots=2)
    with both.running("ab"):
        yield both


@pytest.fixture
def spread(kafka_pair: KafkaCluster, fresh_name: Name) -> str:
    """Its leaders go round the two brokers."""
    name = fresh_name("spread")
    assignment = [[1, 2], [2, 1]] * (PARTITIONS // 2)
    create_topic(kafka_pair.bootstrap_servers, name, assignment=assignment)
    return name


def test_admin_tools_see_what_they_see_at_upstream(
    nodes: Nodes, kafka_pair: KafkaCluster, spread: str, kafka_tools: KafkaTools, tmp_path: Path
) -> None:
    def same(tool: str, *arguments: str) -> str:
        here = kafka_tools.run(tool, nodes.bootstrap, *arguments)
        assert here == kafka_tools.run(tool, kafka_pair.bootstrap_servers, *arguments)
        return here

    def configs(broker: int, *arguments: str) -> str:
        entity = ("--entity-type", "brokers", "--entity-name", str(broker))
        return kafka_tools.run(CONFIGS, nodes.bootstrap, *entity, *arguments)

    assert "Leader: 2" in same(TOPICS, "--describe", "--topic", spread)
    assert '"broker":2' in same(LOG_DIRS, "--describe", "--topic-list", spread)
    plan = tmp_path / "plan.json"
    moved = {"topic": spread, "partition": 0, "replicas": [2, 1]}
    plan.write_text(json.dumps({"version": 1, "partitions": [moved]}))
    said = kafka_tools.run(
        REASSIGN, nodes.bootstrap, "--reassignment-json-file", str(plan), "--execute"
    )
    assert "Successfully started partition reassignment" in said
    same(REASSIGN, "--list")
    election = ("--election-type", "preferred", "--topic", spread, "--partition", "0")
    assert f"{spread}-0" in kafka_tools.run(ELECTION, nodes.bootstrap, *election)
    described = ("--describe", "--topic", spread)
    moved_there = f"Topic: {spread}\tPartition: 0\tLeader: 2\tReplicas: 2,1"
    for bootstrap in (nodes.bootstrap, kafka_pair.bootstrap_servers):

        def elected(at: str = bootstrap) -> bool:
            return moved_there in kafka_tools.run(TOPICS, at, *described)

        wait_until(elected, what="the other leader", deadline_s=30)
    # A virtual broker may be named by any of its ids.
    configs(1_000_001, "--alter", "--add-config", "log.cleaner.threads=2")
    assert "log.cleaner.threads=2" in configs(1, "--describe")
    assert "configs for broker 1000001 are" in configs(1_000_001, "--describe", "--all")
    configs(1_000_001, "--alter", "--delete-config", "log.cleaner.threads")
    assert "log.cleaner.threads=2" not in configs(1, "--describe")


def test_any_id_of_a_broker_places_replicas(
    nodes: Nodes, kafka_pair: KafkaCluster, fresh_name: Name
) -> None:
    name = fresh_name("placed")

    def replicas(partition: int) -> list[int]:
        listed = AdminClient({"bootstrap.servers": kafka_pair.bootstrap_servers}).list_topics(
            name, timeout=60
        )
        return list(listed.topics[name].partitions[partition].replicas)

    create_topic(nodes.bootstrap, name, assignment=[[1_000_001, 2], [1_000_002, 1]])
    assert [replicas(0), replicas(1)] == [[1, 2], [2, 1]]
    with WireClient(nodes.nodes["a"].address_of(1)) as client:
        partition = {"PartitionIndex": 1, "Replicas": [1, 1_000_002]}
        body = {"Topics": [{"Name": name, "Partitions": [partition]}]}
        answer = client.call(ApiKey.ALTER_PARTITION_REASSIGNMENTS, 1, body)
    assert (answer["ErrorCode"], answer["Responses"][0]["Partitions"][0]["ErrorCode"]) == (0, 0)
    wait_until(lambda: replicas(1) == [1, 2], what="replicas in their new order", deadline_s=30)


@pytest.mark.deep
def test_java_admin(nodes: Nodes, java_programs: JavaPrograms) -> None:
    output = java_programs.run("AdminChecks", nodes.bootstrap, "java-slots", "2", seconds_max=60)
    report = report_of(output)
    assert {name: report.checks.get(name) for name in ADMIN} == dict.fromkeys(ADMIN, "OK")


def test_librdkafka_sees_virtual_brokers_and_may_name_them(nodes: Nodes, spread: str) -> None:
    admin = AdminClient({"bootstrap.servers": nodes.bootstrap})
    listed = admin.list_topics(spread, timeout=60)
    assert sorted(listed.brokers) == VIRTUAL
    leaders = {part.leader for part in listed.topics[spread].partitions.values()}
    assert leaders == set(VIRTUAL)
    for number in VIRTUAL:
        resource = ConfigResource(ConfigResource.Type.BROKER, str(number))
        found = admin.describe_configs([resource])[resource].result(60)
        assert found["node.id"].value == str(number % 1_000_000)
        port = found["advertised.listeners"].value.rpartition(":")[2]
        assert int(port) == listed.brokers[number].port
    groups = admin.list_consumer_groups(request_timeout=60).result()
    assert not groups.errors
    assert len({group.group_id for group in groups.valid}) == len(groups.valid)


def test_members_get_every_record_from_both_nodes(
    nodes: Nodes, spread: str, fresh_name: Name, any_host: ShareHost
) -> None:
    group = fresh_name("group")
    # Keys enough: librdkafka asks one broker after the other, and waits at those that have nothing.
    produce(nodes.bootstrap, spread, [(b"k%d" % (at % 400), b"%d" % at) for at in range(1_200)])
    members = [any_host.member(nodes.bootstrap, group, [spread]) for _ in "abc"]
    consume_all(members, places_on(nodes.bootstrap, spread, PARTITIONS))
    assert_never_backwards(deliveries_of(members))
    held = [
        {row["partition"] for row in windows_of(node, group, node=name) if row["state"] == "up"}
        for name, node in nodes.nodes.items()
    ]
    assert all(held)
    assert not held[0] & held[1]
    assert held[0] | held[1] == set(range(PARTITIONS))
    for member in members:
        member.close()
