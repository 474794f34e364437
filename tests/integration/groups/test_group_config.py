"""Settings of a group: keyway.yaml, under the configs that AdminClient sets in a real Kafka."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, ConfigResource, ResourceType

from gateway.core.share.dead_letter_queue import TOPIC_NAME
from gateway.embedded.kafka import KafkaCluster
from gateway.members.group_settings import FLAGS, NUMBERS, TEXTS
from tests.rig.clients.wire_client import ShareSession
from tests.rig.gateway_process import GatewayProcess
from tests.rig.kafka import produce, set_group_config
from tests.rig.operating import windows_of
from tests.rig.patience import patient_s, wait_until

pytestmark = pytest.mark.integration

Name = Callable[[str], str]
Topic = Callable[..., str]
BEFORE = [(b"k%d" % at, b"before") for at in range(3)]
AFTER = [(b"new", b"after")]
RELEASE = 2


def window(gateway: GatewayProcess, group: str) -> dict[str, Any]:
    """The first partition of the group, as the node's REST shows it; {} if it shows none."""
    return next(iter(windows_of(gateway, group)), {})


@pytest.mark.parametrize(
    ("group_prefix", "set_in_kafka", "starts_at"),
    [
        ("group", None, 0),  # keyway.yaml: earliest; Kafka's own default would be latest
        ("latest", None, 3),  # keyway.yaml: latest
        ("group", "latest", 3),
        ("latest", "earliest", 0),
        ("latest", "by_duration:PT1H", 0),
    ],
)
def test_where_a_group_starts(
    kafka: KafkaCluster,
    gateway: GatewayProcess,
    topic: Topic,
    fresh_name: Name,
    group_prefix: str,
    set_in_kafka: str | None,
    starts_at: int,
) -> None:
    name, group = topic(), fresh_name(group_prefix)
    produce(kafka.bootstrap_servers, name, BEFORE)
    if set_in_kafka is not None:
        config = {"share.auto.offset.reset": set_in_kafka}
        set_group_config(kafka.bootstrap_servers, group, config)
    with ShareSession(gateway.bootstrap, group, name) as session:
        session.join()
        session.fetch(max_records=0)  # as in Kafka, the first fetch finds the start, not the join
        wait_until(lambda: "cursor" in window(gateway, group), what="window up", deadline_s=20)
        assert window(gateway, group)["cursor"] == starts_at
        produce(kafka.bootstrap_servers, name, AFTER)
        assert session.fetch_some().acquired[0] == (starts_at, 1)


def test_what_is_set_for_a_group_counts_and_broker_defaults_do_not(
    kafka: KafkaCluster, gateway: GatewayProcess, topic: Topic, fresh_name: Name
) -> None:
    name, plain, tuned = topic(), fresh_name("latest"), fresh_name("latest")
    config = {
        "share.record.lock.duration.ms": "20000",
        "share.heartbeat.interval.ms": "600",
        "share.session.timeout.ms": "46000",
    }
    set_group_config(kafka.bootstrap_servers, tuned, config)
    with (
        ShareSession(gateway.bootstrap, plain, name) as first,
        ShareSession(gateway.bootstrap, tuned, name) as second,
    ):
        first.join()
        second.join()
        # The broker of these tests has 500 ms for groups that say nothing.
        assert first.heartbeat(first.member_epoch)["HeartbeatIntervalMs"] == 5_000
        assert first.fetch_message(max_records=0)["AcquisitionLockTimeoutMs"] == 30_000
        assert second.heartbeat(second.member_epoch)["HeartbeatIntervalMs"] == 600
        assert second.fetch_message(max_records=0)["AcquisitionLockTimeoutMs"] == 20_000


def test_the_delivery_limit_of_a_group(
    kafka: KafkaCluster, gateway: GatewayProcess, topic: Topic, fresh_name: Name
) -> None:
    name, group = topic(), fresh_name("drop")  # keyway.yaml: 3 deliveries, then dropped
    set_group_config(kafka.bootstrap_servers, group, {"share.delivery.count.limit": "2"})
    produce(kafka.bootstrap_servers, name, BEFORE[:1])
    with ShareSession(gateway.bootstrap, group, name) as session:
        session.join()
        for attempt in (1, 2):
            assert session.fetch_some().acquired == [(0, attempt)]
            assert session.acknowledge({0: [(0, 0, [RELEASE])]}) == {0: 0}
        produce(kafka.bootstrap_servers, name, AFTER)
        assert session.fetch_some().acquired == [(1, 1)], "0 was dropped after the second"


def test_every_share_config_of_kafka_is_known(gateway: GatewayProcess, fresh_name: Name) -> None:
    """Those that a broker lists for a group."""
    admin = AdminClient({"bootstrap.servers": gateway.bootstrap})
    group = fresh_name("group")
    set_group_config(gateway.bootstrap, group, {"share.heartbeat.interval.ms": "6000"})
    resource = ConfigResource(ResourceType.GROUP, group)
    (answer,) = admin.describe_configs([resource]).values()
    listed = {name for name in answer.result(20) if name.startswith("share.")}
    assert listed == {*TEXTS, *NUMBERS, *FLAGS}


def test_dead_letter_queues_are_refused_in_the_words_of_an_upstream_without_them(
    kafka: KafkaCluster, gateway: GatewayProcess, fresh_name: Name
) -> None:
    """Kafka 4.4 is the first with KIP-1191: test_dead_letter_queue.py."""
    group, refusals = fresh_name("group"), []
    for front in (kafka.bootstrap_servers, gateway.bootstrap):
        with pytest.raises(KafkaException) as refused:
            set_group_config(front, group, {TOPIC_NAME: "dlq.orders"})
        error = refused.value.args[0]
        refusals.append((error.code(), error.str()))
    assert refusals[0] == refusals[1]
    assert TOPIC_NAME in refusals[0][1]


def test_record_locks_of_a_partition(
    kafka: KafkaCluster, gateway: GatewayProcess, topic: Topic, fresh_name: Name
) -> None:
    """No more than those are read and not settled, so none more is locked; also when it changes."""
    name, group = topic(partitions=1), fresh_name("group")
    locks = "share.partition.max.record.locks"
    produce(kafka.bootstrap_servers, name, [(b"k%d" % at, b"") for at in range(500)])
    set_group_config(gateway.bootstrap, group, {locks: "100"})
    with ShareSession(gateway.bootstrap, group, name) as session:
        session.join()
        held = session.fetch_count(100)
        assert held.offsets == list(range(100))
        assert session.fetch() == {}
        set_group_config(gateway.bootstrap, group, {locks: "300"})
        more: list[int] = []
        deadline = time.monotonic() + patient_s(20)
        while len(more) < 200:
            got = session.fetch().get(0)
            more += got.offsets if got else []
            assert time.monotonic() < deadline, more
        # What is held for a second goes aside, and makes room for others.
        assert sorted(more)[:200] == list(range(100, 300))
        assert session.acknowledge({0: [(0, 299, [1])]}) == {0: 0}


def test_what_was_set_just_before_a_group_begins_counts(
    kafka: KafkaCluster, gateway: GatewayProcess, topic: Topic, fresh_name: Name
) -> None:
    """50 new groups whose first member joins at once, while the broker is busy with new topics: it
    may not show yet a change that its controller has accepted.
    """
    name = topic()
    produce(kafka.bootstrap_servers, name, BEFORE)
    groups = [fresh_name("latest") for _ in range(50)]

    def start_of(group: str) -> str:
        set_group_config(gateway.bootstrap, group, {"share.auto.offset.reset": "earliest"})
        with ShareSession(gateway.bootstrap, group, name) as session:
            session.join()
            got = [offset for offset, _ in session.fetch_some().acquired]
            session.leave()
        return f"{got[0]}"

    with ThreadPoolExecutor(11) as pool:
        topics = [pool.submit(topic, partitions=3) for _ in range(6)]
        starts = list(pool.map(start_of, groups))
        assert all(creation.result() for creation in topics)
    assert starts == ["0"] * len(groups)
