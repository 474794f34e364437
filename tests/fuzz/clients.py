"""The clients whose traffic is recorded: librdkafka, aiokafka and Kafka's own tools."""

from __future__ import annotations

import asyncio
from typing import Any

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from confluent_kafka import Consumer, Producer, ShareConsumer, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
    OffsetSpec,
    ResourceType,
)

from gateway.embedded.process import wait_until
from tests.rig.clients.java_programs import compile_programs
from tests.rig.clients.kafka_tools import CONFIGS, CONSUMER_GROUPS, GROUPS, SHARE_GROUPS, KafkaTools

TOPIC = "orders"
TOPICS = "org.apache.kafka.tools.TopicCommand"
QUORUM = "org.apache.kafka.tools.MetadataQuorumCommand"
ANSWER_S = 30.0


def all_clients(bootstrap: str) -> None:
    _admin(bootstrap)
    _producers(bootstrap)
    _consumers(bootstrap)
    _share_consumers(bootstrap)
    asyncio.run(_aiokafka(bootstrap))
    _described(bootstrap)
    with KafkaTools(compile_programs()) as tools:
        _tools(tools, bootstrap)


def _admin(bootstrap: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for future in admin.create_topics([NewTopic(TOPIC, 2), NewTopic("gone", 1)]).values():
        future.result(ANSWER_S)
    for future in admin.create_partitions([NewPartitions("gone", 2)]).values():
        future.result(ANSWER_S)
    entry = ConfigEntry(
        "share.auto.offset.reset", "earliest", incremental_operation=AlterConfigOpType.SET
    )
    resource = ConfigResource(ResourceType.GROUP, "riders", incremental_configs=[entry])
    for altered in admin.incremental_alter_configs([resource]).values():
        altered.result(ANSWER_S)
    for future in admin.delete_topics(["gone"]).values():
        future.result(ANSWER_S)


def _producers(bootstrap: str) -> None:
    for codec in ("none", "gzip", "snappy", "lz4", "zstd"):
        _produce(Producer({"bootstrap.servers": bootstrap, "compression.type": codec}), 5)
    _produce(Producer({"bootstrap.servers": bootstrap, "acks": "0"}), 3)
    _produce(Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True}), 5)
    transactional = Producer({"bootstrap.servers": bootstrap, "transactional.id": "bank"})
    transactional.init_transactions(ANSWER_S)
    for at in range(2):
        transactional.begin_transaction()
        _produce(transactional, 3)
        (transactional.commit_transaction if at else transactional.abort_transaction)(ANSWER_S)


def _produce(producer: Producer, count: int) -> None:
    for at in range(count):
        headers: list[tuple[str, str | bytes | None]] = [("trace", b"%d" % at), ("none", None)]
        producer.produce(TOPIC, f"trip {at}", f"rider-{at % 3}", headers=headers[at % 3 :])
    producer.flush(ANSWER_S)


def _consumers(bootstrap: str) -> None:
    for protocol in ("classic", "consumer"):
        settings: dict[str, Any] = {
            "bootstrap.servers": bootstrap,
            "group.id": f"{protocol}-group",
            "group.protocol": protocol,
            "auto.offset.reset": "earliest",
        }
        consumer = Consumer(settings)
        consumer.subscribe([TOPIC])
        wait_until(
            lambda reader=consumer: bool(reader.consume(10, 1.0)),  # type: ignore[misc]
            what="records",
            deadline_s=ANSWER_S,
        )
        consumer.commit(asynchronous=False)
        consumer.offsets_for_times([TopicPartition(TOPIC, 0, 0)], ANSWER_S)
        consumer.close()


def _share_consumers(bootstrap: str) -> None:
    for mode in ("implicit", "explicit"):
        consumer = ShareConsumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": "riders" if mode == "implicit" else "drivers",
                "share.acknowledgement.mode": mode,
            }
        )
        consumer.subscribe([TOPIC])
        got: list[Any] = []

        def read(reader: Any = consumer, all_of: list[Any] = got) -> bool:
            all_of += reader.poll(1.0)
            return bool(all_of)

        wait_until(read, what="records of a share group", deadline_s=ANSWER_S)
        if mode == "explicit":
            for message in got:
                consumer.acknowledge(message)
            consumer.commit_sync()
        consumer.close()


async def _aiokafka(bootstrap: str) -> None:
    producer = AIOKafkaProducer(bootstrap_servers=bootstrap)
    await producer.start()
    await producer.send_and_wait(TOPIC, b"trip", key=b"rider")
    await producer.stop()
    consumer = AIOKafkaConsumer(
        TOPIC, bootstrap_servers=bootstrap, group_id="aio", auto_offset_reset="earliest"
    )
    await consumer.start()
    async with asyncio.timeout(ANSWER_S):
        await consumer.getone()
    await consumer.commit()
    await consumer.stop()


def _described(bootstrap: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.list_topics(timeout=ANSWER_S)
    admin.describe_cluster().result(ANSWER_S)
    admin.list_consumer_groups().result(ANSWER_S)
    for group in admin.describe_consumer_groups(["classic-group"]).values():
        group.result(ANSWER_S)
    for resource in (ResourceType.TOPIC, ResourceType.BROKER):
        name = TOPIC if resource is ResourceType.TOPIC else "1"
        for config in admin.describe_configs([ConfigResource(resource, name)]).values():
            config.result(ANSWER_S)
    end = OffsetSpec.latest()  # type: ignore[no-untyped-call]
    for offset in admin.list_offsets({TopicPartition(TOPIC, 0): end}).values():
        offset.result(ANSWER_S)


def _tools(tools: KafkaTools, bootstrap: str) -> None:
    group, topic = ("--group", "riders"), ("--topic", TOPIC)
    for tool, *arguments in (
        (TOPICS, "--describe"),
        (QUORUM, "describe", "--status"),
        (GROUPS, "--list"),
        (SHARE_GROUPS, "--list"),
        (SHARE_GROUPS, "--describe", *group, "--members"),
        (SHARE_GROUPS, "--describe", *group, "--offsets"),
        (SHARE_GROUPS, "--describe", *group, "--state"),
        (SHARE_GROUPS, "--reset-offsets", *group, *topic, "--to-earliest", "--execute"),
        (SHARE_GROUPS, "--delete-offsets", *group, *topic),
        (SHARE_GROUPS, "--delete", *group),
        (CONSUMER_GROUPS, "--describe", "--all-groups"),
        (CONFIGS, "--describe", "--entity-type", "groups", "--entity-name", "drivers"),
        (CONFIGS, "--describe", "--entity-type", "brokers", "--entity-name", "1", "--all"),
    ):
        tools.run(tool, bootstrap, *arguments)
