"""A partition that is added while nobody of a group is there, or the gateway is not, is read from
its first record, also by a group of `latest`.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, NewPartitions

from gateway.embedded.kafka import KafkaCluster
from tests.rig.clients.wire_client import ShareSession
from tests.rig.gateway_process import GatewayProcess
from tests.rig.kafka import produce
from tests.rig.patience import wait_until

Topic = Callable[..., str]
RECORDS = 5
NEW = 1  # the partition


@pytest.mark.deep  # the running gateway looks for new partitions twice a minute
def test_partitions_added_while_nobody_is_there(
    kafka: KafkaCluster, topic: Topic, tmp_path: Path
) -> None:
    bootstrap = kafka.bootstrap_servers
    while_down, while_empty = topic(partitions=1), topic(partitions=1)
    gateway = GatewayProcess(
        tmp_path, bootstrap, groups=[{"match": "*", "auto_offset_reset": "latest"}]
    )
    with gateway:
        for name in (while_down, while_empty):
            began(gateway, bootstrap, name)
        grow(bootstrap, while_empty)
        assert delivered(gateway, while_empty) == list(range(RECORDS))
        gateway.stop()
        grow(bootstrap, while_down)
        gateway.start()
        assert delivered(gateway, while_down) == list(range(RECORDS))


def began(gateway: GatewayProcess, bootstrap: str, name: str) -> None:
    """A member has fetched from the topic, and has left."""
    session = ShareSession(gateway.bootstrap, f"g-{name}", name).join()
    session.fetch(max_wait_ms=1_500)
    produce(bootstrap, name, [(b"k", b"first")])
    assert session.fetch_count(1).offsets == [0]
    session.acknowledge({0: [(0, 0, [1])]})
    session.leave()
    session.disconnect()


def grow(bootstrap: str, name: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_partitions([NewPartitions(name, NEW + 1)])[name].result(20)
    records = [(b"k%d" % at, b"new") for at in range(RECORDS)]
    produce(bootstrap, name, records, partition=NEW)


def delivered(gateway: GatewayProcess, name: str) -> list[int]:
    """Of the new partition, in the order of their offsets."""
    found: set[int] = set()

    def all_came() -> bool:
        session = ShareSession(gateway.bootstrap, f"g-{name}", name)
        if NEW in session.partitions:
            session.join()
            for _ in range(5):
                fetched = session.fetch(max_wait_ms=500).get(NEW)
                for offset in fetched.offsets if fetched is not None else ():
                    found.add(offset)
                    session.acknowledge({NEW: [(offset, offset, [1])]})
            session.leave()
        session.disconnect()
        return len(found) >= RECORDS

    wait_until(all_came, what="the records of the new partition", deadline_s=60.0)
    return sorted(found)
