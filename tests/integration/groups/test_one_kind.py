"""One name, one kind of group: no consumer joins the name of a share group, and nobody else commits
under it, whether it has members or not. KEYWAY_TESTS_DIRECT=1 asks the same of Kafka's own.
"""

from __future__ import annotations

import subprocess
import threading
from collections.abc import Callable
from subprocess import DEVNULL, PIPE

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition

from gateway.core.wire.apis import ApiKey
from gateway.core.wire.errors import ErrorCode
from gateway.embedded.kafka import KafkaCluster
from tests.rig.clients.java_programs import JavaPrograms
from tests.rig.clients.kafka_tools import CONSUMER_GROUPS, KafkaTools
from tests.rig.clients.wire_client import ShareSession, WireClient
from tests.rig.committed import committed, wait_for_committed
from tests.rig.gateway_process import DIRECT
from tests.rig.kafka import produce
from tests.rig.patience import patient_s

pytestmark = pytest.mark.integration

Topic = Callable[..., str]
Names = Callable[[str], str]
ACCEPT = 1
ANSWER_S_MAX = 30.0


def consumer_error(front: str, group: str, topic: str, protocol: str) -> str:
    """What librdkafka's consumer tells its application first: an error, or that it has joined."""
    joined: list[object] = []
    consumer = Consumer(
        {
            "bootstrap.servers": front,
            "group.id": group,
            "group.protocol": protocol,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "log_level": 0,
        }
    )
    consumer.subscribe([topic], on_assign=lambda *_: joined.append(True))
    try:
        for _ in range(60):
            came = consumer.poll(0.5)
            if joined or (came is not None and came.error() is None):
                return "joined"
            if came is not None:
                return str(came.error())
        return "nothing within 30 s"
    finally:
        consumer.close()


def java_error(programs: JavaPrograms, front: str, group: str, topic: str, protocol: str) -> str:
    """What a Java consumer dies of; it would go on if it had joined."""
    words = (front, topic, group, "0", f"group.protocol={protocol}")
    command = programs.command("PlainConsumer", *words)
    # Its standard input stays open: the end of that would be its own.
    with subprocess.Popen(command, stdin=PIPE, stderr=PIPE, stdout=DEVNULL, text=True) as ended:
        too_late = threading.Timer(patient_s(60), ended.kill)
        too_late.start()
        assert ended.stderr is not None
        said = ended.stderr.read()
        too_late.cancel()
    return said


def of_one_record(front: str, group: str, topic: str) -> ShareSession:
    """A member that has accepted the first of three records."""
    produce(front, topic, [(b"k", b"%d" % at) for at in range(3)], partition=0)
    member = ShareSession(front, group, topic).join()
    got = member.fetch_some(max_records=1)
    member.acknowledge({0: [(got.offsets[0], got.offsets[0], [ACCEPT])]})
    return member


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_no_consumer_joins(
    front: str, topic: Topic, share_group: Names, java_programs: JavaPrograms, protocol: str
) -> None:
    name, group = topic(), share_group("one-kind")
    inconsistent = "Inconsistent group protocol" if protocol == "classic" else "does not exist"
    of_java = (
        "InconsistentGroupProtocolException"
        if protocol == "classic"
        else f"GroupIdNotFoundException: Group {group} is not a consumer group."
    )
    with of_one_record(front, group, name) as member:
        assert inconsistent in consumer_error(front, group, name, protocol)
        assert of_java in java_error(java_programs, front, group, name, protocol)
        assert member.heartbeat(member.member_epoch)["ErrorCode"] == 0, "it is left in peace"
        member.leave()
    assert inconsistent in consumer_error(front, group, name, protocol), "also while it is empty"


def test_no_streams_application_joins(front: str, topic: Topic, share_group: Names) -> None:
    """By Kafka Streams' own protocol (KIP-1071)."""
    name, group = topic(), share_group("one-kind")
    joining = {
        "GroupId": group,
        "MemberId": "AAAAAAAAAAAAAAAAAAAAAA",
        "RebalanceTimeoutMs": 10_000,
        "ProcessId": "process",
        "Topology": {"Epoch": 0, "Subtopologies": []},
        "ActiveTasks": [],
        "StandbyTasks": [],
        "WarmupTasks": [],
    }
    with of_one_record(front, group, name) as member:
        for empty in (False, True):
            if empty:
                member.leave()
            with WireClient(front) as line:
                answer = line.call(ApiKey.STREAMS_GROUP_HEARTBEAT, 0, joining)
            assert answer["ErrorCode"] == ErrorCode.GROUP_ID_NOT_FOUND
            assert answer["ErrorMessage"] == f"Group {group} is not a streams group."


def test_nobody_else_commits(
    front: str, kafka: KafkaCluster, topic: Topic, share_group: Names, kafka_tools: KafkaTools
) -> None:
    """A simple consumer, a transaction, and Kafka's tool for consumer groups."""
    name, group = topic(), share_group("one-kind")
    member = of_one_record(front, group, name)
    wait_for_committed(kafka, group, name, 0, 1)
    simple = Consumer({"bootstrap.servers": front, "group.id": group, "log_level": 0})
    producer = Producer({"bootstrap.servers": front, "transactional.id": group, "log_level": 0})
    producer.init_transactions(ANSWER_S_MAX)
    skipping = [TopicPartition(name, 0, 3)]
    for empty in (False, True):
        if empty:
            member.leave()
            member.disconnect()
        with pytest.raises(KafkaException, match="GROUP_ID_NOT_FOUND"):
            simple.commit(offsets=skipping, asynchronous=False)
        producer.begin_transaction()
        with pytest.raises(KafkaException, match="GROUP_ID_NOT_FOUND"):
            producer.send_offsets_to_transaction(
                skipping, simple.consumer_group_metadata(), ANSWER_S_MAX
            )
        producer.abort_transaction(ANSWER_S_MAX)
        for arguments in (
            ("--reset-offsets", "--topic", name, "--to-latest", "--execute"),
            ("--delete-offsets", "--topic", name),
        ):
            said = kafka_tools.run(CONSUMER_GROUPS, front, "--group", group, *arguments)
            assert "does not exist" in said or "GroupIdNotFound" in said, said
        if not DIRECT:
            assert committed(kafka, group, name, 0)[0] == 1
    simple.close()
    with ShareSession(front, group, name).join() as again:
        assert again.fetch_some(max_records=1).offsets[0] == 1, "it goes on where it was"
        again.leave()
