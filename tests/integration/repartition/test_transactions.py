"""Transactions while their topic grows, or moves: each is seen whole or not at all, in the order of
its keys, and who is fenced stays so.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
from confluent_kafka import Consumer, KafkaException, Message, Producer

from tests.chaos.crowd import Crowd, at_work, crowd_of, have_all, move
from tests.rig.clients.java_programs import JavaPrograms
from tests.rig.clients.plain_consumers import assert_each_after_the_one_before
from tests.rig.clients.share_members import ShareHost
from tests.rig.gateway_process import DIRECT, GatewayProcess
from tests.rig.patience import wait_until
from tests.rig.repartitions import key_for, repartition, status, wait_for_phase

pytestmark = [
    pytest.mark.integration,
    pytest.mark.skipif(DIRECT, reason="Kafka itself has no repartition"),
]


@pytest.fixture(params=["librdkafka", "java"])
def crowd(
    request: pytest.FixtureRequest,
    node: GatewayProcess,
    topic: Callable[..., str],
    fresh_name: Callable[[str], str],
    java_programs: JavaPrograms,
    new_host: Callable[[str], ShareHost],
) -> Crowd:
    programs = java_programs if request.param == "java" else None
    host, name = new_host(request.param), topic(partitions=4)
    made = crowd_of(host, node.bootstrap, name, fresh_name, programs, transactions=True)
    made.before = 4
    return made


@pytest.mark.deep
def test_a_topic_grows(node: GatewayProcess, crowd: Crowd) -> None:
    """4 to 8. Producers are in the middle of transactions all the time: some span the cut."""
    name = crowd.old
    try:
        with at_work(crowd, [name]):
            wait_until(lambda: crowd.all_over(range(4)), what="traffic", deadline_s=90)
            repartition(node, name, partitions=8, execute=True)
            wait_for_phase(node, name, "open")
            wait_until(lambda: crowd.all_over(range(8)), what="new partitions", deadline_s=90)
            wait_for_phase(node, name, "draining", "finished")
            sent = {key: count for each in crowd.producers for key, count in each.end().items()}
            wait_until(lambda: have_all(sent, *crowd.groups()), what="all records", deadline_s=90)
            wait_for_phase(node, name, "finished")
    finally:
        for producer in crowd.producers:
            producer.kill()
    assert status(node, name)["given_up"] == []
    for group in crowd.groups():
        assert all(each.number >= 0 for each in group), "records of an aborted transaction"
        assert_each_after_the_one_before(group, sent)


@pytest.mark.deep
def test_a_topic_moves(node: GatewayProcess, crowd: Crowd) -> None:
    """4 to 3: each transactional.id goes on in the new topic."""
    move(crowd, node, lambda _: None)


@pytest.mark.deep
def test_who_is_fenced_while_the_topic_grows_stays_so(
    node: GatewayProcess, topic: Callable[..., str], fresh_name: Callable[[str], str]
) -> None:
    """Its transaction was aborted by the next producer of its id, whose own spans the cut."""
    name, kept = topic(partitions=2), key_for(2, 4)

    def begun(value: bytes) -> Producer:
        config = {
            "bootstrap.servers": node.bootstrap,
            "transactional.id": name,
            "partitioner": "murmur2_random",
            "topic.metadata.refresh.interval.ms": 500,
        }
        producer = Producer(config)
        producer.init_transactions(60)
        producer.begin_transaction()
        send(producer, value)
        return producer

    def send(producer: Producer, value: bytes) -> None:
        producer.produce(name, key=kept, value=value)
        assert producer.flush(60) == 0

    fenced = begun(b"of the first one")
    second = begun(b"1")
    repartition(node, name, partitions=4, partitioner="murmur2", execute=True)
    wait_for_phase(node, name, "open")
    wait_until(
        lambda: len(second.list_topics(name).topics[name].partitions) == 4,
        what="the new partitions",
        deadline_s=30,
    )
    send(second, b"2")
    second.commit_transaction(60)
    with pytest.raises(KafkaException) as failure:
        fenced.commit_transaction(60)
    assert failure.value.args[0].fatal()
    consumer = Consumer(
        {
            "bootstrap.servers": node.bootstrap,
            "group.id": fresh_name("reads"),
            "auto.offset.reset": "earliest",
        }
    )
    try:
        consumer.subscribe([name])
        came: list[Message] = []

        def both() -> bool:
            came.extend(consumer.consume(10, 0.5))
            return len(came) >= 2

        wait_until(both, what="both records", deadline_s=60)
    finally:
        consumer.close()
    assert {(each.value(), each.partition()) for each in came} == {(b"1", 0), (b"2", 2)}
