"""A Kafka used directly, through confluent-kafka: topics, group configs, records."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from confluent_kafka import (
    Consumer,
    IsolationLevel,
    KafkaException,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
    OffsetSpec,
    ResourceType,
)

from gateway.core.wire.apis import ApiKey
from gateway.core.wire.schema import Message
from tests.rig.clients.wire_client import WireClient
from tests.rig.patience import wait_until

ANSWER_S_MAX = 30.0
NEWEST = "4.4.0"  # of Kafka, beside the usual one; the first with dead letter queues (KIP-1191)
LINGER_MS = 60_000  # longer than handing over any number of records takes

# Each worker has some brokers: idle threads add up.
FEW_THREADS = {"num.io.threads": "3", "num.network.threads": "2"}

# Of a broker that nobody kills, and that a machine which stands still for seconds must not fence.
# One that starts again after a kill waits for the end of this session.
NEVER_KILLED = {
    "broker.session.timeout.ms": "60000",
    "broker.heartbeat.interval.ms": "5000",
    **FEW_THREADS,
}

# Waits that tests would otherwise sit through: 15 s of the log cleaner, 5 s of a KIP-848 heartbeat,
# 15 s of a share group's shortest lock.
QUICK_TURNS = {
    "log.cleaner.backoff.ms": "500",
    "group.consumer.min.heartbeat.interval.ms": "500",
    "group.consumer.heartbeat.interval.ms": "500",
    "group.share.min.heartbeat.interval.ms": "500",
    "group.share.heartbeat.interval.ms": "500",
    "group.share.min.record.lock.duration.ms": "1000",
    "group.min.session.timeout.ms": "500",
    **FEW_THREADS,
}

Sent = tuple[bytes | None, bytes | None]  # key, value


def create_topic(
    bootstrap_servers: str,
    name: str,
    *,
    partitions: int = 1,
    replicas: int = 1,
    config: Mapping[str, str] | None = None,
    assignment: list[list[int]] | None = None,
) -> None:
    """Creates `name` and returns when every partition has a leader that says so itself: before
    that Kafka throws acks=0 records away. Of several brokers each must know all leaders: one that
    has not heard of the topic yet refuses with another error than one that does not lead.
    `assignment`: broker ids per partition.
    """
    admin = AdminClient({"bootstrap.servers": bootstrap_servers, "log_level": 4})
    if assignment is not None:
        new = NewTopic(
            name, len(assignment), replica_assignment=assignment, config=dict(config or {})
        )
    else:
        new = NewTopic(name, partitions, replicas, config=dict(config or {}))
    admin.create_topics([new])[name].result(ANSWER_S_MAX)
    count = partitions if assignment is None else len(assignment)
    wait_until(
        lambda: _led(admin, name, count), what=f"leaders of topic {name}", deadline_s=ANSWER_S_MAX
    )
    addresses = bootstrap_servers.split(",")
    if len(addresses) > 1:
        wait_until(
            lambda: all(_known_to(address, name, count) for address in addresses),
            what=f"topic {name} known to {bootstrap_servers}",
            deadline_s=ANSWER_S_MAX,
        )


def delete_topic(bootstrap_servers: str, name: str) -> None:
    """Deletes `name` and returns when it is no longer listed."""
    admin = AdminClient({"bootstrap.servers": bootstrap_servers, "log_level": 4})
    admin.delete_topics([name])[name].result(ANSWER_S_MAX)
    wait_until(
        lambda: name not in admin.list_topics(timeout=ANSWER_S_MAX).topics,
        what=f"{name} gone",
        deadline_s=30,
    )


def _led(admin: AdminClient, name: str, partitions: int) -> bool:
    latest = OffsetSpec.latest()  # type: ignore[no-untyped-call]
    wanted = {TopicPartition(name, number): latest for number in range(partitions)}
    try:
        for answer in admin.list_offsets(wanted, request_timeout=ANSWER_S_MAX).values():
            answer.result(ANSWER_S_MAX)
    except KafkaException:
        return False
    return True


def metadata_of(address: str, name: str) -> Message:
    """Of this topic alone, as a row of Metadata 12."""
    with WireClient(address) as client:
        (topic,) = client.call(ApiKey.METADATA, 12, {"Topics": [{"Name": name}]})["Topics"]
    row: Message = topic
    return row


def _known_to(address: str, name: str, partitions: int) -> bool:
    topic = metadata_of(address, name)
    led = [partition for partition in topic["Partitions"] if partition["ErrorCode"] == 0]
    return topic["ErrorCode"] == 0 and len(led) == partitions


def set_group_config(bootstrap_servers: str, group: str, config: Mapping[str, str]) -> None:
    """Sets group configs, such as share.auto.offset.reset."""
    admin = AdminClient({"bootstrap.servers": bootstrap_servers, "log_level": 4})
    entries = [
        ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
        for name, value in config.items()
    ]
    resource = ConfigResource(ResourceType.GROUP, group, incremental_configs=entries)
    for answer in admin.incremental_alter_configs([resource]).values():
        answer.result(ANSWER_S_MAX)


def produce(
    bootstrap_servers: str,
    topic: str,
    records: Iterable[Sent],
    *,
    partition: int | None = None,
    config: Mapping[str, str | int] | None = None,
) -> None:
    """Sends the records and returns when all are acknowledged. Raises AssertionError for a failed
    one.

    Those of a partition go in one batch (of up to 1 MB), however slowly this machine hands them
    over: else the first of them would be there, and be read, before the rest.
    """
    together = {"linger.ms": LINGER_MS}  # flush() ends the lingering
    producer = Producer({"bootstrap.servers": bootstrap_servers, **together, **(config or {})})
    failed: list[str] = []

    def told(error: object, _message: object) -> None:
        if error is not None:
            failed.append(str(error))

    where = -1 if partition is None else partition  # -1: by the client's partitioner
    for key, value in records:
        while True:
            try:
                producer.produce(topic, key=key, value=value, partition=where, on_delivery=told)
                break
            except BufferError:
                producer.poll(0.1)
        producer.poll(0)
    assert producer.flush(60) == 0, "records still unsent after 60 s"
    assert not failed, failed[:3]


def log_end(bootstrap_servers: str, topic: str, partition: int = 0) -> int:
    """The offset behind the last record or marker (read_uncommitted)."""
    admin = AdminClient({"bootstrap.servers": bootstrap_servers, "log_level": 4})
    latest = OffsetSpec.latest()  # type: ignore[no-untyped-call]
    asked = admin.list_offsets(
        {TopicPartition(topic, partition): latest},
        isolation_level=IsolationLevel.READ_UNCOMMITTED,
        request_timeout=ANSWER_S_MAX,
    )
    (answer,) = asked.values()
    return int(answer.result(ANSWER_S_MAX).offset)


def end_transaction(
    producer: Producer, bootstrap_servers: str, topic: str, *, commit: bool = True
) -> None:
    """Ends it and waits for its marker in partition 0, which Kafka writes after it has answered:
    until then others may write before it, and committed readers see none of it.
    """
    assert producer.flush(ANSWER_S_MAX) == 0
    end = log_end(bootstrap_servers, topic)
    if commit:
        producer.commit_transaction(ANSWER_S_MAX)
    else:
        producer.abort_transaction(ANSWER_S_MAX)
    wait_until(
        lambda: log_end(bootstrap_servers, topic) > end,
        what="the marker of the transaction",
        deadline_s=ANSWER_S_MAX,
    )


def read_partition(
    bootstrap_servers: str, topic: str, partition: int
) -> list[tuple[int, bytes | None, bytes | None]]:
    """(offset, key, value) of every record of a partition, up to its end now (read_committed)."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap_servers,
            "group.id": "tests-direct-read",
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "enable.partition.eof": True,
        }
    )
    found: list[tuple[int, bytes | None, bytes | None]] = []
    try:
        consumer.assign([TopicPartition(topic, partition, 0)])
        while True:
            message = consumer.poll(ANSWER_S_MAX)
            assert message is not None, f"no answer within {ANSWER_S_MAX} s"
            error = message.error()
            if error is None:
                offset = message.offset()
                assert offset is not None
                found.append((offset, message.key(), message.value()))
            elif error.name() == "_PARTITION_EOF":
                return found
            else:
                raise AssertionError(str(error))
    finally:
        consumer.close()
