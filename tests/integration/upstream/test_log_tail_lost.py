"""The upstream's only broker is killed and comes back without the end of its logs, as after a loss
of power.
"""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from gateway.embedded.kafka import KafkaCluster
from gateway.embedded.redis import EmbeddedRedis
from tests.rig.clients.wire_client import ShareSession
from tests.rig.committed import committed, wait_for_committed
from tests.rig.gateway_process import GatewayProcess
from tests.rig.kafka import QUICK_TURNS, create_topic, produce
from tests.rig.lost_tails import lose_tail

pytestmark = [pytest.mark.deep, pytest.mark.integration]

ACCEPT, REJECT = 1, 3
TOPICS = ("grown", "kept")
NEW_KEYS = {7: b"key-1", 8: b"key-9"}  # of records that take lost offsets; the others are of one
GROUP = {
    "match": "*",
    "auto_offset_reset": "latest",
    "rejected": "block",
    "disconnect_grace_ms": 500,
}


def values_of(session: ShareSession, count: int) -> dict[int, bytes | None]:
    """Acquires so many records, and accepts none of them."""
    return {offset: value for offset, _, value in session.fetch_count(count, within_s=60).records}


def test_records_are_neither_lost_nor_repeated(tmp_path: Path) -> None:
    """One topic grows behind the group's position before the gateway looks, the other does not."""
    with (
        KafkaCluster(1, share_groups=False, properties=QUICK_TURNS) as kafka,
        EmbeddedRedis(tmp_path / "redis") as redis,
    ):
        boot = kafka.bootstrap_servers
        for topic in TOPICS:
            create_topic(boot, topic)
        state = {"commit_interval_ms": 500}
        with GatewayProcess(
            tmp_path / "gateway", boot, groups=[GROUP], redis_url=redis.url, state=state
        ) as gateway:
            for topic in TOPICS:
                work_before(kafka, gateway.bootstrap, topic)
            (broker,) = kafka.brokers
            broker.kill()
            for topic in TOPICS:
                lose_tail(broker, topic, 7)
            os.kill(gateway.pid, signal.SIGSTOP)
            broker.start()
            kafka.wait_ready()
            for at in range(7, 13):
                produce(boot, "grown", [(NEW_KEYS.get(at, b"new"), b"new-%d" % at)])
            os.kill(gateway.pid, signal.SIGCONT)
            with ShareSession(gateway.bootstrap, "late", "grown").join() as second:
                new = {8: b"new-8", 9: b"new-9"}
                assert values_of(second, 3) == {2: b"old-2"} | new, "the first of each key"
                accepted = [(offset, offset, [ACCEPT]) for offset in (2, 8, 9)]
                assert second.acknowledge({0: accepted}) == {0: 0}
                for at in range(10, 13):
                    assert values_of(second, 1) == {at: b"new-%d" % at}, "they are of one key"
                    assert second.acknowledge({0: [(at, at, [ACCEPT])]}) == {0: 0}
            with ShareSession(gateway.bootstrap, "late", "kept").join() as third:
                assert values_of(third, 1) == {2: b"old-2"}, "in flight when the power went"
                produce(boot, "kept", [(b"key-1", b"new-7"), (b"key-9", b"new-8")])
                assert values_of(third, 1) == {8: b"new-8"}, "key-1 waits for its parked record"
            for topic in TOPICS:
                assert committed(kafka, "late", topic, 0)[0] == 1
        log = (tmp_path / "gateway" / "gateway.log").read_text()
        assert "event='log_tail_lost'" in log


def work_before(kafka: KafkaCluster, bootstrap: str, topic: str) -> None:
    """Of ten records the group has parked the second, holds the third and accepted the others."""
    with ShareSession(bootstrap, "late", topic).join() as first:
        first.fetch()
        for at in range(10):
            produce(kafka.bootstrap_servers, topic, [(b"key-%d" % at, b"old-%d" % at)])
        assert len(values_of(first, 10)) == 10
        settled = [(0, 0, [ACCEPT]), (1, 1, [REJECT]), (3, 9, [ACCEPT])]
        assert first.acknowledge({0: settled}) == {0: 0}
        wait_for_committed(kafka, "late", topic, 0, 1)
