"""A group's committed offset as any Kafka tool sees it: asked of the upstream broker, not of the
gateway.
"""

from __future__ import annotations

from confluent_kafka import ConsumerGroupTopicPartitions, TopicPartition
from confluent_kafka.admin import AdminClient

from gateway.embedded.kafka import KafkaCluster
from gateway.embedded.process import wait_until
from tests.integration.gateway_process import DIRECT

# The gateway commits every 5 s.
COMMITTED_S_MAX = 20.0


def committed_offset(kafka: KafkaCluster, group: str, topic: str, partition: int) -> int:
    """-1001 if nothing is committed."""
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap_servers})
    asked = ConsumerGroupTopicPartitions(group, [TopicPartition(topic, partition)])
    answer = admin.list_consumer_group_offsets([asked])[group].result(10)
    return int(answer.topic_partitions[0].offset)


def wait_for_committed(
    kafka: KafkaCluster, group: str, topic: str, partition: int, offset: int
) -> None:
    """Waits until the committed offset is `offset`; fails with the one there is.

    Kafka's own share groups keep no committed offset: directly against a broker nothing is checked.
    """
    if DIRECT:
        return
    seen = -1

    def reached() -> bool:
        nonlocal seen
        seen = committed_offset(kafka, group, topic, partition)
        return seen == offset

    try:
        wait_until(reached, what=f"committed offset {offset}", deadline_s=COMMITTED_S_MAX)
    except TimeoutError as error:
        raise AssertionError(f"{error}; it is {seen}") from None
