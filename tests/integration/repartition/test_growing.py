"""A topic grows under load with stock clients: nothing is lost, and no key is out of order."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial

import pytest

from tests.rig.clients.java_programs import JavaPrograms
from tests.rig.clients.keyed_producers import KeyedProducer
from tests.rig.clients.share_lines import Delivery
from tests.rig.clients.share_members import ShareHost, ShareMember, deliveries_of
from tests.rig.gateway_process import DIRECT, GatewayProcess
from tests.rig.meanwhile import meanwhile
from tests.rig.patience import wait_until
from tests.rig.repartitions import QUICK, repartition, status, wait_for_line, wait_for_phase

pytestmark = [
    pytest.mark.integration,
    pytest.mark.skipif(DIRECT, reason="Kafka itself does not keep the order"),
]

MURMUR2 = "partitioner=murmur2_random"
IDEMPOTENT = "enable.idempotence=true"


@contextmanager
def slow(members: Sequence[ShareMember], pause_s: float) -> Iterator[None]:
    """They poll, work for a while on what came, and accept it with the next poll."""

    def work(member: ShareMember, ended: threading.Event) -> None:
        while not ended.is_set():
            if member.poll(0.5):
                time.sleep(pause_s)

    with meanwhile(*(partial(work, member) for member in members)):
        yield


def assert_whole_and_in_order(
    deliveries: Sequence[Delivery], sent: Mapping[str, int], *, again: bool = False
) -> None:
    """Over all partitions: of each key every number, each first one behind the one before.
    `again`: records may come twice.
    """
    by_key: dict[str, list[int]] = {}
    for delivery in sorted(deliveries, key=lambda delivery: delivery.at_ns):
        assert delivery.key is not None
        assert delivery.value is not None
        by_key.setdefault(delivery.key.decode(), []).append(int(delivery.value))
    for key, count in sent.items():
        numbers = by_key.get(key, [])
        firsts = list(dict.fromkeys(numbers))
        assert firsts == list(range(count)), f"{key}: {numbers}"
        assert again or len(numbers) == count, f"{key} again: {numbers}"


def all_came(members: Sequence[ShareMember], sent: Mapping[str, int]) -> Callable[[], bool]:
    def came() -> bool:
        """A batch that is sent again may be in the log twice: places would count it twice."""
        return len({(delivery.key, delivery.value) for delivery in deliveries_of(members)}) >= sum(
            sent.values()
        )

    return came


def test_two_kinds_of_producers_one_of_them_frozen(
    node: GatewayProcess,
    topic: Callable[..., str],
    fresh_name: Callable[[str], str],
    new_host: Callable[[str], ShareHost],
    java_programs: JavaPrograms,
) -> None:
    """Acceptance 19: 4 to 8, 200 keys, slow consumers; a producer that stands still meanwhile sends
    again what it had on its way.
    """
    name, group = topic(partitions=4), fresh_name("grows")
    front = node.bootstrap
    producers = [
        KeyedProducer.librdkafka(front, name, 0, 80, 100, MURMUR2, IDEMPOTENT),
        KeyedProducer.librdkafka(front, name, 80, 40, 60, MURMUR2, IDEMPOTENT),
        KeyedProducer.java(java_programs, front, name, 120, 80, 100),
    ]
    kinds = ("librdkafka", "java")
    members = [
        new_host(kind).member(front, group, [name], properties={"max.poll.records": "20"})
        for kind in kinds
    ]
    frozen = producers[1]
    try:
        with slow(members, 0.05):
            wait_until(lambda: len(deliveries_of(members)) > 500, what="traffic", deadline_s=60)
            # Under load a producer may start long after the others.
            first_keys = {b"key-0", b"key-80", b"key-120"}
            wait_until(
                lambda: first_keys <= {delivery.key for delivery in deliveries_of(members)},
                what="records of each producer",
                deadline_s=60,
            )
            plan = repartition(node, name, partitions=8)
            assert plan["refusals"] == []
            assert plan["partitioner"] == "murmur2"
            assert plan["ordered_groups"] == [group]
            frozen.freeze()
            repartition(node, name, partitions=8, execute=True)
            wait_for_phase(node, name, "open")
            assert status(node, name)["closed_connections"] >= 1
            time.sleep(2)  # it stands still, while records of other keys move
            frozen.thaw()
            wait_for_phase(node, name, "draining", "finished")
            sent: dict[str, int] = {}
            for producer in producers:
                sent |= producer.end()
            wait_until(all_came(members, sent), what="all records", deadline_s=60)
            wait_for_phase(node, name, "finished")
    finally:
        for producer in producers:
            producer.kill()
    deliveries = deliveries_of(members)
    assert {delivery.partition for delivery in deliveries} == set(range(8))
    assert_whole_and_in_order(deliveries, sent)


@pytest.mark.deep
@pytest.mark.parametrize("node", [{**QUICK, "delivery_timeout_ms": 2_000}], indirect=True)
def test_the_gateway_is_killed_at_each_step(
    node: GatewayProcess,
    topic: Callable[..., str],
    fresh_name: Callable[[str], str],
    new_host: Callable[[str], ShareHost],
) -> None:
    """Acceptance 20: killed as soon as it has said that a step is made, it makes the next one."""
    name, group = topic(partitions=2), fresh_name("killed")
    # Without idempotence librdkafka itself changes the order when it sends again.
    producer = KeyedProducer.librdkafka(node.bootstrap, name, 0, 50, 100, MURMUR2, IDEMPOTENT)
    members = [new_host("librdkafka").member(node.bootstrap, group, [name]) for _ in range(2)]
    try:
        with slow(members, 0.02):
            wait_until(lambda: len(deliveries_of(members)) > 100, what="traffic", deadline_s=60)
            repartition(node, name, partitions=4, execute=True)
            for phase in ("marked", "created", "shown", "open", "draining", "finished"):
                wait_for_line(node, f"phase='{phase}'")
                node.kill()
                node.start()
            sent = producer.end()
            wait_until(all_came(members, sent), what="all records", deadline_s=60)
    finally:
        producer.kill()
    assert status(node, name)["phase"] == "finished"
    deliveries = deliveries_of(members)
    assert {delivery.partition for delivery in deliveries} == set(range(4))
    assert_whole_and_in_order(deliveries, sent, again=True)


@pytest.mark.deep
def test_a_topic_of_one_partition_that_is_busy_all_the_time(
    node: GatewayProcess,
    topic: Callable[..., str],
    fresh_name: Callable[[str], str],
    librdkafka_host: ShareHost,
) -> None:
    """Nothing tells which partitioner its producers use, so any of its keys may move. Those that
    stay always have records that nobody has done yet.
    """
    name, group = topic(partitions=1), fresh_name("group")
    member = librdkafka_host.member(node.bootstrap, group, [name])
    producer = KeyedProducer.librdkafka(node.bootstrap, name, 0, 40, 200)
    try:
        with slow([member], 0.05):
            wait_until(lambda: len(deliveries_of([member])) > 200, what="traffic", deadline_s=60)
            assert repartition(node, name, partitions=4, execute=True)["partitioner"] is None
            wait_for_phase(node, name, "finished", within_s=60)
    finally:
        producer.kill()
        member.close()
