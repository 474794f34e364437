"""Two upstream brokers behind one gateway: addresses, both leaders, a broker that goes
and returns.
"""

from __future__ import annotations

import struct
import threading
import time
from collections.abc import Callable, Iterator

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from gateway.core.wire.apis import APIS, ApiKey
from gateway.core.wire.codec import decode_response
from gateway.core.wire.errors import ErrorCode
from gateway.core.wire.records import Record, build
from gateway.core.wire.schema import Message
from gateway.embedded.kafka import KafkaCluster
from tests.rig.clients.java_checks import ADMIN, report_of
from tests.rig.clients.java_programs import JavaPrograms
from tests.rig.clients.order import assert_never_backwards
from tests.rig.clients.share_lines import Delivery
from tests.rig.clients.share_members import ShareHost, consume_all, deliveries_of
from tests.rig.clients.wire_client import ShareSession, WireClient, fetched_partitions
from tests.rig.gateway_process import GatewayProcess
from tests.rig.groups import GROUPS
from tests.rig.kafka import create_topic, produce
from tests.rig.operating import metrics
from tests.rig.patience import patient_s, wait_until

pytestmark = pytest.mark.integration

Name = Callable[[str], str]
LONG_POLL_MS = 500  # fetch.wait.max.ms and fetch.max.wait.ms of the clients


@pytest.fixture(scope="module")
def pair_gateway(
    kafka_pair: KafkaCluster, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[GatewayProcess]:
    directory = tmp_path_factory.mktemp("pair-gateway")
    # The second broker alone: the gateway must learn of the first.
    first_contact = kafka_pair.brokers[1].address
    with GatewayProcess(directory, first_contact, groups=GROUPS) as process:
        yield process


@pytest.fixture
def split_topic(kafka_pair: KafkaCluster, fresh_name: Name) -> str:
    """Four partitions on two replicas; 0 and 2 led by broker 1, 1 and 3 by broker 2."""
    name = fresh_name("split")
    assignment = [[1, 2], [2, 1], [1, 2], [2, 1]]
    create_topic(kafka_pair.bootstrap_servers, name, assignment=assignment)
    return name


def upstream_marks(kafka_pair: KafkaCluster) -> list[bytes]:
    """How an upstream address looks on the wire: the host, then its port in four or in two
    bytes.
    """
    ports = [broker.port for broker in kafka_pair.brokers]
    return [b"127.0.0.1" + struct.pack(form, port) for port in ports for form in (">i", ">H")]


def requests_about(topic: str, topic_id: bytes, partition: int) -> dict[int, Message]:
    """A request for every API whose answer names brokers, to be sent to each broker."""
    place = {"Index": partition, "Records": build([Record(0, 0, b"k", b"v", [])], base_offset=0)}
    wanted = {"Partition": partition, "FetchOffset": 0, "PartitionMaxBytes": 1 << 16}
    acks = {"PartitionIndex": partition, "AcknowledgementBatches": []}
    return {
        ApiKey.METADATA: {"Topics": [{"Name": topic}]},
        ApiKey.FIND_COORDINATOR: {"Key": "g", "CoordinatorKeys": ["g", "h"]},
        ApiKey.DESCRIBE_CLUSTER: {},
        ApiKey.DESCRIBE_TOPIC_PARTITIONS: {
            "Topics": [{"Name": topic}],
            "ResponsePartitionLimit": 100,
        },
        ApiKey.DESCRIBE_QUORUM: {
            "Topics": [{"TopicName": "__cluster_metadata", "Partitions": [{"PartitionIndex": 0}]}]
        },
        ApiKey.PRODUCE: {
            "Acks": -1,
            "TimeoutMs": 5_000,
            "TopicData": [{"Name": topic, "TopicId": topic_id, "PartitionData": [place]}],
        },
        ApiKey.FETCH: {
            "MaxWaitMs": 10,
            "MinBytes": 0,
            "SessionEpoch": -1,
            "Topics": [{"Topic": topic, "TopicId": topic_id, "Partitions": [wanted]}],
        },
        ApiKey.SHARE_FETCH: {
            "GroupId": "addresses",
            "MemberId": "AAAAAAAAAAAAAAAAAAAAAA",
            "MaxRecords": 10,
            "MaxBytes": 1_000,
            "Topics": [{"TopicId": topic_id, "Partitions": [acks]}],
        },
        ApiKey.LIST_OFFSETS: {
            "Topics": [{"Name": topic, "Partitions": [{"PartitionIndex": partition}]}]
        },
    }


def test_no_upstream_address_in_any_version_of_any_api(
    pair_gateway: GatewayProcess, kafka_pair: KafkaCluster, split_topic: str
) -> None:
    """Every version of every API that names brokers, asked at the bootstrap port and at both
    brokers.
    """
    marks = upstream_marks(kafka_pair)
    with WireClient(pair_gateway.bootstrap) as client:
        named = client.call(ApiKey.METADATA, 12, {"Topics": [{"Name": split_topic}]})
        offers = client.call(ApiKey.API_VERSIONS, 0, {})["ApiKeys"]
    topic_id = named["Topics"][0]["TopicId"]
    offered = {offer["ApiKey"]: (offer["MinVersion"], offer["MaxVersion"]) for offer in offers}
    asked = 0
    gateways: set[bytes] = set()
    for address in (pair_gateway.bootstrap, *(pair_gateway.address_of(at) for at in (1, 2))):
        for partition in (0, 1):  # led by either broker: one of the answers is "not the leader"
            for key, body in requests_about(split_topic, topic_id, partition).items():
                low, high = offered[key]
                for version in range(max(low, APIS[key].min_version), high + 1):
                    if address == pair_gateway.bootstrap and key == ApiKey.SHARE_FETCH:
                        continue  # no virtual broker: nobody fetches there
                    with WireClient(address) as client:
                        frame, _ = client.call_raw(key, version, body)
                    asked += 1
                    found = [mark for mark in marks if mark in frame]
                    assert not found, f"{ApiKey(key).name} v{version} at {address}: {found}"
                    gateways |= {
                        mark
                        for at in (1, 2)
                        if (mark := struct.pack(">i", pair_gateway.port_base + at)) in frame
                    }
    assert asked > 200
    assert len(gateways) == 2, "the answers do name both virtual brokers"


def test_what_clients_learn(
    pair_gateway: GatewayProcess, java_programs: JavaPrograms, split_topic: str
) -> None:
    ours = {pair_gateway.address_of(at) for at in (1, 2)}
    admin = AdminClient({"bootstrap.servers": pair_gateway.bootstrap})
    listed = admin.list_topics(split_topic, timeout=60)
    assert {f"{broker.host}:{broker.port}" for broker in listed.brokers.values()} == ours
    assert set(listed.brokers) == {1, 2}, "the ids are upstream's"
    described = admin.describe_cluster().result(20)
    assert {f"{node.host}:{node.port}" for node in described.nodes} == ours
    assert {part.leader for part in listed.topics[split_topic].partitions.values()} == {1, 2}
    output = java_programs.run(
        "AdminChecks", pair_gateway.bootstrap, "java-pair", "2", seconds_max=60
    )
    report = report_of(output)
    assert {name: report.checks.get(name) for name in ADMIN} == dict.fromkeys(ADMIN, "OK")
    strangers = {api: found - ours for api, found in report.addresses.items() if found - ours}
    assert not strangers


def test_plain_records_on_both_leaders(
    pair_gateway: GatewayProcess, split_topic: str, fresh_name: Name
) -> None:
    sent = [(b"k%d" % at, b"%d" % at) for at in range(2_000)]
    produce(pair_gateway.bootstrap, split_topic, sent)
    values = read_group(pair_gateway.bootstrap, split_topic, fresh_name("plain"), 2_000)
    assert values == {value for _, value in sent}


def read_group(bootstrap: str, topic: str, group: str, count: int) -> set[bytes | None]:
    consumer = Consumer(
        {"bootstrap.servers": bootstrap, "group.id": group, "auto.offset.reset": "earliest"}
    )
    consumer.subscribe([topic])
    values: set[bytes | None] = set()
    deadline = time.monotonic() + patient_s(40)
    while len(values) < count and time.monotonic() < deadline:
        values |= {
            message.value() for message in consumer.consume(500, 0.2) if message.error() is None
        }
    consumer.close()
    return values


def test_share_group_on_both_leaders(
    pair_gateway: GatewayProcess, split_topic: str, fresh_name: Name, share_host: ShareHost
) -> None:
    """Members of one group, partitions led by two brokers, the coordinator on one of them."""
    for group in (fresh_name("group"), fresh_name("group")):  # so that each broker coordinates one
        sent = [(b"k%d" % (at % 40), b"%d" % at) for at in range(400)]
        produce(pair_gateway.bootstrap, split_topic, sent)
        members = [share_host.member(pair_gateway.bootstrap, group, [split_topic]) for _ in "ab"]
        wanted = places_on(pair_gateway.bootstrap, split_topic)
        consume_all(members, wanted)
        assert_never_backwards(deliveries_of(members))
        for member in members:
            member.close()


@pytest.mark.parametrize("keys", [1, 30])
def test_a_busy_broker_does_not_wait_for_one_that_has_nothing(
    pair_gateway: GatewayProcess,
    split_topic: str,
    fresh_name: Name,
    share_host: ShareHost,
    keys: int,
) -> None:
    """librdkafka asks one broker after the other: each record would wait for a long poll at the
    other one. Java asks both at once: its fetch that waits there is to stay, also while it has not
    yet taken all that is ready.
    """
    count, bootstrap = 30, pair_gateway.bootstrap
    one = {"max.poll.records": "1"}
    member = share_host.member(bootstrap, fresh_name("group"), [split_topic], properties=one)
    member.begin_consume()

    def consume() -> list[Delivery]:
        seen = len(member.deliveries)
        sent = [(b"k%d" % (at % keys), b"%d" % at) for at in range(count)]
        produce(bootstrap, split_topic, sent, partition=1)
        wait_until(lambda: len(member.deliveries) == seen + count, what="all", deadline_s=60)
        return member.deliveries[seen:]

    def fetches() -> float:
        return metrics(pair_gateway)['keyway_server_requests_total{api="share_fetch"}']

    consume()  # sessions open, windows load
    before = fetches()
    came = consume()
    asked = fetches() - before
    member.end_consume()
    member.close()
    assert_never_backwards(deliveries_of([member]))
    waits_ms = (count - 1) * LONG_POLL_MS
    assert (came[-1].at_ns - came[0].at_ns) / 1e6 < waits_ms / 4
    assert count <= asked <= count * {"java": 1.5, "librdkafka": 4}[share_host.kind]


def places_on(bootstrap: str, topic: str, partitions: int = 4) -> set[tuple[str, int, int]]:
    """Every offset of a topic that has neither markers nor holes."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "places"})
    found = set()
    for partition in range(partitions):
        low, high = consumer.get_watermark_offsets(TopicPartition(topic, partition), timeout=60)
        found |= {(topic, partition, offset) for offset in range(low, high)}
    consumer.close()
    return found


def test_share_fetch_at_a_broker_that_does_not_lead(
    pair_gateway: GatewayProcess, split_topic: str, fresh_name: Name
) -> None:
    """NOT_LEADER_OR_FOLLOWER, the leader's id, and its address: the gateway's."""
    group = fresh_name("group")
    with ShareSession(pair_gateway.bootstrap, group, split_topic).join() as member:
        assert member.partitions == [0, 2]
        answer = member.fetch_message(partitions=[1])
        assert answer["ErrorCode"] == 0
        parts = fetched_partitions(answer)
        assert parts[1].error == ErrorCode.NOT_LEADER_OR_FOLLOWER
        row = answer["Responses"][0]["Partitions"][0]
        assert row["CurrentLeader"]["LeaderId"] == 2
        addresses = {
            endpoint["NodeId"]: f"{endpoint['Host']}:{endpoint['Port']}"
            for endpoint in answer["NodeEndpoints"]
        }
        assert addresses[2] == pair_gateway.address_of(2)


def test_produce_at_a_broker_that_does_not_lead(
    pair_gateway: GatewayProcess, split_topic: str
) -> None:
    """KIP-951: the new leader and its address in the refusal; both are ours."""
    body = requests_about(split_topic, b"", 1)[ApiKey.PRODUCE]
    body["TopicData"][0].pop("TopicId")
    with WireClient(pair_gateway.address_of(1)) as client:
        frame, at = client.call_raw(ApiKey.PRODUCE, 10, body)
    answer = decode_response(ApiKey.PRODUCE, 10, frame, at)
    row = answer["Responses"][0]["PartitionResponses"][0]
    assert row["ErrorCode"] == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert row["CurrentLeader"]["LeaderId"] == 2
    addresses = {
        endpoint["NodeId"]: f"{endpoint['Host']}:{endpoint['Port']}"
        for endpoint in answer["NodeEndpoints"]
    }
    assert addresses[2] == pair_gateway.address_of(2)


@pytest.mark.deep
def test_a_broker_stops_and_returns(
    pair_gateway: GatewayProcess,
    kafka_pair: KafkaCluster,
    split_topic: str,
    fresh_name: Name,
    librdkafka_host: ShareHost,
) -> None:
    """Leaders move while a producer, a plain group and a share group are at work: nothing lost,
    keys in order.
    """
    bootstrap = pair_gateway.bootstrap
    share, plain = fresh_name("group"), fresh_name("plain")
    members = [librdkafka_host.member(bootstrap, share, [split_topic]) for _ in "ab"]
    for member in members:
        member.begin_consume(180)
    stop = threading.Event()
    sent: list[bytes] = []
    failures: list[str] = []

    def keep_producing() -> None:
        producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True})
        while not stop.is_set():
            value = b"%d" % len(sent)
            producer.produce(
                split_topic,
                key=b"k%d" % (len(sent) % 40),
                value=value,
                on_delivery=lambda error, _: failures.append(str(error)) if error else None,
            )
            sent.append(value)
            producer.poll(0.005)
        assert producer.flush(60) == 0

    thread = threading.Thread(target=keep_producing)
    thread.start()
    try:
        wait_until(lambda: len(sent) > 200, what="200 records", deadline_s=30)
        second = kafka_pair.brokers[1]
        second.stop()
        before = len(sent)
        wait_until(lambda: len(sent) > before + 300, what="300 more", deadline_s=30)
        kafka_pair.restart(second)
        before = len(sent)
        wait_until(lambda: len(sent) > before + 200, what="200 more", deadline_s=30)
    finally:
        stop.set()
        thread.join(90)
    assert not failures, failures[:3]
    assert read_group(bootstrap, split_topic, plain, len(sent)) == set(sent)
    wanted = places_on(bootstrap, split_topic)

    def arrived() -> bool:
        return wanted <= {
            delivery.place for member in members for delivery in list(member.deliveries)
        }

    wait_until(arrived, what="every record at the share group", deadline_s=60)
    for member in members:
        member.end_consume()
    deliveries = deliveries_of(members)
    assert {delivery.value for delivery in deliveries} == set(sent)
    assert_never_backwards(deliveries)
    for member in members:
        member.close()
