"""Upstream topics of all kinds: compressed, transactional, compacted, truncated; and the offset
committed to Kafka.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewPartitions

from gateway.embedded.kafka import KafkaCluster
from tests.rig.clients.order import assert_never_backwards
from tests.rig.clients.share_members import ShareHost, consume_all, deliveries_of
from tests.rig.committed import wait_for_committed
from tests.rig.gateway_process import GatewayProcess
from tests.rig.kafka import end_transaction, produce
from tests.rig.patience import patient_s
from tests.rig.topic_contents import headers_of, places_upstream, read_messages

pytestmark = pytest.mark.integration

Topic = Callable[..., str]
Group = Callable[..., str]
START_MS = 1_700_000_000_000


def produce_rich(front: str, topic: str, codec: str, records: int, keys: int) -> None:
    """Records with headers and timestamps of their own, in batches of many keys."""
    producer = Producer(
        {"bootstrap.servers": front, "compression.type": codec, "linger.ms": 100, "acks": "all"}
    )
    for at in range(records):
        producer.produce(
            topic,
            key=b"%s-%d" % (codec.encode(), at % keys),
            value=b"value-%d-" % at + b"x" * 50,
            headers=[("number", b"%d" % at), ("empty", b""), ("none", None)],
            timestamp=START_MS + at,
        )
    assert producer.flush(30) == 0


def test_compressed_batches_arrive_record_by_record(
    front: str, kafka: KafkaCluster, topic: Topic, share_group: Group, share_host: ShareHost
) -> None:
    """Scenario 26: batches of 50 keys in every codec, shared by two members; each record as it was
    sent.
    """
    name = topic(partitions=1)
    for codec in ("none", "gzip", "snappy", "lz4", "zstd"):
        produce_rich(front, name, codec, 200, 50)
    sent = {message.offset(): message for message in read_messages(kafka, name)}
    assert len(sent) == 1_000
    group = share_group()
    members = [share_host.member(front, group, [name]) for _ in range(2)]
    consume_all(members, places_upstream(kafka, name))
    deliveries = deliveries_of(members)
    assert_never_backwards(deliveries)
    assert len(deliveries) == 1_000
    for delivery in deliveries:
        original = sent[delivery.offset]
        assert delivery.key == original.key()
        assert delivery.value == original.value()
        assert delivery.timestamp_ms == original.timestamp()[1]
        assert list(delivery.headers) == headers_of(original)
    for member in members:
        member.close()


def transactional(bootstrap: str, name: str) -> Producer:
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": name})
    producer.init_transactions(30)
    return producer


def test_aborted_records_and_markers_are_never_delivered(
    front: str, kafka: KafkaCluster, topic: Topic, share_group: Group, share_host: ShareHost
) -> None:
    """Scenario 13: committed, aborted, committed; the group's committed offset still reaches the
    log end.
    """
    name, group = topic(partitions=1), share_group()
    producer = transactional(front, name)
    for outcome in (b"first", b"aborted", b"second"):
        producer.begin_transaction()
        for at in range(20):
            producer.produce(name, key=b"k%d" % (at % 5), value=outcome)
        end_transaction(producer, front, name, commit=outcome != b"aborted")
    wanted = places_upstream(kafka, name)
    assert len(wanted) == 40
    member = share_host.member(front, group, [name])
    consume_all([member], wanted)
    assert {delivery.value for delivery in member.deliveries} == {b"first", b"second"}
    assert len(member.deliveries) == 40
    assert_never_backwards(member.deliveries)
    wait_for_committed(kafka, group, name, 0, 63)  # 60 records and three markers
    member.close()


def test_an_open_transaction_holds_back_what_follows(
    gateway: GatewayProcess,
    kafka: KafkaCluster,
    topic: Topic,
    share_group: Group,
    librdkafka_host: ShareHost,
) -> None:
    """Read committed: nothing past the last stable offset, everything once the transaction ends."""
    name = topic(partitions=1)
    producer = transactional(gateway.bootstrap, name)
    produce(gateway.bootstrap, name, [(b"a", b"before")])
    producer.begin_transaction()
    producer.produce(name, key=b"a", value=b"inside")
    producer.flush(30)
    produce(gateway.bootstrap, name, [(b"a", b"after"), (b"b", b"after")])
    member = librdkafka_host.member(gateway.bootstrap, share_group(), [name])
    consume_all([member], {(name, 0, 0)})
    assert member.poll_empty(1.5) == []
    end_transaction(producer, gateway.bootstrap, name)
    wanted = places_upstream(kafka, name)
    consume_all([member], wanted)
    assert [delivery.value for delivery in member.deliveries if delivery.key == b"a"] == [
        b"before",
        b"inside",
        b"after",
    ]
    member.close()


def test_compacted_topic_with_holes(
    front: str, kafka: KafkaCluster, topic: Topic, share_group: Group, librdkafka_host: ShareHost
) -> None:
    """Offsets that compaction removed are settled by themselves: the cursor reaches the end."""
    name = topic(
        partitions=1,
        config={
            "cleanup.policy": "compact",
            "segment.ms": "100",
            "min.cleanable.dirty.ratio": "0.01",
            "min.compaction.lag.ms": "0",
            "max.compaction.lag.ms": "100",
            "delete.retention.ms": "100",
        },
    )
    end = 0
    deadline = time.monotonic() + patient_s(60)
    # The log cleaner wakes every 15 s; each new record may roll a segment and so free the one
    # before.
    while len(left := read_messages(kafka, name)) == end:
        assert time.monotonic() < deadline, "never compacted"
        produce(front, name, [(b"k%d" % (at % 10), b"%d" % (end + at)) for at in range(200)])
        end += 200
        time.sleep(0.5)
    assert left
    group = share_group()
    member = librdkafka_host.member(front, group, [name])
    member.begin_consume()
    wait_for_committed(kafka, group, name, 0, end)
    member.end_consume()
    # Compaction may have gone on meanwhile, but only ever takes away.
    assert places_upstream(kafka, name) <= {delivery.place for delivery in member.deliveries}
    assert_never_backwards(member.deliveries)
    member.close()


def test_records_deleted_below_the_cursor(
    front: str, kafka: KafkaCluster, topic: Topic, share_group: Group, librdkafka_host: ShareHost
) -> None:
    """Scenario 22: the log starts after the group's position and window; it goes on from the log
    start.
    """
    name, group = topic(partitions=1), share_group("span")  # 4,096 offsets at a time
    filler = b"x" * 1_000  # several fetches long: the reader cannot have all of it by then
    produce(front, name, [(b"k%d" % (at % 500), filler) for at in range(12_000)])
    member = librdkafka_host.member(front, group, [name], explicit=True)
    member.settle("ACCEPT", member.poll_some())
    member.close()
    admin = AdminClient({"bootstrap.servers": front})
    place = TopicPartition(name, 0, 11_000)
    admin.delete_records([place])[place].result(20)
    again = librdkafka_host.member(front, group, [name])
    consume_all([again], {(name, 0, at) for at in range(11_000, 12_000)})
    stale = [delivery.offset for delivery in again.deliveries if 8_192 <= delivery.offset < 11_000]
    assert not stale, "only records read before may still come"
    wait_for_committed(kafka, group, name, 0, 12_000)
    again.close()


def test_large_records(front: str, topic: Topic, share_group: Group, share_host: ShareHost) -> None:
    """Records of 900 kB, one of them alone near the default fetch size of 1 MiB."""
    name = topic(partitions=1)
    produce(front, name, [(b"k%d" % at, bytes([at]) * 900_000) for at in range(8)])
    member = share_host.member(front, share_group(), [name])
    consume_all([member], {(name, 0, at) for at in range(8)})
    sizes = {(delivery.key, len(delivery.value or b"")) for delivery in member.deliveries}
    assert sizes == {(b"k%d" % at, 900_000) for at in range(8)}
    member.close()


def test_names_that_no_topic_can_have_are_passed_over(
    front: str, topic: Topic, share_group: Group, librdkafka_host: ShareHost
) -> None:
    """librdkafka sends a pattern as it is, and takes any error of a heartbeat for fatal."""
    name, group = topic(partitions=1), share_group()
    produce(front, name, [(b"a", b"0")])
    alone = librdkafka_host.member(front, group, [f"^{name}"])
    assert alone.poll() == []
    member = librdkafka_host.member(front, group, [f"^{name}", "no/topic", name])
    consume_all([member], {(name, 0, 0)})
    assert alone.poll() == []  # also raises what is fatal
    alone.close()
    member.close()


@pytest.mark.deep  # half a minute; test_the_view_is_refreshed_at_intervals
def test_a_partition_added_while_running(
    front: str, kafka: KafkaCluster, topic: Topic, share_group: Group, librdkafka_host: ShareHost
) -> None:
    name = topic(partitions=1)
    member = librdkafka_host.member(
        front,
        share_group(),
        [name],
        properties={"topic.metadata.refresh.interval.ms": "500"},
    )
    produce(front, name, [(b"a", b"0")], partition=0)
    consume_all([member], {(name, 0, 0)})
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap_servers})
    admin.create_partitions([NewPartitions(name, 2)])[name].result(20)
    produce(kafka.bootstrap_servers, name, [(b"b", b"1")], partition=1)
    consume_all([member], {(name, 1, 0)}, within_s=40)
    member.close()


def test_a_partition_added_while_a_group_reads_on_from_the_end(
    gateway: GatewayProcess,
    kafka: KafkaCluster,
    topic: Topic,
    share_group: Group,
    fresh_name: Callable[[str], str],
    librdkafka_host: ShareHost,
) -> None:
    """Records of a new partition are newer than the group: it is read from its start, also with
    `latest`. A group that also subscribes to a missing topic hears of new partitions within 2 s;
    otherwise it may take half a minute.
    """
    name, group = topic(partitions=1), share_group("latest")
    produce(kafka.bootstrap_servers, name, [(b"a", b"old")], partition=0)
    often = {"topic.metadata.refresh.interval.ms": "500"}
    topics = [name, fresh_name("missing")]
    member = librdkafka_host.member(gateway.bootstrap, group, topics, properties=often)
    member.begin_consume()
    wait_for_committed(kafka, group, name, 0, 1)
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap_servers})
    admin.create_partitions([NewPartitions(name, 2)])[name].result(20)
    produce(kafka.bootstrap_servers, name, [(b"b", b"%d" % at) for at in range(3)], partition=1)
    wait_for_committed(kafka, group, name, 1, 3)
    member.end_consume()
    assert [(delivery.partition, delivery.value) for delivery in member.deliveries] == [
        (1, b"0"),
        (1, b"1"),
        (1, b"2"),
    ]
    member.close()
