"""A node is gone for good. Clients of librdkafka know a coordinator by its id, and keep the address
that they had: its group members, its share members and its transactions go on at the next owner.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, ElectionType, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from gateway.core.wire.apis import ApiKey
from gateway.embedded.kafka import KafkaCluster
from tests.chaos.nodes.site import Nodes
from tests.rig.clients.share_members import ShareHost
from tests.rig.clients.wire_client import WireClient
from tests.rig.gateway_process import GatewayProcess
from tests.rig.kafka import create_topic
from tests.rig.operating import rest
from tests.rig.patience import patient_s, wait_until

pytestmark = pytest.mark.integration

Name = Callable[[str], str]
GROUP, TRANSACTION = 0, 1  # FindCoordinator's types of keys
TRY_S = 5.0


@pytest.fixture
def nodes(kafka_pair: KafkaCluster, tmp_path: Path) -> Iterator[Nodes]:
    # Each broker is to coordinate something: one that another test has killed leads nothing when it
    # is back, for five minutes.
    admin = AdminClient({"bootstrap.servers": kafka_pair.bootstrap_servers})
    admin.elect_leaders(ElectionType.PREFERRED, None).result(patient_s(30))
    both = Nodes(tmp_path, kafka_pair, "ab")
    with both.running("ab"):
        yield both


def coordinated_by(nodes: Nodes, owner: str, kind: int, fresh_name: Name) -> str:
    """A name whose coordinator is a virtual broker of this node."""
    names = [fresh_name("moved") for _ in range(30)]
    found: list[str] = []

    def answered() -> bool:
        # Each time: a node that has just come may have none yet.
        owned = [broker for broker, its in nodes.owners().items() if its == owner]
        with WireClient(nodes.nodes[owner].bootstrap) as client:
            asked = {"KeyType": kind, "CoordinatorKeys": names}
            client.call(ApiKey.FIND_COORDINATOR, 4, asked)  # fails once, if it has just moved there
            rows = client.call(ApiKey.FIND_COORDINATOR, 4, asked)["Coordinators"]
        found[:] = [row["Key"] for row in rows if row["NodeId"] in owned]
        return bool(found)

    wait_until(answered, what=f"a coordinator at node {owner}", deadline_s=30)
    return found[0]


def last_heartbeat_ms(node: GatewayProcess, group: str) -> int:
    answer = rest(node, f"/v1/members?group={group}")[1]
    return max((int(row["last_heartbeat_ms"]) for row in answer.get("members", ())), default=0)


def does(work: Callable[[], object]) -> Callable[[], bool]:
    def done() -> bool:
        try:
            work()
        except KafkaException as error:
            if error.args[0].fatal():
                raise
            return False
        return True

    return done


def test_coordinators_of_a_node_that_is_gone_for_good(
    nodes: Nodes,
    kafka_pair: KafkaCluster,
    new_host: Callable[[str], ShareHost],
    fresh_name: Name,
) -> None:
    topic, plain = fresh_name("topic"), coordinated_by(nodes, "a", GROUP, fresh_name)
    shared = coordinated_by(nodes, "a", GROUP, fresh_name)
    transactional = coordinated_by(nodes, "a", TRANSACTION, fresh_name)
    create_topic(kafka_pair.bootstrap_servers, topic, partitions=2)
    settings = {"bootstrap.servers": nodes.bootstrap, "log_level": 0}
    consumer = Consumer({**settings, "group.id": plain, "enable.auto.commit": False})
    consumer.subscribe([topic])
    wait_until(
        lambda: consumer.poll(0.1) is None and len(consumer.assignment()) == 2,
        what="an assignment",
        deadline_s=30,
    )
    producer = Producer({**settings, "transactional.id": transactional})
    producer.init_transactions(30)
    # Killed at the end, with its process: librdkafka may wait two minutes for a broker that is
    # gone, to leave there.
    member = new_host("librdkafka").member(nodes.bootstrap, shared, [topic])
    member.begin_consume(600)
    a, b = nodes.nodes["a"], nodes.nodes["b"]
    wait_until(lambda: last_heartbeat_ms(a, shared) > 0, what="a member", deadline_s=30)

    a.kill()
    killed_ms = time.time_ns() // 1_000_000
    nodes.wait_for_owners("b")

    def commit(offset: int) -> None:
        consumer.poll(0)
        consumer.commit(offsets=[TopicPartition(topic, 0, offset)], asynchronous=False)

    def transact() -> None:
        producer.commit_transaction(TRY_S)

    producer.begin_transaction()
    producer.produce(topic, b"value", partition=0)
    wait_until(does(transact), what="a transaction at the next owner", deadline_s=30)
    wait_until(does(lambda: commit(1)), what="a commit at the next owner", deadline_s=30)
    wait_until(
        lambda: last_heartbeat_ms(b, shared) > killed_ms + 1_000,
        what="a heartbeat of the share member at the next owner",
        deadline_s=30,
    )
    consumer.close()
