"""Kafka forgets an offset some time after its last commit (offsets.retention.minutes), although the
members of a Key-Shared group are at work: it does not know them. A partition in which nothing
happens keeps its offset nevertheless, so that it is there when Redis is lost.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest
import redis

from gateway.core.wire.apis import ApiKey
from gateway.embedded.kafka import KafkaCluster
from gateway.embedded.redis import EmbeddedRedis
from tests.rig.clients.wire_client import ShareSession, WireClient, fetched_partitions
from tests.rig.committed import committed, wait_for_committed
from tests.rig.gateway_process import GatewayProcess
from tests.rig.kafka import QUICK_TURNS, create_topic, produce
from tests.rig.patience import wait_until

RETENTION_S = 60
CHECKED_S = 2
SHORT = {
    "offsets.retention.minutes": str(RETENTION_S // 60),
    "offsets.retention.check.interval.ms": str(CHECKED_S * 1_000),
}
ACCEPT, REJECT = 1, 3


@pytest.mark.deep
def test_a_quiet_partition_keeps_its_offset_and_loses_nothing_with_redis(tmp_path: Path) -> None:
    groups = [{"match": "*", "rejected": "block", "auto_offset_reset": "latest"}]
    with (
        KafkaCluster(1, share_groups=False, properties={**QUICK_TURNS, **SHORT}) as kafka,
        EmbeddedRedis(tmp_path / "redis") as embedded,
    ):
        bootstrap = kafka.bootstrap_servers
        create_topic(bootstrap, "pay")
        with GatewayProcess(
            tmp_path / "gateway",
            bootstrap,
            groups=groups,
            redis_url=embedded.url,
            state={"commit_interval_ms": 1_000},
        ) as gateway:
            session = ShareSession(gateway.bootstrap, "g", "pay").join()
            session.fetch(max_wait_ms=1_500)
            produce(bootstrap, "pay", [(b"k%d" % at, b"v") for at in range(6)])
            assert session.fetch_count(6).offsets == list(range(6))
            session.acknowledge({0: [(0, 3, [ACCEPT]), (4, 4, [REJECT]), (5, 5, [ACCEPT])]})
            wait_for_committed(kafka, "g", "pay", 0, 4)

            def is_committed() -> bool:
                beat(session)
                return committed(kafka, "g", "pay", 0)[0] == 4

            until = time.monotonic() + RETENTION_S + 5 * CHECKED_S
            while time.monotonic() < until:
                assert is_committed(), "the group has members"
                time.sleep(0.5)

            delete_offset(kafka, "g", "pay")
            assert committed(kafka, "g", "pay", 0)[0] == -1
            wait_until(is_committed, what="the deleted offset committed again", deadline_s=60.0)

            produce(bootstrap, "pay", [(b"k6", b"v")])
            assert session.fetch_count(1).offsets == [6]
            with redis.Redis.from_url(embedded.url) as admin:
                admin.flushall()
            assert again(session, lambda found: {4, 6} <= found) == {4, 6}
            session.disconnect()


def beat(session: ShareSession) -> None:
    session.heartbeat(session.member_epoch)
    session.fetch(max_wait_ms=100)


def delete_offset(kafka: KafkaCluster, group: str, topic: str) -> None:
    """As kafka-consumer-groups --delete-offsets does it."""
    topics = [{"Name": topic, "Partitions": [{"PartitionIndex": 0}]}]
    with WireClient(kafka.bootstrap_servers) as client:
        answer = client.call(ApiKey.OFFSET_DELETE, 0, {"GroupId": group, "Topics": topics})
    assert answer["ErrorCode"] == 0, answer


def again(session: ShareSession, enough: Callable[[set[int]], bool]) -> set[int]:
    """The records that are delivered now; the session may have to be opened anew."""
    found: set[int] = set()

    def came() -> bool:
        session.heartbeat(session.member_epoch)
        answer = session.fetch_message(max_wait_ms=300)
        if answer["ErrorCode"]:
            session.epoch = 0
            return False
        for partition in fetched_partitions(answer).values():
            found.update(offset for offset, _ in partition.acquired)
        return enough(found)

    wait_until(came, what="the records that were not settled", deadline_s=60.0)
    return found
