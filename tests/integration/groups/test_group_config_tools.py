"""Group configs in the hands of admins: Kafka's own tools set them through the gateway, and stock
share consumers that are at work feel it at once.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Mapping

import pytest
from confluent_kafka import Producer

from gateway.embedded.kafka import KafkaCluster
from tests.rig.clients.kafka_tools import CONFIGS, KafkaTools
from tests.rig.clients.order import assert_never_backwards
from tests.rig.clients.share_members import ShareHost, deliveries_of
from tests.rig.committed import wait_for_committed
from tests.rig.gateway_process import GatewayProcess
from tests.rig.kafka import produce, set_group_config
from tests.rig.operating import poll_until_up, windows_of
from tests.rig.patience import wait_until

pytestmark = pytest.mark.integration

Topic = Callable[..., str]
Names = Callable[[str], str]


def changes_felt(gateway: GatewayProcess, group: str) -> int:
    """How often the node has said that a setting of the group is another."""
    lines = gateway.log_text().splitlines()
    return sum("group_config_changed" in line and group in line for line in lines)


def set_and_felt(gateway: GatewayProcess, group: str, config: Mapping[str, str]) -> None:
    """Sets configs through the gateway, which has them itself when it answers."""
    before = changes_felt(gateway, group)
    set_group_config(gateway.bootstrap, group, config)
    assert changes_felt(gateway, group) > before, f"{config} waits for the next regular look"


def test_kafka_configs_sets_and_shows(
    gateway: GatewayProcess,
    topic: Topic,
    fresh_name: Names,
    kafka_tools: KafkaTools,
    any_host: ShareHost,
) -> None:
    """kafka-configs through the gateway, while a member holds a record: two deliveries, no more."""
    name, group = topic(), fresh_name("drop")  # keyway.yaml: three deliveries, then dropped

    def tool(*arguments: str) -> str:
        entity = ("--entity-type", "groups", "--entity-name", group)
        return kafka_tools.run(CONFIGS, gateway.bootstrap, *entity, *arguments)

    produce(gateway.bootstrap, name, [(b"k", b"poison"), (b"k", b"after")])
    member = any_host.member(gateway.bootstrap, group, [name], explicit=True)
    held = member.poll_some()
    tool("--alter", "--add-config", "share.delivery.count.limit=2,share.session.timeout.ms=50000")
    shown = tool("--describe")
    assert "share.delivery.count.limit=2" in shown
    assert "share.session.timeout.ms=50000" in shown
    assert changes_felt(gateway, group) == 1, "it waits for the next regular look"
    member.settle("RELEASE", held)
    again = member.poll_some()
    assert [(record.value, record.delivery_count) for record in again] == [(b"poison", 2)]
    member.settle("RELEASE", again)
    after = member.poll_some()
    assert [(record.value, record.delivery_count) for record in after] == [(b"after", 1)]
    member.settle("ACCEPT", after)
    member.close()


@pytest.mark.deep
@pytest.mark.parametrize(
    ("reset", "wanted"),
    [
        ("earliest", [b"old", b"hour", b"now"]),
        ("by_duration:PT2H", [b"hour", b"now"]),
        ("by_duration:PT10M", [b"now"]),
        ("latest", []),
    ],
)
def test_where_a_group_starts_is_set_by_admins(
    gateway: GatewayProcess,
    topic: Topic,
    fresh_name: Names,
    any_host: ShareHost,
    reset: str,
    wanted: list[bytes],
) -> None:
    name, group = topic(), fresh_name("latest" if reset != "latest" else "group")
    now_ms = time.time_ns() // 1_000_000
    producer = Producer({"bootstrap.servers": gateway.bootstrap})
    for minutes, value in ((24 * 60, b"old"), (60, b"hour"), (0, b"now")):
        producer.produce(name, key=b"k", value=value, timestamp=now_ms - minutes * 60_000)
        assert producer.flush(20) == 0
    set_group_config(gateway.bootstrap, group, {"share.auto.offset.reset": reset})
    member = any_host.member(gateway.bootstrap, group, [name])
    if not wanted:
        assert poll_until_up(gateway, group, member) == []
        produce(gateway.bootstrap, name, [(b"k", b"later")])
        wanted = [b"later"]
    assert [record.value for record in member.poll_count(len(wanted))] == wanted
    member.close()


def test_the_isolation_level_changes_while_the_group_works(
    gateway: GatewayProcess, topic: Topic, fresh_name: Names, any_host: ShareHost
) -> None:
    """Ours is read_committed; read_uncommitted shows the records of an open transaction."""
    name, group = topic(), fresh_name("group")
    produce(gateway.bootstrap, name, [(b"a", b"before")])
    producer = Producer(
        {"bootstrap.servers": gateway.bootstrap, "transactional.id": f"open-{uuid.uuid4()}"}
    )
    producer.init_transactions(20)
    producer.begin_transaction()
    producer.produce(name, key=b"b", value=b"open")
    assert producer.flush(20) == 0
    member = any_host.member(gateway.bootstrap, group, [name], explicit=True)
    first = member.poll_some()
    assert [record.value for record in first] == [b"before"]
    member.settle("ACCEPT", first)
    assert member.poll_empty(1.5) == []
    set_and_felt(gateway, group, {"share.isolation.level": "read_uncommitted"})
    shown = member.poll_some()
    assert [record.value for record in shown] == [b"open"]
    member.settle("ACCEPT", shown)
    producer.abort_transaction(20)
    member.close()


@pytest.mark.deep
def test_renewing_keeps_locks_that_would_have_run_out(
    kafka: KafkaCluster,
    gateway: GatewayProcess,
    topic: Topic,
    fresh_name: Names,
    java_host: ShareHost,
    librdkafka_host: ShareHost,
) -> None:
    """KIP-1222 with KafkaShareConsumer: the lock lasts 6 s, the work longer. A member
    that joins meanwhile, and owns half of the keys by then, gets none before they are accepted.
    """
    name, group = topic(), fresh_name("group")
    set_group_config(gateway.bootstrap, group, {"share.record.lock.duration.ms": "6000"})
    keys = [b"key-%d" % at for at in range(20)]
    produce(gateway.bootstrap, name, [(key, b"%d" % at) for at in range(3) for key in keys])
    worker = java_host.member(gateway.bootstrap, group, [name], explicit=True)
    held = worker.poll_count(len(keys))
    other = librdkafka_host.member(gateway.bootstrap, group, [name], explicit=True)
    began = time.monotonic()
    while time.monotonic() - began < 8:
        worker.acknowledge("RENEW", held)
        again = worker.poll_count(
            len(held)
        )  # the client gives its application the renewed records back
        assert {(record.place, record.delivery_count) for record in again} == {
            (record.place, 1) for record in held
        }
        assert other.poll(0.1) == []
    worker.settle("ACCEPT", held)
    mine, theirs = worker.poll_some(), other.poll_some()
    assert {record.value for record in (*mine, *theirs)} == {b"1"}
    assert {record.delivery_count for record in (*mine, *theirs)} == {1}
    assert mine
    assert theirs
    other.settle("ACCEPT", theirs)
    # The same without renewing: these locks are real.
    wait_until(
        lambda: windows_of(gateway, group)[0]["in_flight"] == 0, what="locks over", deadline_s=20
    )
    worker.acknowledge("ACCEPT", mine)
    assert worker.commit() == ["INVALID_RECORD_STATE"]
    for member in (worker, other):
        member.begin_consume()
    wait_for_committed(kafka, group, name, 0, 60)
    for member in (worker, other):
        member.end_consume()
    assert_never_backwards(deliveries_of([worker, other]))
    worker.close()
    other.close()


@pytest.mark.parametrize("records_max", [1, 7])
def test_record_limit_is_exact(
    gateway: GatewayProcess,
    topic: Topic,
    fresh_name: Names,
    java_host: ShareHost,
    records_max: int,
) -> None:
    """share.acquire.mode=record_limit (ShareFetch v2): as many as max.poll.records, neither more
    nor less while there are enough, though all of them stand in one batch of the producer's.
    """
    name, group = topic(), fresh_name("group")
    count = 10 * records_max
    records = [(b"key-%d" % at, b"%d" % at) for at in range(count)]
    produce(gateway.bootstrap, name, records)
    properties = {
        "share.acquire.mode": "record_limit",
        "max.poll.records": str(records_max),
    }
    member = java_host.member(
        gateway.bootstrap, group, [name], explicit=True, properties=properties
    )
    sizes: list[int] = []
    while sum(sizes) < count:
        batch = member.poll_some()
        assert batch, f"stuck after {sum(sizes)} of {count}"
        sizes.append(len(batch))
        member.settle("ACCEPT", batch)
    assert sizes == [records_max] * 10
    member.close()
