"""The contents of a topic upstream, with headers and timestamps: the truth that deliveries are
compared with.
"""

from __future__ import annotations

from confluent_kafka import Consumer, Message, TopicPartition

from gateway.embedded.kafka import KafkaCluster

ANSWER_S_MAX = 20.0


def read_messages(kafka: KafkaCluster, topic: str, partition: int = 0) -> list[Message]:
    """Every record of a partition up to its end now, read_committed, from the broker itself."""
    return whole_partition(kafka.bootstrap_servers, topic, partition)


def whole_partition(bootstrap_servers: str, topic: str, partition: int = 0) -> list[Message]:
    """The same, from any address."""
    reader = Consumer(
        {
            "bootstrap.servers": bootstrap_servers,
            "group.id": "tests-topic-contents",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "auto.offset.reset": "earliest",
        }
    )
    found: list[Message] = []
    try:
        reader.assign([TopicPartition(topic, partition, 0)])
        while True:
            message = reader.poll(ANSWER_S_MAX)
            assert message is not None, f"no answer within {ANSWER_S_MAX} s"
            error = message.error()
            if error is None:
                found.append(message)
            elif error.name() == "_PARTITION_EOF":
                return found
            else:
                raise AssertionError(str(error))
    finally:
        reader.close()


def headers_of(message: Message) -> list[tuple[str, bytes | None]]:
    headers = message.headers() or []
    pairs = headers.items() if isinstance(headers, dict) else headers
    return [(name, value.encode() if isinstance(value, str) else value) for name, value in pairs]


def places_upstream(
    kafka: KafkaCluster, topic: str, partitions: int = 1
) -> set[tuple[str, int, int]]:
    """(topic, partition, offset) of every committed record there is now."""
    found = set()
    for partition in range(partitions):
        for message in read_messages(kafka, topic, partition):
            offset = message.offset()
            assert offset is not None, "a record that was read has an offset"
            found.add((topic, partition, offset))
    return found
