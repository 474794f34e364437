"""One link between two clusters, and the parts of a record that it keeps."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from time import monotonic
from typing import Any

import pyarrow
import pytest
import yaml
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from keyway.clusters.config import ClustersConfig
from keyway.clusters.core.copies import COPY_HEADER
from keyway.clusters.core.trust import Seals
from spark.links.show import Links
from spark.session import SETTINGS
from spark.streaming.kafka import KafkaSide
from tests.rig.damaged_logs import damaged, first_segment
from tests.rig.kafka import create_topic, delete_topic
from tests.rig.patience import wait_until
from tests.rig.several_clusters import Clusters, clusters, read, running, send, wait_for

pytestmark = [
    pytest.mark.deep,
    pytest.mark.spark,
    pytest.mark.integration,
    pytest.mark.filterwarnings("ignore"),
]

PAIR = {"level": 1, "children": ["c1", "c2"]}


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Clusters]:
    with clusters(("c1", "c2"), tmp_path_factory.mktemp("clusters")) as two:
        yield two


def test_a_record_keeps_everything(spark: SparkSession, pair: Clusters) -> None:
    config = pair.write(PAIR, topics={"include": ["kept"]})
    create_topic(pair.front("c1"), "kept", partitions=3)
    headers: list[tuple[str, bytes | None]] = [
        ("a", b"1"),
        ("b", None),
        ("a", b"2"),
        (COPY_HEADER, b"forged"),
    ]
    sent: list[dict[str, Any]] = [
        {"key": b"k1", "value": b"v1", "partition": 2, "timestamp": 1_000, "headers": headers},
        {"key": None, "value": b"v2", "partition": 2, "timestamp": 500},
        {"key": b"", "value": None, "partition": 0, "timestamp": 1_700_000_000_000},
        {"key": b"k1", "value": b"x" * 500_000, "partition": 2, "timestamp": 1_000},
    ]
    send(pair.front("c1"), "kept", sent)
    with running(spark, config, "c1", "c2"):
        found = wait_for(pair.front("c2"), "kept", 4, partitions=3)
        send(pair.front("c2"), "kept", [{"value": b"back", "partition": 1}])
        wait_for(pair.front("c1"), "kept", 5, partitions=3)
    kept = [(record.partition, record.timestamp_ms, record.key, record.value) for record in found]
    assert kept == [
        (0, 1_700_000_000_000, b"", None),
        (2, 1_000, b"k1", b"v1"),
        (2, 500, None, b"v2"),
        (2, 1_000, b"k1", b"x" * 500_000),
    ]
    assert found[1].headers == (("a", b"1"), ("b", None), ("a", b"2"))
    origins = [str(record.copy and record.copy.origin) for record in found]
    assert origins == ["0-0-c1/kept", "2-0-c1/kept", "2-1-c1/kept", "2-2-c1/kept"]
    assert {record.flags for record in found} == {1}
    (topic_id, _) = KafkaSide(config.cluster("c1")).identities(["kept"])["kept"]
    known = topic_id.replace("+", "-").replace("/", "_")
    assert {record.copy and record.copy.origin.topic_id for record in found} == {known}
    # Nothing goes back: each cluster has each record once.
    assert len(read(pair.front("c1"), "kept", 3)) == 5
    assert len(read(pair.front("c2"), "kept", 3)) == 5


def topics_of(config: ClustersConfig, link: str) -> dict[str, Any]:
    (found,) = (row for row in Links(config).look() if row["link"] == link)
    return dict(found["topics"])


def wait_for_reason(config: ClustersConfig, link: str, topic: str, words: str) -> None:
    def stopped() -> bool:
        return words in topics_of(config, link).get(topic, {}).get("reason", "")

    wait_until(stopped, what=f"{topic} of {link} stopped: {words}", deadline_s=240)


def test_topics_that_cannot_be_kept_alike_stop_alone(spark: SparkSession, pair: Clusters) -> None:
    config = pair.write(PAIR, topics={"include": ["alone-*"], "exclude": ["*-not"]})
    here, there = pair.front("c1"), pair.front("c2")
    for name in ("count", "appended", "small", "good", "not"):
        create_topic(here, f"alone-{name}")
    create_topic(there, "alone-count", partitions=2)
    create_topic(there, "alone-appended", config={"message.timestamp.type": "LogAppendTime"})
    create_topic(there, "alone-small", config={"max.message.bytes": "1000"})
    for name in ("count", "appended", "small", "good", "not"):
        send(here, f"alone-{name}", [{"value": b"1"}])
    with running(spark, config, "c1"):
        wait_for(there, "alone-good", 1)
        link = "c1-level-1"
        wait_for_reason(config, link, "alone-count", "1 partitions here and 2 on the target")
        wait_for_reason(config, link, "alone-appended", "LogAppendTime")
        wait_for_reason(config, link, "alone-small", "max.message.bytes is 1000 on the target")
        # New while it runs: a topic, and a partition of one that was copied.
        create_topic(here, "alone-late", partitions=2, config={"retention.ms": "86400000"})
        send(here, "alone-late", [{"value": b"late", "partition": 1}])
        wait_until(
            lambda: "alone-late" in KafkaSide(config.cluster("c2")).topic_names(),
            what="the new topic on the target",
            deadline_s=240,
        )
        wait_for(there, "alone-late", 1, partitions=2)
        KafkaSide(config.cluster("c1")).grow("alone-good", 3)
        wait_until(
            lambda: (
                KafkaSide(config.cluster("c2")).identities(["alone-good"])["alone-good"][1] == 3
            ),
            what="the partitions on the target",
            deadline_s=240,
        )
        send(here, "alone-good", [{"value": b"2", "partition": 2}])
        assert [record.value for record in wait_for(there, "alone-good", 2, 3)] == [b"1", b"2"]
    created = KafkaSide(config.cluster("c2")).topics(["alone-late"], ["retention.ms"])
    assert created["alone-late"].configs["retention.ms"] == "86400000"
    assert "alone-not" not in KafkaSide(config.cluster("c2")).topic_names()
    assert [len(read(there, f"alone-{topic}")) for topic in ("appended", "small")] == [0, 0]


def test_a_record_that_is_refused_stops_its_topic(spark: SparkSession, pair: Clusters) -> None:
    config = pair.write(PAIR, topics={"include": ["refused-*"]})
    here, there = pair.front("c1"), pair.front("c2")
    limit = {"message.timestamp.before.max.ms": "3600000"}
    create_topic(here, "refused-old")
    create_topic(there, "refused-old", config=limit)
    create_topic(here, "refused-not")
    old = {"value": b"2", "timestamp": 1_000_000_000_000}
    with running(spark, config, "c1"):
        send(here, "refused-old", [{"value": b"1"}, old, {"value": b"3"}])
        send(here, "refused-not", [{"value": b"1"}])
        why = "the target refuses a record of refused-old-0, offset 1"
        wait_for_reason(config, "c1-level-1", "refused-old", why)
        send(here, "refused-not", [{"value": b"2"}])
        wait_for(there, "refused-not", 2)
    assert [record.value for record in read(there, "refused-old")] == [b"1"], "what is before it"
    assert topics_of(config, "c1-level-1")["refused-old"]["partitions"]["0"]["position"] == 1


def test_a_timestamp_that_spark_cannot_read_stops_its_topic_alone(
    spark: SparkSession, pair: Clusters
) -> None:
    config = pair.write(PAIR, topics={"include": ["year-*"]})
    here, there = pair.front("c1"), pair.front("c2")
    for front in (here, there):
        limits = {"message.timestamp.after.max.ms": str(2**63 - 1)}
        create_topic(front, "year-odd", partitions=2, config=limits)
    create_topic(here, "year-good")
    odd = {"value": b"odd", "timestamp": 9_223_372_036_854_776}
    for record in ({"value": b"1"}, {"value": b"2"}, odd, {"value": b"3"}):
        send(here, "year-odd", [{**record, "partition": 1}])
    send(here, "year-good", [{"value": b"1"}])
    with running(spark, config, "c1"):
        words = "the timestamp at offset 2 of partition 1"
        wait_for_reason(config, "c1-level-1", "year-odd", words)
        send(here, "year-good", [{"value": b"2"}])
        wait_for(there, "year-good", 2)
    assert [copy.value for copy in read(there, "year-odd", 2)] == [b"1", b"2"], "what is before it"
    on = pair.write(PAIR, topics={"include": ["year-*"]}, messages={"on_refused": "skip"})
    with running(spark, on, "c1"):
        found = wait_for(there, "year-odd", 3, 2)
    assert [copy.value for copy in found] == [b"1", b"2", b"3"]
    rows = topics_of(on, "c1-level-1")["year-odd"]["partitions"]
    assert (rows["1"]["left_out"], rows["1"]["position"]) == (1, 4)


def test_what_is_before_a_damaged_batch_is_copied(spark: SparkSession, pair: Clusters) -> None:
    config = pair.write(PAIR, topics={"include": ["damaged-*"]})
    here, there = pair.front("c1"), pair.front("c2")
    for name in ("damaged-it", "damaged-not"):
        create_topic(here, name)
    for value in (b"1", b"2", b"DAMAGED", b"4"):  # a batch each
        send(here, "damaged-it", [{"value": value}])
    send(here, "damaged-not", [{"value": b"1"}])
    log = first_segment(pair.kafkas["c1"], "damaged-it")
    with running(spark, config, "c1"):
        with damaged(log, b"DAMAGED"):
            wait_for_reason(config, "c1-level-1", "damaged-it", "damaged-it-0 at offset 2")
            wait_for(there, "damaged-it", 2)
            wait_for(there, "damaged-not", 1)
        found = wait_for(there, "damaged-it", 4)
    assert [record.value for record in found] == [b"1", b"2", b"DAMAGED", b"4"]


def test_records_deleted_ahead_of_a_link(spark: SparkSession, pair: Clusters) -> None:
    config = pair.write(PAIR, topics={"include": ["gap"]})
    here, there = pair.front("c1"), pair.front("c2")
    create_topic(here, "gap")
    send(here, "gap", [{"value": b"%d" % at} for at in range(10)])
    with running(spark, config, "c1"):
        wait_for(there, "gap", 10)
    send(here, "gap", [{"value": b"%d" % at} for at in range(10, 30)])
    delete_records(here, "gap", 25)
    with running(spark, config, "c1"):
        wait_for_reason(config, "c1-level-1", "gap", "deleted before they were copied: 15 of")
    row = topics_of(config, "c1-level-1")["gap"]["partitions"]["0"]
    assert (row["gap"], row["position"]) == (15, 10)
    assert len(read(there, "gap")) == 10
    on = pair.write(PAIR, topics={"include": ["gap"]}, messages={"on_gap": "continue"})
    with running(spark, on, "c1"):
        found = wait_for(there, "gap", 15)
    assert [int(record.value or b"-1") for record in found] == [*range(10), *range(25, 30)]
    assert topics_of(on, "c1-level-1")["gap"]["partitions"]["0"]["gap"] == 15


def transactions(front: str, topic: str, *groups: tuple[str, bool], partition: int = 0) -> None:
    """A transaction of a record for each character of a group; committed, or aborted."""
    producer = Producer({"bootstrap.servers": front, "transactional.id": f"t-{topic}-{partition}"})
    producer.init_transactions(60)
    for values, commits in groups:
        producer.begin_transaction()
        for value in values:
            producer.produce(topic, value.encode(), partition=partition)
        producer.flush(60)
        producer.commit_transaction(60) if commits else producer.abort_transaction(60)


def rows_of(config: ClustersConfig, topic: str) -> dict[str, Any]:
    found = topics_of(config, "c1-level-1").get(topic, {})
    return dict(found.get("partitions", {})) if found.get("state") == "running" else {}


def test_markers_and_aborted_records_are_no_lag_and_no_loss(
    spark: SparkSession, pair: Clusters
) -> None:
    """The log of each partition ends in what is no record; then retention deletes all of it."""
    config = pair.write(PAIR, topics={"include": ["marked"]})
    here, there = pair.front("c1"), pair.front("c2")
    create_topic(here, "marked", partitions=3)
    transactions(here, "marked", ("ab", True), ("cd", True), ("xyz", False))
    transactions(here, "marked", ("xy", False), partition=1)  # without a record at all

    def idle(*ends: int) -> bool:
        rows = rows_of(config, "marked")
        return [rows.get(str(partition), {}).get("position") for partition in range(len(ends))] == [
            *ends
        ] and (all(row["lag_records"] == row["lag_s"] == 0 for row in rows.values()))

    def waits(*ends: int) -> None:
        wait_until(lambda: idle(*ends), what=f"no lag at {ends}", deadline_s=240)

    with running(spark, config, "c1"):
        wait_for(there, "marked", 4, 3)
        waits(10, 3)
        transactions(here, "marked", ("z", False), partition=1)  # now nothing but a marker is new
        waits(10, 5)
    side = KafkaSide(config.cluster("c2"))
    positions = side.positions(
        "keyway-link-c1-level-1", [("marked", partition) for partition in range(3)]
    )
    assert {place[1]: position.offset for place, position in positions.items()} == {0: 10, 1: 5}
    delete_records(here, "marked", 10)
    delete_records(here, "marked", 5, partition=1)
    with running(spark, config, "c1"):
        send(here, "marked", [{"value": b"e", "partition": 0}, {"value": b"f", "partition": 1}])
        found = wait_for(there, "marked", 6, 3)
        waits(11, 6)
    assert [record.value for record in found] == [b"a", b"b", b"c", b"d", b"e", b"f"]
    assert {row["gap"] for row in rows_of(config, "marked").values()} == {0}


def test_records_deleted_under_a_link_at_work(spark: SparkSession, pair: Clusters) -> None:
    """Retention passes a query that is in the midst of the topic. Records are long: a fetch of
    1 MiB has a few of them.
    """
    slow = {"on_gap": "continue", "rate_records_per_s": 20}
    config = pair.write(PAIR, topics={"include": ["overtaken"]}, messages=slow)
    here, there = pair.front("c1"), pair.front("c2")
    create_topic(here, "overtaken")
    send(here, "overtaken", [{"value": b"%d " % at + bytes(50_000)} for at in range(200)])

    def numbers() -> list[int]:
        return [int((record.value or b"").split()[0]) for record in read(there, "overtaken")]

    with running(spark, config, "c1"):
        wait_for(there, "overtaken", 20)
        delete_records(here, "overtaken", 190)
        wait_until(lambda: numbers()[-1] == 199, what="the last record is there", deadline_s=120)
    copied = [number for number in numbers() if number < 190]
    assert copied == [*range(len(copied))]
    assert len(copied) < 190, "all were read before they were deleted"
    assert numbers() == [*copied, *range(190, 200)]
    row = topics_of(config, "c1-level-1")["overtaken"]["partitions"]["0"]
    assert (row["gap"], row["position"]) == (190 - len(copied), 200)


def test_a_position_beyond_the_log_stops_its_topic_until_it_is_mended(
    spark: SparkSession, pair: Clusters
) -> None:
    config = pair.write(PAIR, topics={"include": ["beyond-*"]})
    here, there = pair.front("c1"), pair.front("c2")
    for name in ("beyond-it", "beyond-not"):
        create_topic(here, name)
        send(here, name, [{"value": b"1"}])
    with running(spark, config, "c1"):
        wait_for(there, "beyond-it", 1)
    side, group = KafkaSide(config.cluster("c2")), "keyway-link-c1-level-1"
    ((place, position),) = side.positions(group, [("beyond-it", 0)]).items()
    side.set_positions(group, {place: replace(position, offset=500)})
    for name in ("beyond-it", "beyond-not"):
        send(here, name, [{"value": b"2"}])
    with running(spark, config, "c1"):
        wait_for_reason(config, "c1-level-1", "beyond-it", "500 of partition 0 (the log ends at 2)")
        wait_for(there, "beyond-not", 2)
        side.set_positions(group, {place: position})
        found = wait_for(there, "beyond-it", 2)
    assert [record.value for record in found] == [b"1", b"2"]


def test_a_topic_that_is_created_again(spark: SparkSession, pair: Clusters) -> None:
    config = pair.write(PAIR, topics={"include": ["again"]})
    here, there = pair.front("c1"), pair.front("c2")
    create_topic(here, "again")
    send(here, "again", [{"value": b"old"}] * 5)
    with running(spark, config, "c1"):
        wait_for(there, "again", 5)
        delete_topic(here, "again")
        create_topic(here, "again")
        send(here, "again", [{"value": b"new"}] * 7)
        wait_for_reason(config, "c1-level-1", "again", "deleted and created again")
    assert len(read(there, "again")) == 5
    on = pair.write(PAIR, topics={"include": ["again"]}, messages={"on_recreated": "continue"})
    with running(spark, on, "c1"):
        found = wait_for(there, "again", 12)
    assert [record.value for record in found] == [b"old"] * 5 + [b"new"] * 7


def delete_records(front: str, topic: str, before: int, partition: int = 0) -> None:
    admin = AdminClient({"bootstrap.servers": front})
    for answer in admin.delete_records([TopicPartition(topic, partition, before)]).values():
        answer.result(30)


def test_at_least_once_counts_what_it_repeats(spark: SparkSession, pair: Clusters) -> None:
    """A crash between records and position leaves the position behind; here it is set back."""
    messages = {"delivery": "at_least_once"}
    config = pair.write(PAIR, topics={"include": ["repeated"]}, messages=messages)
    here, there = pair.front("c1"), pair.front("c2")
    create_topic(here, "repeated")
    send(here, "repeated", [{"value": b"%d" % at} for at in range(20)])
    with running(spark, config, "c1"):
        wait_for(there, "repeated", 20)
    side, group = KafkaSide(config.cluster("c2")), "keyway-link-c1-level-1"
    ((place, position),) = side.positions(group, [("repeated", 0)]).items()
    assert position.offset == 20
    side.set_positions(group, {place: replace(position, offset=15)})
    with running(spark, config, "c1"):
        found = wait_for(there, "repeated", 25)
        wait_until(
            lambda: topics_of(config, "c1-level-1")["repeated"]["partitions"]["0"]["repeats"] == 5,
            what="repeats counted",
            deadline_s=240,
        )
    assert [int(record.value or b"-1") for record in found] == [*range(20), *range(15, 20)]


def test_a_second_process_of_a_link_stands_by(spark: SparkSession, pair: Clusters) -> None:
    """Without transactions nothing but the lease keeps the two from writing all records twice."""
    messages = {"delivery": "at_least_once"}
    config = pair.write(PAIR, topics={"include": ["twice"]}, messages=messages)
    here, there = pair.front("c1"), pair.front("c2")
    create_topic(here, "twice")
    send(here, "twice", [{"value": b"%d" % at} for at in range(10)])
    with running(spark, config, "c1"):
        wait_for(there, "twice", 10)
        with running(spark, config, "c1"):
            send(here, "twice", [{"value": b"%d" % at} for at in range(10, 30)])
            wait_for(there, "twice", 30)
    found = read(there, "twice")
    assert [int(record.value or b"-1") for record in found] == [*range(30)]


def test_a_target_that_is_away_is_waited_for(spark: SparkSession, pair: Clusters) -> None:
    config = pair.write(PAIR, topics={"include": ["waited"]})
    here, there = pair.front("c1"), pair.front("c2")
    create_topic(here, "waited")
    send(here, "waited", [{"value": b"%d" % at} for at in range(5)])
    with running(spark, config, "c1"):
        wait_for(there, "waited", 5)
        pair.gateways["c2"].kill()
        send(here, "waited", [{"value": b"%d" % at} for at in range(5, 25)])
        pair.gateways["c2"].start()
        found = wait_for(there, "waited", 25)
    assert [int(record.value or b"-1") for record in found] == [*range(25)]


def test_a_pipeline_on_the_way(spark: SparkSession, pair: Clusters, tmp_path: Path) -> None:
    """Masked, filtered and quarantined; the position moves past all of them."""
    steps = [
        {"filter": {"drop": [{"path": "kind", "equals": "noise"}]}},
        {"mask": {"paths": ["tail"], "keep_last": {"characters": 2}}},
    ]
    (tmp_path / "pipeline.yaml").write_text(
        yaml.safe_dump({"name": "p", "quarantine": "sick", "steps": steps})
    )
    messages = {"pipeline": str(tmp_path / "pipeline.yaml")}
    config = pair.write(PAIR, topics={"include": ["masked"]}, messages=messages)
    here, there = pair.front("c1"), pair.front("c2")
    create_topic(here, "masked")
    values = [b'{"tail":"N12345"}', b'{"tail":"N1","kind":"noise"}', b"no json", b'{"tail":"N99"}']
    send(here, "masked", [{"value": value} for value in values])
    with running(spark, config, "c1"):
        found = wait_for(there, "masked", 2)
        (sick,) = wait_for(there, "sick", 1)

        def moved() -> bool:  # The status is told after the records are there.
            partitions = topics_of(config, "c1-level-1")["masked"]["partitions"]
            return bool(partitions.get("0", {}).get("position") == 4)

        wait_until(moved, what="position", deadline_s=240)
    assert [record.value for record in found] == [b'{"tail":"****45"}', b'{"tail":"*99"}']
    assert sick.value == b"no json"
    assert {record.flags for record in (*found, sick)} == {1}
    assert sick.copy is not None
    assert sick.copy.origin.topic == "masked", "where it was produced, not where it was routed"


def test_a_rate_and_a_secret(
    spark: SparkSession, pair: Clusters, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KEYWAY_TEST_SEAL", "known to no client")
    config = pair.write(
        PAIR,
        topics={"include": ["slow"]},
        messages={"rate_records_per_s": 20},
        seal_secret_env="KEYWAY_TEST_SEAL",
    )
    here, there = pair.front("c1"), pair.front("c2")
    create_topic(here, "slow")
    send(here, "slow", [{"value": b"%d" % at} for at in range(60)])
    began_s = monotonic()
    with running(spark, config, "c1"):
        wait_for(there, "slow", 60)
    assert monotonic() - began_s >= 2, "three batches of 20, a second from one to the next"
    sealed = read(there, "slow", seals=Seals(("known to no client",)))
    assert {record.flags for record in sealed} == {1}
    assert {record.copy for record in read(there, "slow")} == {None}
    monkeypatch.setenv("KEYWAY_TEST_NEW", "another one")
    both = pair.write(
        PAIR,
        topics={"include": ["slow"]},
        seal_secret_env=["KEYWAY_TEST_NEW", "KEYWAY_TEST_SEAL"],
    )
    send(there, "slow", [{"value": b"back"}])
    with running(spark, both, "c1", "c2"):
        back = wait_for(here, "slow", 61)
    assert len(back) == 61, "no copy of before counts as fresh"
    assert len(read(there, "slow")) == 61
    assert read(here, "slow", seals=Seals(("another one",)))[-1].flags == 1


def test_large_records_reach_a_task_a_few_at_a_time(spark: SparkSession) -> None:
    """By Spark's default they come in batches of 256 MB, which a task holds three times over."""
    limit, record = int(SETTINGS["spark.sql.execution.arrow.maxBytesPerBatch"]), 1_000_000

    def sizes(batches: Iterable[pyarrow.RecordBatch]) -> Iterator[pyarrow.RecordBatch]:
        for batch in batches:
            yield pyarrow.RecordBatch.from_pydict({"bytes": [batch.nbytes]})

    rows = spark.range(40, numPartitions=1).select(F.repeat(F.lit("x"), record).alias("value"))
    found = [row["bytes"] for row in rows.mapInArrow(sizes, "bytes bigint").collect()]
    assert sum(found) >= 40 * record
    assert max(found) < limit + 2 * record
