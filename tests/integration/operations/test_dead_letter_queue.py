"""Kafka's dead letter queues (KIP-1191): what a Key-Shared group writes is what Kafka's own share
group writes, in front of the same broker.

Kafka 4.4.0 is the first with them. Here it serves a share group directly and, for the same topic,
a Key-Shared group through a gateway. Both see the same verdicts.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pytest
from confluent_kafka import TIMESTAMP_CREATE_TIME, Consumer, KafkaException, Producer
from confluent_kafka import TopicPartition as Place
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ResourceType,
)

from gateway.embedded.jars import kafka_libs
from gateway.embedded.kafka import KafkaCluster
from tests.rig.clients.share_members import ShareHost
from tests.rig.gateway_process import GatewayProcess
from tests.rig.kafka import (
    ANSWER_S_MAX,
    NEWEST,
    QUICK_TURNS,
    create_topic,
    delete_topic,
    log_end,
    produce,
    set_group_config,
)
from tests.rig.operating import windows_of
from tests.rig.patience import patient_s, wait_until

pytestmark = [pytest.mark.integration, pytest.mark.deep]

FreshName = Callable[[str], str]
Letter = tuple[int, bytes | None, bytes | None, tuple[tuple[str, bytes | None], ...]]

TOPIC, COPY = "errors.deadletterqueue.topic.name", "errors.deadletterqueue.copy.record.enable"
ENABLED = {"errors.deadletterqueue.group.enable": "true"}
AUTO_CREATE = "errors.deadletterqueue.auto.create.topics.enable"
OWN = "own-dead-letters"  # of keyway.yaml
FROM_START = {"share.auto.offset.reset": "earliest", "share.delivery.count.limit": "2"}
RECORDED_AT_MS = 1_700_000_000_000

# What the members say about each record of a partition, delivery by delivery.
VERDICTS = [
    ("ACCEPT",),
    ("REJECT",),
    ("RELEASE", "RELEASE"),
    ("RELEASE", "REJECT"),
    ("RELEASE", "ACCEPT"),
    ("REJECT",),
    ("REJECT",),
]
# The last two have no key, and no value.
CONTENTS: list[tuple[bytes | None, bytes | None]] = [
    *((b"key-%d" % at, b"value-%d" % at) for at in range(len(VERDICTS) - 2)),
    (None, b"no key"),
    (b"tombstone", None),
]
POISON = sum(verdicts[-1] != "ACCEPT" for verdicts in VERDICTS)


@pytest.fixture(scope="module")
def newest() -> Iterator[KafkaCluster]:
    libs = kafka_libs(NEWEST)
    with KafkaCluster(1, share_groups=2, properties=QUICK_TURNS, libs=libs) as cluster:
        create_topic(cluster.bootstrap_servers, OWN)
        yield cluster


@pytest.fixture(scope="module")
def keyway(
    newest: KafkaCluster, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[GatewayProcess]:
    quick = {"backoff_base_ms": 100, "backoff_max_ms": 400}
    groups = [
        {"match": "own-*", **quick, "rejected": "dead_letter", "dead_letter_topic": OWN},
        {"match": "*", **quick},
    ]
    directory = tmp_path_factory.mktemp("queues")
    with GatewayProcess(directory, newest.bootstrap_servers, groups=groups) as gateway:
        yield gateway


def set_config(
    bootstrap: str, kind: ResourceType, name: str, config: Mapping[str, str | None]
) -> None:
    """None: takes the config away."""
    entries = [
        ConfigEntry(
            key,
            value or "",
            incremental_operation=AlterConfigOpType.DELETE
            if value is None
            else AlterConfigOpType.SET,
        )
        for key, value in config.items()
    ]
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 4})
    resource = ConfigResource(kind, name, incremental_configs=entries)
    for answer in admin.incremental_alter_configs([resource]).values():
        answer.result(ANSWER_S_MAX)


def config_of(bootstrap: str, kind: ResourceType, name: str) -> dict[str, str]:
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 4})
    (answer,) = admin.describe_configs([ConfigResource(kind, name)]).values()
    return {key: entry.value for key, entry in answer.result(ANSWER_S_MAX).items()}


def work(host: ShareHost, bootstrap: str, group: str, topic: str, partitions: int) -> None:
    """A member of the group gives every record its verdicts."""
    member = host.member(bootstrap, group, [topic], explicit=True)
    left = {(at, offset): list(VERDICTS[offset]) for at in range(partitions) for offset in range(7)}
    deadline = time.monotonic() + patient_s(60)
    while any(left.values()) and time.monotonic() < deadline:
        came = member.poll()
        for one in came:
            verdict = left[one.partition, one.offset].pop(0)
            member.acknowledge(verdict, [one])
        if came:
            assert set(member.commit()) <= {"OK"}
    assert not any(left.values()), left
    member.close()


def letters(bootstrap: str, topic: str, partitions: int, count: int) -> list[Any]:
    """Messages of the topic, once there are so many."""
    wait_until(
        lambda: sum(log_end(bootstrap, topic, at) for at in range(partitions)) >= count,
        what=f"{count} letters in {topic}",
        deadline_s=60,
    )
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": f"reader-of-{topic}"})
    try:
        consumer.assign([Place(topic, at, 0) for at in range(partitions)])
        found = [consumer.poll(ANSWER_S_MAX) for _ in range(count)]
        assert all(one is not None and one.error() is None for one in found)
        assert consumer.poll(0.3) is None, "more than one letter of a record"
        return found
    finally:
        consumer.close()


def told(message: Any, group: str) -> Letter:
    """A letter without what differs by design: its group, and its place in its partition."""
    headers = [
        (name, b"GROUP" if value == group.encode() else value) for name, value in message.headers()
    ]
    return message.partition(), message.key(), message.value(), tuple(headers)


def order(letter: Letter) -> tuple[bytes | None, ...]:
    return tuple(value for _, value in letter[3])


@pytest.mark.parametrize("copies", ["false", "true"])
def test_letters_are_those_of_kafkas_own_share_group(
    newest: KafkaCluster,
    keyway: GatewayProcess,
    fresh_name: FreshName,
    librdkafka_host: ShareHost,
    copies: str,
) -> None:
    broker = newest.bootstrap_servers
    name, kafkas, ours = fresh_name("orders"), fresh_name("kafkas"), fresh_name("own")
    create_topic(broker, name, partitions=3)
    producer = Producer({"bootstrap.servers": broker})
    for partition in range(3):
        for key, value in CONTENTS:
            headers: list[tuple[str, str | bytes | None]] = [("trace", b"1"), ("trace", b"2")]
            producer.produce(name, value, key, partition, headers=headers, timestamp=RECORDED_AT_MS)
    assert producer.flush(ANSWER_S_MAX) == 0

    found = {}
    for group, front in ((kafkas, broker), (ours, keyway.bootstrap)):
        create_topic(broker, f"dlq.{group}", partitions=2, config=ENABLED)
        set_group_config(front, group, {**FROM_START, TOPIC: f"dlq.{group}", COPY: copies})
        begun_ms = time.time_ns() // 1_000_000
        work(librdkafka_host, front, group, name, 3)
        messages = letters(broker, f"dlq.{group}", 2, 3 * POISON)
        ended_ms = time.time_ns() // 1_000_000
        for message in messages:
            kind, at_ms = message.timestamp()
            assert kind == TIMESTAMP_CREATE_TIME
            assert begun_ms <= at_ms <= ended_ms, "the time of the letter, not of its record"
        found[group] = sorted((told(message, group) for message in messages), key=order)

    assert found[ours] == found[kafkas]
    assert log_end(broker, OWN) == 0, "keyway.yaml's policy waits while Kafka names a queue"
    shown = [config_of(front, ResourceType.GROUP, ours) for front in (broker, keyway.bootstrap)]
    assert shown[0] == shown[1]
    assert (shown[0][TOPIC], shown[0][COPY]) == (f"dlq.{ours}", copies)


@pytest.mark.parametrize(
    "config",
    [{TOPIC: "__dead"}, {COPY: "perhaps"}, {TOPIC: "dlq.x", "errors.deadletterqueue.x": "1"}],
)
def test_bad_values_are_refused_in_kafkas_own_words(
    newest: KafkaCluster, keyway: GatewayProcess, fresh_name: FreshName, config: dict[str, str]
) -> None:
    group = fresh_name("group")
    refusals = []
    for front in (newest.bootstrap_servers, keyway.bootstrap):
        with pytest.raises(KafkaException) as refused:
            set_group_config(front, group, config)
        error = refused.value.args[0]
        refusals.append((error.code(), error.str()))
    assert refusals[0] == refusals[1]
    assert config_of(keyway.bootstrap, ResourceType.GROUP, group)[TOPIC] == ""


def test_kafka_itself_archives_poison_that_its_queue_cannot_take(
    newest: KafkaCluster, fresh_name: FreshName, librdkafka_host: ShareHost
) -> None:
    """The oracle of the next test: here Keyway differs."""
    broker = newest.bootstrap_servers
    name, group = fresh_name("orders"), fresh_name("kafkas")
    create_topic(broker, name)
    set_group_config(broker, group, {**FROM_START, TOPIC: f"dlq.{group}"})
    member = librdkafka_host.member(broker, group, [name], explicit=True)
    produce(broker, name, [(b"k", b"poison")], partition=0)
    member.settle("REJECT", member.poll_some())
    create_topic(broker, f"dlq.{group}", config=ENABLED)
    produce(broker, name, [(b"k", b"next")], partition=0)
    member.settle("REJECT", member.poll_some())
    (letter,) = letters(broker, f"dlq.{group}", 1, 1)
    assert dict(letter.headers())["__dlq.errors.offset"] == b"1"
    member.close()


def trouble(gateway: GatewayProcess, group: str) -> str:
    return str(next(iter(windows_of(gateway, group)), {}).get("dead_letter_trouble"))


def test_poison_waits_until_its_queue_can_take_it(
    newest: KafkaCluster, keyway: GatewayProcess, fresh_name: FreshName, librdkafka_host: ShareHost
) -> None:
    """Missing, not enabled, deleted meanwhile: Kafka archives such a record without a letter. Here
    its key waits, and other keys go on.
    """
    broker = newest.bootstrap_servers
    name, group = fresh_name("orders"), fresh_name("group")
    queue = f"dlq.{group}"
    create_topic(broker, name)
    set_group_config(keyway.bootstrap, group, {**FROM_START, TOPIC: queue})
    produce(broker, name, [(b"k", b"poison"), (b"other", b"1"), (b"k", b"next")], partition=0)
    member = librdkafka_host.member(keyway.bootstrap, group, [name], explicit=True)
    first = member.poll_some()
    assert [one.offset for one in first] == [0, 1]
    member.acknowledge("REJECT", first[:1])
    member.acknowledge("ACCEPT", first[1:])
    assert set(member.commit()) == {"OK"}

    def told_of(word: str) -> None:
        wait_until(lambda: word in trouble(keyway, group), what=word, deadline_s=30)

    told_of(AUTO_CREATE)
    create_topic(broker, queue)
    told_of("errors.deadletterqueue.group.enable")
    assert member.poll_empty(1) == [], "the next of the key waits"
    assert log_end(broker, queue) == 0
    set_config(broker, ResourceType.TOPIC, queue, ENABLED)
    (next_one,) = member.poll_some()
    assert next_one.value == b"next"
    (letter,) = letters(broker, queue, 1, 1)
    assert dict(letter.headers())["__dlq.errors.offset"] == b"0"

    delete_topic(broker, queue)
    member.settle("REJECT", [next_one])
    told_of(AUTO_CREATE)
    create_topic(broker, queue, config=ENABLED)
    (letter,) = letters(broker, queue, 1, 1)
    assert dict(letter.headers())["__dlq.errors.offset"] == b"2"
    member.close()


def test_a_name_without_the_clusters_prefix_takes_nothing(
    newest: KafkaCluster, keyway: GatewayProcess, fresh_name: FreshName, librdkafka_host: ShareHost
) -> None:
    broker = newest.bootstrap_servers
    name, group, queue = fresh_name("orders"), fresh_name("group"), fresh_name("business")
    create_topic(broker, name)
    create_topic(broker, queue, config=ENABLED)
    set_group_config(keyway.bootstrap, group, {**FROM_START, TOPIC: queue})
    produce(broker, name, [(b"k", b"poison")], partition=0)
    member = librdkafka_host.member(keyway.bootstrap, group, [name], explicit=True)
    member.settle("REJECT", member.poll_some())
    wait_until(lambda: "'dlq.'" in trouble(keyway, group), what="the prefix", deadline_s=30)
    assert log_end(broker, queue) == 0
    # Without its queue, keyway.yaml decides about the record: `rejected` is `drop`.
    set_config(keyway.bootstrap, ResourceType.GROUP, group, {TOPIC: None})
    wait_until(
        lambda: next(iter(windows_of(keyway, group)), {}).get("cursor") == 1,
        what="dropped",
        deadline_s=30,
    )
    member.close()


def test_a_queue_is_created_as_kafka_creates_it(
    newest: KafkaCluster, keyway: GatewayProcess, fresh_name: FreshName, librdkafka_host: ShareHost
) -> None:
    broker = newest.bootstrap_servers
    set_config(broker, ResourceType.BROKER, "1", {AUTO_CREATE: "true"})
    try:
        created = {}
        for front in (broker, keyway.bootstrap):
            name, group = fresh_name("orders"), fresh_name("group")
            create_topic(broker, name)
            set_group_config(front, group, {**FROM_START, TOPIC: f"dlq.{group}"})
            produce(broker, name, [(b"k", b"poison")], partition=0)
            member = librdkafka_host.member(front, group, [name], explicit=True)
            member.settle("REJECT", member.poll_some())
            admin = AdminClient({"bootstrap.servers": broker, "log_level": 4})
            wait_until(
                lambda: f"dlq.{group}" in admin.list_topics().topics,  # noqa: B023
                what="the queue",
                deadline_s=60,
            )
            letters(broker, f"dlq.{group}", 1, 1)
            created[front] = config_of(broker, ResourceType.TOPIC, f"dlq.{group}")
            member.close()
        assert created[broker] == created[keyway.bootstrap]
    finally:
        set_config(broker, ResourceType.BROKER, "1", {AUTO_CREATE: None})


def test_after_its_queue_is_gone_a_group_has_keyways_own_policy(
    newest: KafkaCluster, keyway: GatewayProcess, fresh_name: FreshName, librdkafka_host: ShareHost
) -> None:
    broker = newest.bootstrap_servers
    name, group = fresh_name("orders"), fresh_name("own")
    create_topic(broker, name)
    create_topic(broker, f"dlq.{group}", config=ENABLED)
    set_group_config(keyway.bootstrap, group, {**FROM_START, TOPIC: f"dlq.{group}"})
    member = librdkafka_host.member(keyway.bootstrap, group, [name], explicit=True)
    before = log_end(broker, OWN)
    produce(broker, name, [(b"k", b"1")], partition=0)
    member.settle("REJECT", member.poll_some())
    letters(broker, f"dlq.{group}", 1, 1)
    set_config(keyway.bootstrap, ResourceType.GROUP, group, {TOPIC: None})
    produce(broker, name, [(b"k", b"2")], partition=0)
    member.settle("REJECT", member.poll_some())
    wait_until(lambda: log_end(broker, OWN) == before + 1, what="own letter", deadline_s=30)
    assert log_end(broker, f"dlq.{group}") == 1
    member.close()
