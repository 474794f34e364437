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
from tests.rig.lost_tails import bring_back, lose_tail, lose_tail_of, saved_log
from tests.rig.patience import wait_until

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
EARLIEST = {**GROUP, "auto_offset_reset": "earliest"}


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


def test_a_log_that_parts_twice_is_left_where_the_group_left_it(tmp_path: Path) -> None:
    """A leader without the end of the log, and then the one of before, which has it: the group has
    read what the first one wrote instead.
    """
    with (
        KafkaCluster(1, share_groups=False, properties=QUICK_TURNS) as kafka,
        EmbeddedRedis(tmp_path / "redis") as redis,
    ):
        boot = kafka.bootstrap_servers
        (broker,) = kafka.brokers

        def gateway() -> GatewayProcess:
            directory = tmp_path / "gateway"
            return GatewayProcess(directory, boot, groups=[EARLIEST], redis_url=redis.url)

        create_topic(boot, "twice")
        produce(boot, "twice", [(b"key", b"old-%d" % at) for at in range(5)])
        with gateway() as first:
            accept(first.bootstrap, b"old-0", b"old-1", b"old-2", b"old-3", b"old-4")
        produce(boot, "twice", [(b"key", b"old-%d" % at) for at in range(5, 10)])
        broker.kill()
        former = saved_log(broker, "twice")
        lose_tail(broker, "twice", 5)
        broker.start()
        kafka.wait_ready()
        produce(boot, "twice", [(b"key", b"new-%d" % at) for at in range(5, 8)])
        with gateway() as second:
            accept(second.bootstrap, b"new-5", b"new-6", b"new-7")
            broker.kill()
            bring_back(broker, "twice", former)
            broker.start()
            kafka.wait_ready()
            produce(boot, "twice", [(b"key", b"last")])
            again = [b"old-5", b"old-6", b"old-7", b"old-8", b"old-9", b"last"]
            accept(second.bootstrap, *again)


def test_what_takes_the_offset_of_a_record_at_work_waits_for_the_work(tmp_path: Path) -> None:
    """The member comes back after the loss, as clients do, and acknowledges the lost record."""
    with (
        KafkaCluster(1, share_groups=False, properties=QUICK_TURNS) as kafka,
        EmbeddedRedis(tmp_path / "redis") as redis,
    ):
        boot = kafka.bootstrap_servers
        create_topic(boot, "worked")
        for at in range(2):
            produce(boot, "worked", [(b"key-%d" % at, b"old-%d" % at)])
        groups = [{**EARLIEST, "disconnect_grace_ms": 600_000, "lock_duration_ms": 600_000}]
        log = tmp_path / "gateway" / "gateway.log"
        with GatewayProcess(
            tmp_path / "gateway", boot, groups=groups, redis_url=redis.url
        ) as gateway:
            with ShareSession(gateway.bootstrap, "late", "worked").join() as first:
                assert len(values_of(first, 2)) == 2
                assert first.acknowledge({0: [(0, 0, [ACCEPT])]}) == {0: 0}
                lose_tail_of(kafka, "worked", 1)
                produce(boot, "worked", [(b"key-1", b"new-1")])
                produce(boot, "worked", [(b"key-2", b"new-2")])
            again = ShareSession(gateway.bootstrap, "late", "worked", first.member_id)
            with again.join():
                wait_until(
                    lambda: "in_flight=1" in log.read_text(), what="the loss is told", deadline_s=30
                )
                assert not any(got.acquired for got in again.fetch().values())
                assert again.acknowledge({0: [(1, 1, [ACCEPT])]}) == {0: 0}
                assert values_of(again, 2) == {1: b"new-1", 2: b"new-2"}


def accept(bootstrap: str, *values: bytes) -> None:
    """Takes these records of one key, one after the other."""
    with ShareSession(bootstrap, "twice", "twice").join() as member:
        for value in values:
            ((offset, found),) = values_of(member, 1).items()
            assert found == value
            assert member.acknowledge({0: [(offset, offset, [ACCEPT])]}) == {0: 0}


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
