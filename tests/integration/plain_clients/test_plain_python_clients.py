"""Plain Python clients through the gateway: confluent-kafka (librdkafka) and aiokafka,
unmodified.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from confluent_kafka import (
    Consumer,
    ConsumerGroupTopicPartitions,
    IsolationLevel,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import (
    AdminClient,
    ConfigResource,
    NewPartitions,
    NewTopic,
    OffsetSpec,
    ResourceType,
)

from gateway.embedded.kafka import KafkaCluster
from tests.rig.kafka import produce, read_partition
from tests.rig.patience import patient_s

pytestmark = pytest.mark.integration

Topic = Callable[..., str]
Name = Callable[[str], str]
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
WAIT_S = 30.0


def consumer_of(front: str, group: str, **config: str | int) -> Consumer:
    dotted = {name.replace("_", "."): value for name, value in config.items()}
    return Consumer(
        {
            "bootstrap.servers": front,
            "group.id": group,
            "auto.offset.reset": "earliest",
            **dotted,
        }
    )


def read_values(consumer: Consumer, count: int) -> list[bytes | None]:
    """Values of the next `count` records; fails when they do not come."""
    values: list[bytes | None] = []
    deadline = time.monotonic() + patient_s(WAIT_S)
    while len(values) < count:
        assert time.monotonic() < deadline, f"only {len(values)} of {count} records"
        for message in consumer.consume(500, 0.2):
            assert message.error() is None, message.error()
            values.append(message.value())
    return values


@pytest.mark.parametrize(
    "config",
    [
        {"acks": "0"},
        {"acks": "1"},
        {"acks": "all"},
        {"enable.idempotence": True},
        *({"compression.type": codec, "linger.ms": 50} for codec in CODECS[1:]),
    ],
    ids=lambda config: "-".join(str(value) for value in config.values()),
)
def test_produce_and_consume(
    front: str, topic: Topic, fresh_name: Name, config: dict[str, Any]
) -> None:
    name = topic(partitions=3)
    sent = [b"value-%d" % at for at in range(1_000)]
    produce(front, name, [(b"key-%d" % (at % 50), sent[at]) for at in range(1_000)], config=config)
    consumer = consumer_of(front, fresh_name("plain"))
    consumer.subscribe([name])
    got = read_values(consumer, 1_000)
    consumer.close()
    assert sorted(value or b"" for value in got) == sorted(sent)


def test_acks_0_and_acks_all_in_turn_on_one_connection(front: str, topic: Topic) -> None:
    """A produce without an answer must not shift the answers behind it (metadata, fetch)."""
    name = topic(partitions=1)
    silent = Producer({"bootstrap.servers": front, "acks": "0"})
    for at in range(200):
        silent.produce(name, value=b"%d" % at)
        if at % 20 == 0:
            silent.flush(10)
            # The same client, the same connection: an answered request between silent ones.
            assert name in silent.list_topics(name, timeout=60).topics
    assert silent.flush(10) == 0
    deadline = time.monotonic() + patient_s(WAIT_S)
    while len(read_partition(front, name, 0)) < 200:
        assert time.monotonic() < deadline, "acks=0 records missing"


def test_records_arrive_as_they_were_sent(
    front: str, kafka: KafkaCluster, topic: Topic, fresh_name: Name
) -> None:
    """Keys, values, headers, timestamps: read through the gateway and directly, the same."""
    name = topic(partitions=1)
    producer = Producer({"bootstrap.servers": front})
    for at in range(100):
        producer.produce(
            name,
            key=None if at % 3 == 0 else b"k%d" % at,
            value=None if at % 5 == 0 else bytes(range(at)),
            headers=[("h", b"%d" % at), ("none", None)],
            timestamp=1_600_000_000_000 + at,
        )
    assert producer.flush(20) == 0

    def read(bootstrap: str) -> list[tuple[Any, ...]]:
        consumer = consumer_of(bootstrap, fresh_name("plain"))
        consumer.assign([TopicPartition(name, 0, 0)])
        messages: list[Any] = []
        deadline = time.monotonic() + patient_s(WAIT_S)
        while len(messages) < 100:
            assert time.monotonic() < deadline, f"only {len(messages)} of 100"
            messages += consumer.consume(100, 0.2)
        consumer.close()
        return [
            (
                message.offset(),
                message.key(),
                message.value(),
                message.headers(),
                message.timestamp(),
            )
            for message in messages
        ]

    assert read(front) == read(kafka.bootstrap_servers)


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_groups_rebalance_and_commit(
    front: str, topic: Topic, fresh_name: Name, protocol: str
) -> None:
    """Two members share the partitions; one leaves, the other takes all; the offsets are
    committed.
    """
    name, group = topic(partitions=4), fresh_name("plain")
    extra: dict[str, str | int] = {"group_protocol": protocol}
    if protocol == "classic":
        extra |= {"heartbeat_interval_ms": 300, "session_timeout_ms": 10_000}
    members = [consumer_of(front, group, **extra) for _ in range(2)]
    for member in members:
        member.subscribe([name])

    def until_assigned(sizes: list[int]) -> None:
        deadline = time.monotonic() + patient_s(WAIT_S)
        while [len(member.assignment()) for member in members] != sizes:
            assert time.monotonic() < deadline, [known.assignment() for known in members]
            for member in members:
                member.poll(0.1)

    until_assigned([2, 2])
    produce(front, name, [(b"k%d" % at, b"%d" % at) for at in range(400)])
    seen: set[bytes | None] = set()
    deadline = time.monotonic() + patient_s(WAIT_S)
    while len(seen) < 400:
        assert time.monotonic() < deadline, f"only {len(seen)} of 400"
        for member in members:
            seen |= {message.value() for message in member.consume(500, 0.1)}
    for member in members:
        member.commit(asynchronous=False)
    members.pop().close()
    until_assigned([4])
    ends = members[0].committed([TopicPartition(name, at) for at in range(4)], timeout=60)
    assert sum(place.offset for place in ends) == 400
    members[0].close()


def test_seek_positions_watermarks_and_times(front: str, topic: Topic, fresh_name: Name) -> None:
    name = topic(partitions=1)
    producer = Producer({"bootstrap.servers": front})
    for at in range(50):
        producer.produce(name, value=b"%d" % at, timestamp=1_600_000_000_000 + at * 1_000)
    assert producer.flush(20) == 0
    consumer = consumer_of(front, fresh_name("plain"))
    assert consumer.get_watermark_offsets(TopicPartition(name, 0), timeout=60) == (0, 50)
    asked = [TopicPartition(name, 0, 1_600_000_020_000)]
    assert consumer.offsets_for_times(asked, timeout=60)[0].offset == 20
    consumer.assign([TopicPartition(name, 0, 40)])
    assert read_values(consumer, 10) == [b"%d" % at for at in range(40, 50)]
    consumer.close()


def test_transactions_commit_and_abort(front: str, topic: Topic, fresh_name: Name) -> None:
    name = topic(partitions=2)
    producer = Producer({"bootstrap.servers": front, "transactional.id": fresh_name("tx")})
    producer.init_transactions(20)
    for outcome in (b"yes", b"no", b"yes"):
        producer.begin_transaction()
        for at in range(50):
            producer.produce(name, key=b"%d" % at, value=outcome)
        if outcome == b"yes":
            producer.commit_transaction(20)
        else:
            producer.flush(20)
            producer.abort_transaction(20)
    consumer = consumer_of(front, fresh_name("plain"), isolation_level="read_committed")
    consumer.subscribe([name])
    assert read_values(consumer, 100) == [b"yes"] * 100
    consumer.close()


def test_admin(front: str, kafka: KafkaCluster, fresh_name: Name) -> None:
    """Topics, partitions, offsets, records, configs, groups; and no broker address but the
    gateway's.
    """
    admin = AdminClient({"bootstrap.servers": front})
    name, group = fresh_name("admin"), fresh_name("admin-group")
    admin.create_topics([NewTopic(name, 2, 1)])[name].result(20)
    produce(front, name, [(b"k", b"%d" % at) for at in range(20)], partition=0)
    place = TopicPartition(name, 0)
    specs: Any = OffsetSpec
    for spec, offset in ((specs.earliest(), 0), (specs.latest(), 20)):
        asked = admin.list_offsets({place: spec}, isolation_level=IsolationLevel.READ_UNCOMMITTED)
        assert asked[place].result(20).offset == offset
    deleted = admin.delete_records([TopicPartition(name, 0, 5)])
    assert next(iter(deleted.values())).result(20).low_watermark == 5
    resource = ConfigResource(ResourceType.TOPIC, name)
    assert "retention.ms" in admin.describe_configs([resource])[resource].result(20)
    admin.create_partitions([NewPartitions(name, 3)])[name].result(20)
    wanted = [ConsumerGroupTopicPartitions(group, [TopicPartition(name, 0, 7)])]
    admin.alter_consumer_group_offsets(wanted)[group].result(20)
    asked_group = [ConsumerGroupTopicPartitions(group, [place])]
    listed = admin.list_consumer_group_offsets(asked_group)[group].result(20)
    assert listed.topic_partitions[0].offset == 7
    cluster = admin.describe_cluster().result(20)
    assert len(cluster.nodes) == len(kafka.brokers)
    groups = admin.list_consumer_groups().result(20)
    assert group in [found.group_id for found in groups.valid]
    admin.delete_consumer_groups([group])[group].result(20)
    admin.delete_topics([name])[name].result(20)


def test_aiokafka(front: str, topic: Topic, fresh_name: Name) -> None:
    """A producer and a group of two, all codecs; aiokafka speaks the oldest versions of all clients
    here.
    """
    name, group = topic(partitions=2), fresh_name("aiokafka")

    async def scenario() -> None:
        codecs = (None, *CODECS[1:])
        for codec in codecs:
            async with AIOKafkaProducer(
                bootstrap_servers=front, compression_type=codec, enable_idempotence=True
            ) as producer:
                for at in range(40):
                    await producer.send(name, b"%s-%d" % (str(codec).encode(), at), key=b"%d" % at)
        members = [
            AIOKafkaConsumer(
                name,
                bootstrap_servers=front,
                group_id=group,
                auto_offset_reset="earliest",
                heartbeat_interval_ms=300,
            )
            for _ in range(2)
        ]
        for member in members:
            await member.start()
        try:
            seen: set[bytes] = set()
            deadline = time.monotonic() + patient_s(WAIT_S)
            while len(seen) < 200 or [len(known.assignment()) for known in members] != [1, 1]:
                assert time.monotonic() < deadline, f"{len(seen)} of 200"
                for member in members:
                    batches = await member.getmany(timeout_ms=100)
                    seen |= {record.value for batch in batches.values() for record in batch}
            await members[0].commit()
        finally:
            for member in members:
                await member.stop()

    asyncio.run(scenario())


def test_unknown_topic_is_reported(front: str, fresh_name: Name) -> None:
    producer = Producer({"bootstrap.servers": front, "message.timeout.ms": 3_000})
    failures: list[str] = []
    producer.produce(
        fresh_name("missing"), b"x", on_delivery=lambda error, _: failures.append(str(error))
    )
    assert producer.flush(10) == 0
    assert failures
    assert "UNKNOWN_TOPIC" in failures[0] or "_MSG_TIMED_OUT" in failures[0], failures
