"""The reader against a real Kafka: codecs, transactions, compaction, DeleteRecords, restarts,
latency.
"""

from __future__ import annotations

import asyncio
import statistics
import time
from collections.abc import Callable
from functools import partial

import pytest
from confluent_kafka import Producer
from confluent_kafka import TopicPartition as Place
from confluent_kafka.admin import AdminClient

from gateway.core.reading.cache import RecordsGone
from gateway.core.wire.errors import ErrorCode
from gateway.core.wire.long_bytes import whole
from gateway.core.wire.records import read_records, scan
from gateway.embedded.kafka import KafkaCluster
from gateway.upstream.cluster import EARLIEST, LATEST, READ_UNCOMMITTED
from gateway.upstream.settings import UpstreamSettings
from tests.rig.clients.kafka_tools import CONFIGS, KafkaTools
from tests.rig.kafka import create_topic, end_transaction, produce, read_partition
from tests.rig.patience import patient_s
from tests.rig.upstream_side import DEADLINE_S, Collector, blocking, committed, run, running

pytestmark = pytest.mark.integration

MakeTopic = Callable[..., str]


def settings(kafka: KafkaCluster) -> UpstreamSettings:
    return UpstreamSettings(kafka.bootstrap_servers, request_timeout_ms=10_000)


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_every_codec_gives_the_same_records(
    kafka: KafkaCluster, topic: MakeTopic, codec: str
) -> None:
    name = topic()
    sent = [(b"key-%d" % (i % 7), b"value-%d" % i * 20) for i in range(500)]
    produce(
        kafka.bootstrap_servers, name, sent, config={"compression.type": codec, "linger.ms": 50}
    )

    async def read() -> None:
        async with running(settings(kafka)) as side:
            tp = await side.partition(name)
            collector = Collector(side.reader, tp, offsets_max=130).start()
            await collector.reached(500)
            assert collector.offsets == list(range(500))
            assert collector.keys == [key for key, _ in sent]
            data = await side.reader.records.bytes_for(
                committed(tp), list(range(0, 500, 3)), records_max=10
            )
            assert side.reader.records.counts.refetches == 0
            records = read_records(data)
            assert [(r.offset, r.key, r.value) for r in records] == [
                (i, *sent[i]) for i in range(0, 500, 3)
            ]
            assert max(batch.count for batch in scan(whole(data))) == 10

    run(read())


def transaction(kafka: KafkaCluster, name: str, values: list[bytes], *, commit: bool) -> None:
    producer = Producer(
        {
            "bootstrap.servers": kafka.bootstrap_servers,
            "transactional.id": f"{name}-{values[0].decode()}",
        }
    )
    producer.init_transactions(DEADLINE_S)
    producer.begin_transaction()
    for value in values:
        producer.produce(name, key=value, value=value, partition=0)
    end_transaction(producer, kafka.bootstrap_servers, name, commit=commit)


def test_aborted_records_and_control_batches_are_holes(
    kafka: KafkaCluster, topic: MakeTopic
) -> None:
    name = topic()
    transaction(kafka, name, [b"a1", b"a2"], commit=True)  # 0, 1, commit marker 2
    transaction(kafka, name, [b"b1", b"b2"], commit=False)  # 3, 4, abort marker 5
    produce(kafka.bootstrap_servers, name, [(b"c", b"c")])  # 6
    transaction(kafka, name, [b"d1"], commit=False)  # 7, abort marker 8

    async def read() -> None:
        async with running(settings(kafka)) as side:
            tp = await side.partition(name)
            collector = Collector(side.reader, tp, offsets_max=2).start()
            await collector.reached(9)
            assert collector.keys == [b"a1", b"a2", b"c"]
            assert collector.offsets == [0, 1, 6]
            assert collector.results[-1].high_watermark == 9
            with pytest.raises(RecordsGone) as gone:
                await side.reader.records.bytes_for(committed(tp), [1, 3, 4, 6], records_max=10)
            assert gone.value.offsets == [3, 4]

            everything = Collector(side.reader, tp, isolation=READ_UNCOMMITTED).start()
            await everything.reached(9)
            assert everything.keys == [b"a1", b"a2", b"b1", b"b2", b"c", b"d1"]

    run(read())


def test_an_open_transaction_holds_back_what_follows(kafka: KafkaCluster, topic: MakeTopic) -> None:
    name = topic()
    producer = Producer(
        {"bootstrap.servers": kafka.bootstrap_servers, "transactional.id": f"{name}-open"}
    )
    producer.init_transactions(DEADLINE_S)
    producer.begin_transaction()
    producer.produce(name, key=b"t", value=b"t", partition=0)
    producer.flush(DEADLINE_S)
    produce(kafka.bootstrap_servers, name, [(b"plain", b"plain")])

    async def read() -> None:
        async with running(settings(kafka)) as side:
            tp = await side.partition(name)
            committed = Collector(side.reader, tp).start()
            uncommitted = Collector(side.reader, tp, isolation=READ_UNCOMMITTED).start()
            await uncommitted.reached(2)
            assert committed.results == []
            await asyncio.to_thread(producer.commit_transaction, DEADLINE_S)
            await committed.reached(3)
            assert committed.keys == [b"t", b"plain"]

    run(read())


def test_a_compacted_topic_is_read_to_its_end(kafka: KafkaCluster, topic: MakeTopic) -> None:
    name = topic(
        config={
            "cleanup.policy": "compact",
            "segment.ms": "100",
            "min.cleanable.dirty.ratio": "0.001",
            "min.compaction.lag.ms": "0",
            "max.compaction.lag.ms": "100",
        }
    )
    bootstrap = kafka.bootstrap_servers
    sent = 0
    deadline = time.monotonic() + patient_s(120)
    direct: list[tuple[int, bytes | None, bytes | None]] = []
    # The cleaner runs every 15 s by default: records are sent until it has taken some.
    while not direct or len(direct) == sent:
        assert time.monotonic() < deadline, "Kafka compacted nothing"
        produce(bootstrap, name, [(b"k%d" % (i % 5), b"v%d" % i) for i in range(sent, sent + 50)])
        sent += 50
        time.sleep(0.5)
        direct = read_partition(bootstrap, name, 0)

    async def read() -> None:
        async with running(settings(kafka)) as side:
            tp = await side.partition(name)
            end = await side.upstream.list_offset(tp, LATEST)
            collector = Collector(side.reader, tp, offsets_max=37).start()
            await collector.reached(end)
            # Compaction may have gone on between the two reads, but only ever takes away.
            assert set(collector.offsets) <= {offset for offset, _, _ in direct}
            assert len(collector.offsets) < sent
            assert {b"k%d" % i for i in range(5)} <= set(collector.keys)

    run(read())


def delete_before(kafka: KafkaCluster, name: str, offset: int) -> None:
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap_servers})
    place = Place(name, 0, offset)
    admin.delete_records([place])[place].result(DEADLINE_S)


def test_delete_records_past_the_position_is_reported(
    kafka: KafkaCluster, topic: MakeTopic
) -> None:
    name = topic()
    produce(kafka.bootstrap_servers, name, [(b"k", b"%d" % i) for i in range(100)])

    async def read() -> None:
        async with running(settings(kafka), cache_bytes_max=1) as side:
            tp = await side.partition(name)
            first = Collector(side.reader, tp, offsets_max=10).start()
            await first.reached(20)
            first.stop()
            await asyncio.to_thread(delete_before, kafka, name, 60)

            late = Collector(side.reader, tp, position=20).start()
            await late.until(lambda late: bool(late.results))
            result = late.results[0]
            assert (result.error, result.start, result.end) == (1, 20, 20)
            assert (result.log_start, result.high_watermark) == (60, 100)

            on = Collector(side.reader, tp, position=60).start()
            await on.reached(100)
            assert on.results[0].log_start == 60
            with pytest.raises(RecordsGone) as gone:
                await side.reader.records.bytes_for(committed(tp), [5, 59, 60, 61], records_max=10)
            assert gone.value.offsets == [5, 59]

            beyond = Collector(side.reader, tp, position=500).start()
            await beyond.until(lambda beyond: bool(beyond.results))
            assert beyond.results[0].error == ErrorCode.OFFSET_OUT_OF_RANGE
            assert beyond.results[0].high_watermark == 100

    run(read())


def test_records_that_left_the_cache_are_read_again(kafka: KafkaCluster, topic: MakeTopic) -> None:
    name = topic()
    sent = [(b"k%d" % i, b"v" * 1_000) for i in range(2_000)]
    produce(kafka.bootstrap_servers, name, sent, config={"batch.size": 20_000})

    async def read() -> None:
        async with running(settings(kafka), cache_bytes_max=200_000) as side:
            tp = await side.partition(name)
            collector = Collector(side.reader, tp, offsets_max=500).start()
            await collector.reached(2_000)
            assert side.reader.records.counts.evicted > 0
            wanted = [3, 700, 701, 1_500, 1_999]
            reads = [
                side.reader.records.bytes_for(committed(tp), wanted, records_max=10)
                for _ in range(5)
            ]
            for data in await asyncio.gather(*reads):
                assert [(r.offset, r.key, r.value) for r in read_records(data)] == [
                    (i, *sent[i]) for i in wanted
                ]
            assert 0 < side.reader.records.counts.refetches < 5 * len(wanted)

    run(read())


def test_three_sinks_at_one_place_share_the_fetches(kafka: KafkaCluster, topic: MakeTopic) -> None:
    name = topic()
    produce(kafka.bootstrap_servers, name, [(b"k", b"v" * 100) for _ in range(20_000)])

    async def fetched_bytes(sinks: int) -> int:
        async with running(settings(kafka)) as side:
            tp = await side.partition(name)
            collectors = [Collector(side.reader, tp).start() for _ in range(sinks)]
            for collector in collectors:
                await collector.reached(20_000)
                assert collector.offsets == list(range(20_000))
            return side.reader.records.counts.fetched_bytes

    assert run(fetched_bytes(3)) == run(fetched_bytes(1))


def test_a_group_that_is_behind_does_not_wait_for_one_at_the_end(
    kafka: KafkaCluster, topic: MakeTopic
) -> None:
    """It reads as quickly beside one whose fetch upstream holds back for 0.5 s as it does alone."""
    name = topic()
    produce(kafka.bootstrap_servers, name, [(b"k", b"%d" % i) for i in range(100)])

    async def read() -> None:
        beside: list[float] = []
        alone: list[float] = []
        async with running(settings(kafka)) as side, running(settings(kafka)) as other:
            tp = await side.partition(name)
            await other.partition(name)
            at_end = Collector(side.reader, tp, position=100).start()
            for turn in range(40):
                reader = other.reader if turn % 2 else side.reader
                reader.forget_below(committed(tp), 100, at_end.sink)
                started = time.perf_counter()
                behind = Collector(reader, tp).start()
                await behind.reached(100)
                (alone if turn % 2 else beside).append(time.perf_counter() - started)
                behind.stop()
            at_end.stop()
        assert statistics.median(beside) < 5 * statistics.median(alone), (beside, alone)

    run(read())


@pytest.mark.deep
def test_a_tail_of_many_partitions_is_read_at_once(kafka: KafkaCluster, topic: MakeTopic) -> None:
    """Twelve partitions on one broker, four lanes: whichever gets a record, it is read as quickly
    as the only one that somebody else reads.
    """
    name = topic(partitions=12)

    async def read() -> None:
        producer = Producer({"bootstrap.servers": kafka.bootstrap_servers, "linger.ms": 0})
        many: list[float] = []
        single: list[float] = []
        async with running(settings(kafka)) as side, running(settings(kafka)) as other:
            tails = [
                Collector(side.reader, await side.partition(name, number)).start()
                for number in range(12)
            ]
            only = Collector(other.reader, await other.partition(name, 0)).start()
            for turn in range(120):
                tail = only if turn % 2 else tails[turn // 2 * 5 % 12]
                position = tail.position
                started = time.perf_counter()
                producer.produce(name, value=b"v", partition=tail.tp.partition)
                producer.poll(0)
                await tail.reached(position + 1)
                (single if turn % 2 else many).append(time.perf_counter() - started)
                if tail.tp.partition == 0:  # both read it
                    await tails[0].reached(position + 1)
                    await only.reached(position + 1)
        assert producer.flush(DEADLINE_S) == 0
        # A long poll of the others' would hold it back for up to 0.5 s.
        assert statistics.median(many) < 5 * statistics.median(single), (many, single)
        assert statistics.quantiles(many)[2] < 5 * statistics.quantiles(single)[2], (many, single)

    run(read())


@pytest.mark.deep
def test_a_leader_that_moves_is_followed(
    kafka_pair: KafkaCluster, fresh_name: Callable[[str], str]
) -> None:
    name = fresh_name("moves")
    bootstrap = kafka_pair.bootstrap_servers
    create_topic(bootstrap, name, assignment=[[2, 1]])
    produce(bootstrap, name, [(b"k", b"1")])

    async def read() -> None:
        async with running(settings(kafka_pair)) as side:
            tp = await side.partition(name)
            tail = Collector(side.reader, tp).start()
            await tail.reached(1)
            assert side.upstream.topology.topics[name].partitions[0].leader == 2
            await blocking(kafka_pair.brokers[1].kill)
            try:
                await asyncio.to_thread(
                    produce, kafka_pair.brokers[0].address, name, [(b"k", b"2")]
                )
                await tail.reached(2)
                assert side.upstream.topology.topics[name].partitions[0].leader == 1
            finally:
                await blocking(partial(kafka_pair.restart, kafka_pair.brokers[1]))

    run(read())


def test_a_deleted_topic_is_reported_and_a_new_one_of_its_name_is_another(
    kafka: KafkaCluster, topic: MakeTopic
) -> None:
    name = topic()
    produce(kafka.bootstrap_servers, name, [(b"k", b"old")])
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap_servers})

    async def read() -> None:
        async with running(settings(kafka)) as side:
            tp = await side.partition(name)
            tail = Collector(side.reader, tp).start()
            await tail.reached(1)
            await asyncio.to_thread(admin.delete_topics([name])[name].result, DEADLINE_S)
            await asyncio.to_thread(create_topic, kafka.bootstrap_servers, name)
            await asyncio.to_thread(
                produce, kafka.bootstrap_servers, name, [(b"k", b"new"), (b"k", b"new")]
            )
            await tail.until(lambda tail: bool(tail.results[-1].error))
            assert tail.results[-1].error in (
                ErrorCode.UNKNOWN_TOPIC_ID,
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            )
            assert tail.offsets == [0]
            again = Collector(side.reader, await side.partition(name)).start()
            await again.reached(2)
            assert again.tp.topic_id != tp.topic_id
            assert await side.upstream.list_offset(again.tp, EARLIEST) == 0

    run(read())


def test_a_quota_of_kafka_slows_the_reader_down(
    kafka: KafkaCluster,
    topic: MakeTopic,
    fresh_name: Callable[[str], str],
    kafka_tools: KafkaTools,
) -> None:
    """Kafka answers what is beyond it without any partition, which ended the node."""
    name, client = topic(), fresh_name("quota")
    entity = ("--alter", "--entity-type", "clients", "--entity-name", client)
    limit = ("--add-config", "consumer_byte_rate=200000")
    kafka_tools.run(CONFIGS, kafka.bootstrap_servers, *entity, *limit)
    sent = [(b"k", bytes(10_000))] * 270
    produce(kafka.bootstrap_servers, name, sent, config={"batch.size": "20000"})
    slowed = UpstreamSettings(kafka.bootstrap_servers, client_id=client)

    async def read() -> None:
        async with running(slowed) as side:
            collector = Collector(side.reader, await side.partition(name)).start()
            await collector.reached(270)
            assert collector.offsets == list(range(270))

    run(read())
