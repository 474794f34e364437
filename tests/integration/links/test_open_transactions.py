"""A producer of the source begins a transaction and does not end it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka import Producer

from gateway.embedded.kafka import KafkaCluster
from spark.links.distribute import LinkRun
from spark.links.high_watermarks import HighWatermarks
from spark.links.status import PartitionStatus
from tests.rig.link_by_hand import A, B, C, LinkByHand
from tests.rig.patience import wait_until

pytestmark = pytest.mark.integration


def looked(run: LinkRun, topic: str) -> PartitionStatus:
    """The row after another look."""
    run._marks = HighWatermarks()
    run._publish()
    return run.report.topics()[topic].partitions[0]


def test_its_records_are_lag_and_the_marker_of_one_that_ended_is_none(
    kafka: KafkaCluster, tmp_path: Path, fresh_name: Callable[[str], str]
) -> None:
    link = LinkByHand(kafka.bootstrap_servers, tmp_path, fresh_name("open"))
    link.create("orders", A, B, C)
    topic = link.name(A, "orders")
    producer = Producer({"bootstrap.servers": link.front, "transactional.id": topic})
    producer.init_transactions(30)

    def begun(count: int) -> None:
        producer.begin_transaction()
        for _ in range(count):
            producer.produce(topic, b"value")
        producer.flush(30)

    begun(2)
    producer.commit_transaction(30)
    marked = 3  # two records and a marker
    wait_until(
        lambda: link.source.log_ends([(topic, 0)])[topic, 0] == marked,
        what="the marker",
        deadline_s=30,
    )
    link.stands({"orders": marked}, B)
    run = link.process(B)
    run._starts_at, _ = run._starts(run._survey())
    row = looked(run, topic)
    assert (row.lag_records, row.open_at) == (0, -1)
    begun(4)
    row = looked(run, topic)
    assert (row.lag_records, row.open_at, row.log_end) == (4, marked, marked + 4)
    producer.abort_transaction(30)
    wait_until(lambda: looked(run, topic).open_at == -1, what="the marker", deadline_s=30)
    assert looked(run, topic).lag_records == 5, "until the link has passed them"
