"""What operators ask of a repartition, and what plain clients see of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewPartitions
from redis import Redis

from gateway.core.repartition.partitioners import Partitioner
from gateway.core.repartition.record import Pace, Phase, Repartition, from_text, to_text
from gateway.core.wire.apis import ApiKey
from gateway.embedded.kafka import KafkaCluster
from gateway.embedded.redis import EmbeddedRedis
from gateway.repartition.table import KEY
from tests.rig.clients.share_members import ShareHost
from tests.rig.clients.wire_client import WireClient
from tests.rig.committed import committed
from tests.rig.gateway_process import DIRECT, GatewayProcess, answers_api_versions
from tests.rig.kafka import create_topic, end_transaction, log_end, metadata_of, produce
from tests.rig.operating import health, keyway, poll_until_up, rest
from tests.rig.partition_codes import batch, codes_about
from tests.rig.patience import wait_until
from tests.rig.repartitions import (
    MURMUR2,
    QUICK,
    key_for,
    repartition,
    status,
    wait_for_phase,
)

pytestmark = [
    pytest.mark.integration,
    pytest.mark.skipif(DIRECT, reason="Kafka itself has no repartition"),
]


def shown(address: str, topic: str) -> set[int]:
    """Partitions by Metadata, which DescribeTopicPartitions confirms; once more if they change
    meanwhile.
    """
    body = {"Topics": [{"Name": topic}], "ResponsePartitionLimit": 2_000}
    with WireClient(address) as client:
        found, after = None, _by_metadata(client, topic)
        while found != after:
            found = after
            (other,) = client.call(ApiKey.DESCRIBE_TOPIC_PARTITIONS, 0, body)["Topics"]
            after = _by_metadata(client, topic)
    assert {partition["PartitionIndex"] for partition in other["Partitions"]} == found
    return found


def _by_metadata(client: WireClient, topic: str) -> set[int]:
    (row,) = client.call(ApiKey.METADATA, 12, {"Topics": [{"Name": topic}]})["Topics"]
    return {partition["PartitionIndex"] for partition in row["Partitions"]}


@pytest.fixture
def redis(tmp_path: Path) -> Iterator[EmbeddedRedis]:
    with EmbeddedRedis(tmp_path / "redis") as running:
        yield running


def test_partitions_stay_hidden_until_they_are_shown(
    kafka: KafkaCluster, tmp_path: Path, redis: EmbeddedRedis, topic: Callable[..., str]
) -> None:
    """More than it was to create, so that it makes no step; then of an abort. The next time they
    are taken.
    """
    name = topic(partitions=2)
    row = metadata_of(kafka.bootstrap_servers, name)
    pace = Pace(adoption_ms=1_000, settle_ms=0, late_ms=1_000)
    record = Repartition(
        topic=name,
        topic_id=row["TopicId"].hex(),
        before=2,
        after=4,
        partitioner=Partitioner.MURMUR2,
        pace=pace,
    )
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap_servers})
    admin.create_partitions([NewPartitions(name, 6)])[name].result(30)
    wait_until(
        lambda: len(metadata_of(kafka.bootstrap_servers, name)["Partitions"]) == 6,
        what="6",
        deadline_s=30,
    )
    store = Redis.from_url(redis.url)
    store.hset(KEY, name, to_text(record))
    among_several = GatewayProcess(
        tmp_path / "a", kafka.bootstrap_servers, redis_url=redis.url, nodes={"id": "a"}
    )
    with among_several as one:
        assert shown(one.bootstrap, name) == {0, 1}
        codes = codes_about(one.bootstrap, name, row["TopicId"], 2)
        assert codes == codes_about(kafka.bootstrap_servers, name, row["TopicId"], 9)
        assert {tuple(each) for each in codes.values()} == {(0, 3)}
        assert log_end(kafka.bootstrap_servers, name, 2) == 0
        refused, problem = rest(
            one, "/v1/repartitions", {"topic": name, "partitions": 4, "execute": True}
        )
        assert (refused, "it goes from 2 to 4 partitions now: marked" in problem["title"]) == (
            409,
            True,
        )
        refused_while_read(one, name)
        code, said, _ = keyway(one, "repartition", "abort", name, "--force")
        assert (code, said) == (0, f"topic {name}: aborted, clients see 2 partitions\n")
        assert keyway(one, "repartition", "abort", name)[0] == 1
        assert shown(one.bootstrap, name) == {0, 1}
    with GatewayProcess(
        tmp_path / "b", kafka.bootstrap_servers, redis_url=redis.url, repartition=QUICK
    ) as alone:
        assert shown(alone.bootstrap, name) == {0, 1}
        assert repartition(alone, name, partitions=2)["refusals"] != []
        repartition(alone, name, partitions=6, partitioner="murmur2", execute=True)
        wait_for_phase(alone, name, "open")
        assert shown(alone.bootstrap, name) == set(range(6))
        code, _, problem = keyway(alone, "repartition", "abort", name)
        assert code == 1
        assert "it can only go on" in problem
    text = store.hget(KEY, name)
    assert isinstance(text, bytes)
    assert from_text(text).before == 2


def refused_while_read(node: GatewayProcess, topic: str) -> None:
    """By a group that has a position in it, too."""
    reader = Consumer(
        {
            "bootstrap.servers": node.bootstrap,
            "group.id": f"{topic}-readers",
            "group.protocol": "consumer",
        }
    )
    try:
        reader.subscribe([topic])
        wait_until(
            lambda: reader.poll(0.2) is None and len(reader.assignment()) > 0,
            what="Kafka's assignment",
            deadline_s=30,
        )
        for _ in range(2):
            code, _, problem = keyway(node, "repartition", "abort", topic)
            assert code == 1
            assert f"members of the KIP-848 groups {topic}-readers" in problem
            assert rest(node, "/v1/repartitions/abort", {"topic": topic})[0] == 409
            reader.commit(offsets=[TopicPartition(topic, 0, 0)], asynchronous=False)
    finally:
        reader.close()


@pytest.mark.deep
def test_a_node_that_starts_without_redis_waits_before_it_listens(
    kafka: KafkaCluster, tmp_path: Path, redis: EmbeddedRedis, topic: Callable[..., str]
) -> None:
    """It would show partitions that are hidden, and nobody could read what is written there."""
    name = topic(partitions=2)
    with GatewayProcess(
        tmp_path / "a", kafka.bootstrap_servers, redis_url=redis.url, repartition=QUICK
    ) as node:
        row = metadata_of(node.bootstrap, name)
        record = Repartition(
            topic=name,
            topic_id=row["TopicId"].hex(),
            before=1,
            after=2,
            partitioner=Partitioner.MURMUR2,
            pace=Pace(adoption_ms=1_000, settle_ms=0, late_ms=1_000),
            phase=Phase.ABORTED,
        )
        Redis.from_url(redis.url).hset(KEY, name, to_text(record))
        node.stop()
        redis.stop()
        node.spawn()

        def says_why() -> bool:
            try:
                return any(
                    "no client is served before" in each for each in health(node)[1]["reasons"]
                )
            except OSError:  # REST does not listen yet
                return False

        wait_until(says_why, what="the reason", deadline_s=30)
        assert health(node, "/health/ready")[0] == 503
        assert health(node, "/health/live")[0] == 200
        assert not answers_api_versions(node.bootstrap)
        redis.start()
        node.wait_ready()
        assert shown(node.bootstrap, name) == {0}


@pytest.mark.deep
@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_groups_that_start_at_the_end_get_the_first_record(
    node: GatewayProcess,
    topic: Callable[..., str],
    fresh_name: Callable[[str], str],
    librdkafka_host: ShareHost,
    protocol: str,
) -> None:
    """Acceptance 22: a Key-Shared group and a plain one with members, both from `latest`."""
    name, shared, plain = topic(partitions=2), fresh_name("latest"), fresh_name("plain")
    member = librdkafka_host.member(node.bootstrap, shared, [name])
    poll_until_up(node, shared, member)
    consumer = Consumer(
        {
            "bootstrap.servers": node.bootstrap,
            "group.id": plain,
            "group.protocol": protocol,
            "auto.offset.reset": "latest",
            "topic.metadata.refresh.interval.ms": 500,
        }
    )
    came: list[bytes | None] = []

    def polled(value: bytes) -> bool:
        message = consumer.poll(0.2)
        if message is not None and message.error() is None:
            came.append(message.value())
        return value in came

    try:
        consumer.subscribe([name])
        wait_until(
            lambda: polled(b"") or len(consumer.assignment()) == 2,
            what="assigned",
            deadline_s=30,
        )

        def got_an_old_one() -> bool:
            produce(node.bootstrap, name, [(key_for(0, 2), b"old")], config=MURMUR2)
            return polled(b"old")

        wait_until(got_an_old_one, what="the plain group at the end", deadline_s=30)
        consumer.commit(asynchronous=False)
        member.poll_some()
        refusal = repartition(node, name, partitions=4)["refusals"][0]
        assert "have 1 different keys, too few to tell which partitioner" in refusal
        grown = {"partitions": 4, "partitioner": "murmur2"}
        plan = repartition(node, name, **grown)
        assert (plan["refusals"], plan["ordered_groups"]) == ([], [shared, plain])
        repartition(node, name, **grown, unordered=[plain], execute=True)
        wait_for_phase(node, name, "shown", "open")
        produce(node.bootstrap, name, [(key_for(3, 4), b"new")], config=MURMUR2)
        wait_until(lambda: polled(b"new"), what="the plain group's", deadline_s=60)
        wait_until(
            lambda: any(record.value == b"new" for record in member.poll(0.2)),
            what="shared",
            deadline_s=60,
        )
    finally:
        consumer.close()
        member.close()


@pytest.mark.deep
@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_group_that_has_committed_nothing_gets_the_first_record(
    node: GatewayProcess,
    kafka: KafkaCluster,
    topic: Callable[..., str],
    fresh_name: Callable[[str], str],
    protocol: str,
) -> None:
    """It is subscribed, from `latest`. Its order is not kept: nobody knows what it is done with."""
    name, plain = topic(partitions=2), fresh_name("plain")
    consumer = Consumer(
        {
            "bootstrap.servers": node.bootstrap,
            "group.id": plain,
            "group.protocol": protocol,
            "auto.offset.reset": "latest",
            "enable.auto.commit": False,
            "topic.metadata.refresh.interval.ms": 5_000,
        }
    )
    came: list[bytes | None] = []

    def polled(value: bytes) -> bool:
        message = consumer.poll(0.2)
        if message is not None and message.error() is None:
            came.append(message.value())
        return value in came

    try:
        consumer.subscribe([name])
        wait_until(
            lambda: polled(b"") or len(consumer.assignment()) == 2,
            what="assigned",
            deadline_s=30,
        )
        grown = {"partitions": 4, "partitioner": "murmur2"}
        assert repartition(node, name, **grown, execute=True)["ordered_groups"] == []
        wait_for_phase(node, name, "shown", "open")
        produce(node.bootstrap, name, [(key_for(3, 4), b"new")], config=MURMUR2)
        assert [committed(kafka, plain, name, at)[0] for at in (2, 3)] == [0, 0]
        wait_until(lambda: polled(b"new"), what="the first record", deadline_s=60)
    finally:
        consumer.close()


@pytest.mark.deep
@pytest.mark.parametrize("node", [{**QUICK, "delivery_timeout_ms": 10_000}], indirect=True)
def test_a_connection_that_is_opened_later_goes_by_what_its_client_was_told(
    kafka: KafkaCluster, node: GatewayProcess, topic: Callable[..., str]
) -> None:
    """One that produces by the Metadata of before is closed, unless its client asks meanwhile."""
    name = topic(partitions=2)
    with WireClient(kafka.bootstrap_servers) as client:
        (row,) = client.call(ApiKey.METADATA, 12, {"Topics": [{"Name": name}]})["Topics"]
    records = [{"Index": 0, "Records": batch()}]
    body = {"Acks": -1, "TimeoutMs": 5_000, "TopicData": [{"TopicId": row["TopicId"]}]}
    body["TopicData"][0]["PartitionData"] = records  # type: ignore[index]
    repartition(node, name, partitions=4, execute=True)
    wait_for_phase(node, name, "open")
    with WireClient(node.bootstrap) as late:
        late.call(ApiKey.PRODUCE, 13, body)
        assert late.closed_within(60)
    assert status(node, name)["closed_connections"] == 1
    with WireClient(node.bootstrap) as asking, WireClient(node.bootstrap) as producing:
        asking.call(ApiKey.METADATA, 12, {"Topics": [{"Name": name}]})
        producing.call(ApiKey.PRODUCE, 13, body)
        wait_for_phase(node, name, "draining", "finished")
        producing.call(ApiKey.PRODUCE, 13, body)  # it is open still


def test_what_an_application_of_kafka_streams_reads_stays_as_it_is(
    node: GatewayProcess, topic: Callable[..., str], fresh_name: Callable[[str], str]
) -> None:
    """It is known by the topics that Streams makes for it."""
    name, group = topic(partitions=2), fresh_name("app")
    its = f"{group}-counts-changelog"
    create_topic(node.bootstrap, its, partitions=2)
    consumer = Consumer({"bootstrap.servers": node.bootstrap, "group.id": group})
    consumer.commit(offsets=[TopicPartition(name, 0, 0)], asynchronous=False)
    consumer.close()
    for fields in ({"partitions": 4}, {"partitions": 1, "into": name + ".1"}):
        (refusal,) = repartition(node, name, **fields)["refusals"]
        assert group in refusal
        assert its in refusal


@pytest.mark.deep
def test_what_a_consumer_never_gets_is_not_waited_for(
    node: GatewayProcess, topic: Callable[..., str], fresh_name: Callable[[str], str]
) -> None:
    """The marker of a transaction: librdkafka commits the place behind the last record."""
    name, group = topic(partitions=1), fresh_name("behind")
    producer = Producer({"bootstrap.servers": node.bootstrap, "transactional.id": name})
    producer.init_transactions(60)
    producer.begin_transaction()
    for _ in range(2):
        producer.produce(name, key=b"k", value=b"v")
    end_transaction(producer, node.bootstrap, name)
    assert log_end(node.bootstrap, name) == 3
    consumer = Consumer({"bootstrap.servers": node.bootstrap, "group.id": group})
    try:
        place = [TopicPartition(name, 0, 2)]
        consumer.commit(offsets=place, asynchronous=False)
        repartition(node, name, partitions=2, execute=True)
        wait_for_phase(node, name, "finished")
    finally:
        consumer.close()
    assert status(node, name)["given_up"] == []


def test_a_producer_that_bypasses_the_gateway_is_told_of(
    kafka: KafkaCluster,
    node: GatewayProcess,
    topic: Callable[..., str],
    fresh_name: Callable[[str], str],
    librdkafka_host: ShareHost,
) -> None:
    name, group = topic(partitions=2), fresh_name("bypassed")
    member = librdkafka_host.member(node.bootstrap, group, [name])
    moved, stays = key_for(2, 4), key_for(0, 4)
    try:
        produce(node.bootstrap, name, [(moved, b"old"), (stays, b"old")], config=MURMUR2)
        member.poll_count(2)
        member.commit()
        repartition(node, name, partitions=4, partitioner="murmur2", execute=True)
        wait_for_phase(node, name, "open")
        # By number, as one that knows 2 partitions still.
        produce(kafka.bootstrap_servers, name, [(moved, b"late"), (stays, b"new")], partition=0)
        wait_until(
            lambda: bool(member.poll(0.2)) or status(node, name)["late_records"] == 1,
            what="late records",
            deadline_s=30,
        )
        wait_until(lambda: status(node, name)["late_records"] == 1, what="late", deadline_s=30)
        assert status(node, name)["late_partitions"] == [0]
        wait_until(
            lambda: any(
                "late records came" in reason for reason in status(node, name)["waits_for"]
            ),
            what="the next look says so",
            deadline_s=30,
        )
        assert any(
            f"topic {name!r}: 1 records" in str(warning) for warning in health(node)[1]["warnings"]
        )
    finally:
        member.close()


def test_such_a_producer_is_told_of_where_consumer_groups_alone_read(
    kafka: KafkaCluster,
    node: GatewayProcess,
    topic: Callable[..., str],
    fresh_name: Callable[[str], str],
) -> None:
    name, moved, stays = topic(partitions=2), key_for(2, 4), key_for(0, 4)
    consumer = Consumer({"bootstrap.servers": node.bootstrap, "group.id": fresh_name("plain")})
    try:
        produce(node.bootstrap, name, [(moved, b"old"), (stays, b"old")], config=MURMUR2)
        consumer.commit(offsets=[TopicPartition(name, 0, 1)], asynchronous=False)
        repartition(node, name, partitions=4, partitioner="murmur2", execute=True)
        wait_for_phase(node, name, "open")
        late = [(stays, b"new"), (moved, b"late"), (moved, b"late, too")]
        produce(kafka.bootstrap_servers, name, late, partition=0)
        wait_until(lambda: status(node, name)["late_records"] == 2, what="late", deadline_s=30)
        assert status(node, name)["late_partitions"] == [0]
    finally:
        consumer.close()
