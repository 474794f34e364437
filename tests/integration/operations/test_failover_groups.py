"""When the member of a group of the fail-over demo has left, all that it processed is committed."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from confluent_kafka import ConsumerGroupTopicPartitions, Producer
from confluent_kafka.admin import AdminClient

from demo.failover_groups import Group
from demo.failover_member import COMMIT_RECORDS
from gateway.embedded.kafka import KafkaCluster
from tests.rig.kafka import create_topic

pytestmark = pytest.mark.integration


@pytest.mark.parametrize("records", [COMMIT_RECORDS, COMMIT_RECORDS + 1])
def test_what_it_has_committed(
    kafka: KafkaCluster, fresh_name: Callable[[str], str], records: int
) -> None:
    topic, name = fresh_name("topic"), fresh_name("group")
    create_topic(kafka.bootstrap_servers, topic, partitions=2)
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers})
    for at in range(records):
        producer.produce(topic, b"flight", partition=0, headers=[("number", b"%d" % at)])
    assert producer.flush(30) == 0
    group = Group(name, shared=False)
    group.start("here", kafka.bootstrap_servers, topic)
    group.wait_for(records, 60)
    group.stop()
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap_servers})
    (answer,) = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(name)]).values()
    committed = answer.result(30).topic_partitions
    assert {place.partition: place.offset for place in committed}[0] == records
