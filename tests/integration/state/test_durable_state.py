"""State that outlives its topic or group, or is too old: real Redis, real Kafka."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient
from redis import Redis

from gateway.embedded.kafka import KafkaCluster
from gateway.embedded.redis import EmbeddedRedis
from keyway.commit_metadata.core.metadata import decode as decode_commit
from tests.rig.clients.share_members import ShareHost
from tests.rig.clients.wire_client import ShareSession
from tests.rig.committed import committed, wait_for_committed
from tests.rig.gateway_process import GatewayProcess
from tests.rig.groups import GROUPS
from tests.rig.kafka import create_topic, log_end, produce, read_partition
from tests.rig.operating import windows_of
from tests.rig.patience import wait_until

pytestmark = pytest.mark.integration

Topic = Callable[..., str]
Group = Callable[..., str]
ANSWER_S_MAX = 30.0
RECORDS = 100
ACCEPT = 1


@contextmanager
def client_of(redis: EmbeddedRedis) -> Iterator[Redis]:
    client = Redis.from_url(redis.url)
    try:
        yield client
    finally:
        client.close()


@pytest.fixture
def redis(tmp_path: Path) -> Iterator[EmbeddedRedis]:
    with EmbeddedRedis(tmp_path / "redis") as server:
        yield server


@pytest.fixture
def gateway(kafka: KafkaCluster, redis: EmbeddedRedis, tmp_path: Path) -> Iterator[GatewayProcess]:
    """Commits, and looks for deleted topics, twice a second."""
    quick = {"commit_interval_ms": 500, "deleted_topics_interval_ms": 500}
    with GatewayProcess(
        tmp_path / "gateway",
        kafka.bootstrap_servers,
        groups=GROUPS,
        redis_url=redis.url,
        state=quick,
    ) as process:
        yield process


def handed_out(session: ShareSession, wanted: int) -> list[int]:
    """So many records, all of them held by the session."""
    held: list[int] = []

    def all_there() -> bool:
        got = session.fetch(max_wait_ms=200).get(0)
        held.extend([] if got is None else got.offsets)
        return len(held) >= wanted

    wait_until(all_there, what=f"{wanted} records handed out", deadline_s=ANSWER_S_MAX)
    return sorted(held)


def test_a_redis_that_comes_back_with_an_older_file(
    gateway: GatewayProcess,
    redis: EmbeddedRedis,
    kafka: KafkaCluster,
    topic: Topic,
    share_group: Group,
) -> None:
    """Records that were settled and committed after the file was written do not come again."""
    name, group = topic(partitions=1), share_group()
    produce(kafka.bootstrap_servers, name, [(b"k%d" % at, b"v") for at in range(RECORDS)])
    with ShareSession(gateway.bootstrap, group, name).join() as session:
        held = handed_out(session, RECORDS)
        assert session.acknowledge({0: [(0, 9, [ACCEPT])]}) == {0: 0}
        session.leave()
    assert held == list(range(RECORDS))
    wait_for_committed(kafka, group, name, 0, 10)
    with client_of(redis) as client:
        file = {key: client.dump(key) or b"" for key in client.scan_iter()}
    later = [(10, 19, [ACCEPT]), *((at, at, [ACCEPT]) for at in range(21, RECORDS, 2))]
    with ShareSession(gateway.bootstrap, group, name).join() as session:
        handed_out(session, RECORDS - 10)
        assert session.acknowledge({0: later}) == {0: 0}
        session.leave()
    odd = [(at, at) for at in range(21, RECORDS, 2)]
    wait_until(
        lambda: decode_commit(*committed(kafka, group, name, 0)) == odd,
        what="all of it committed",
        deadline_s=ANSWER_S_MAX,
    )
    gateway.kill()
    with client_of(redis) as client:
        client.flushall()
        for key, data in file.items():
            client.restore(key, 0, data)
    gateway.start()
    with ShareSession(gateway.bootstrap, group, name).join() as session:
        assert handed_out(session, 40) == list(range(20, RECORDS, 2))
        assert session.acknowledge({0: [(20, RECORDS - 1, [ACCEPT, 0] * 40)]}) == {0: 0}
        session.leave()
    wait_for_committed(kafka, group, name, 0, RECORDS)
    assert "store_behind_commit" in gateway.log_text()


def test_windows_of_deleted_topics_leave_redis(
    gateway: GatewayProcess,
    redis: EmbeddedRedis,
    kafka: KafkaCluster,
    topic: Topic,
    share_group: Group,
    librdkafka_host: ShareHost,
) -> None:
    """One topic is deleted for good, one is created anew, one stays."""
    gone, anew, stays = (topic(partitions=1) for _ in range(3))
    for name in (gone, anew, stays):
        produce(kafka.bootstrap_servers, name, [(b"k", b"old")])
    group = share_group()
    member = librdkafka_host.member(gateway.bootstrap, group, [gone, anew, stays])
    member.begin_consume()
    for name in (gone, anew, stays):
        wait_for_committed(kafka, group, name, 0, 1)
    before = topic_ids(redis)
    assert len(before) == 3
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap_servers})
    for future in admin.delete_topics([gone, anew]).values():
        future.result(ANSWER_S_MAX)
    wait_until(
        lambda: not {gone, anew} & set(admin.list_topics(timeout=ANSWER_S_MAX).topics),
        what="the topics deleted",
        deadline_s=ANSWER_S_MAX,
    )
    create_topic(kafka.bootstrap_servers, anew)
    produce(kafka.bootstrap_servers, anew, [(b"k", b"new")] * 2)
    wait_for_committed(kafka, group, anew, 0, 2)
    wait_until(
        lambda: len(topic_ids(redis) & before) == 1 and len(topic_ids(redis)) == 2,
        what="the windows of deleted topics gone, and no others",
        deadline_s=ANSWER_S_MAX,
    )
    member.end_consume()
    member.close()
    assert [delivery.value for delivery in member.deliveries if delivery.topic == anew] == [
        b"old",
        b"new",
        b"new",
    ]


def topic_ids(redis: EmbeddedRedis) -> set[bytes]:
    """Of the windows that Redis has."""
    with client_of(redis) as client:
        return {key.split(b"|")[1] for key in client.scan_iter(match="keyway:{*}")}


COMPACTED = {
    "cleanup.policy": "compact",
    "segment.ms": "100",
    "min.cleanable.dirty.ratio": "0.01",
    "max.compaction.lag.ms": "100",
}


def test_compaction_takes_a_record_that_a_member_works_on(
    gateway: GatewayProcess,
    redis: EmbeddedRedis,
    kafka: KafkaCluster,
    topic: Topic,
    share_group: Group,
) -> None:
    """Redis restarts meanwhile, so that the node reads the log again and misses it. The later value
    of its key went out, and whoever worked on the first one wrote that over it.
    """
    name, group = topic(partitions=1, config=COMPACTED), share_group("patient")
    produce(kafka.bootstrap_servers, name, [(b"k", b"first")])
    with ShareSession(gateway.bootstrap, group, name).join() as session:
        assert handed_out(session, 1) == [0]

        def taken() -> bool:
            produce(kafka.bootstrap_servers, name, [(b"k", b"later"), (b"other", b"v")])
            return read_partition(kafka.bootstrap_servers, name, 0)[0][0] > 0

        wait_until(taken, what="the first record compacted", deadline_s=ANSWER_S_MAX)
        redis.kill()
        session.fetch(max_wait_ms=0)  # of the other key; not persisted, so the window breaks
        redis.start()
        end = log_end(kafka.bootstrap_servers, name)

        def read_again() -> bool:
            (row,) = windows_of(gateway, group)
            return bool(row["state"] == "up" and row["read_position"] == end)

        wait_until(read_again, what="the log read again", deadline_s=ANSWER_S_MAX)
        assert session.fetch(max_wait_ms=0).get(0) is None, "one of them has the same key"
        assert session.acknowledge({0: [(0, 0, [ACCEPT])]}) == {0: 0}
        assert len(handed_out(session, 2)) == 2, "the next one of each key"
        session.leave()
