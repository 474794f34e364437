"""The work of a task, without Spark: transactions, positions, and records that are refused."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from random import Random
from typing import Any
from unittest.mock import Mock

import pyarrow
import pytest
from confluent_kafka import Consumer, KafkaException, Message, TopicPartition

from gateway.embedded.kafka import KafkaCluster
from spark.streaming import produce
from spark.streaming.careful import ORIGIN_HEADER, REASON_HEADER
from spark.streaming.core import pace
from spark.streaming.core.limits import TRANSACTION_BYTES_FIRST
from spark.streaming.orders import Result, Taking, Writing
from spark.streaming.produce import copying
from spark.streaming.writers import Kept, Writer, positions_of

pytestmark = [pytest.mark.integration, pytest.mark.filterwarnings("ignore")]

SCHEMA = pyarrow.schema(
    [
        ("topic", pyarrow.string()),
        ("partition", pyarrow.int32()),
        ("offset", pyarrow.int64()),
        ("to", pyarrow.string()),
        ("timestamp_ms", pyarrow.int64()),
        ("key", pyarrow.binary()),
        ("value", pyarrow.binary()),
        ("header_names", pyarrow.list_(pyarrow.string())),
        ("header_values", pyarrow.list_(pyarrow.binary())),
        ("copy", pyarrow.binary()),
        ("doubts", pyarrow.int32()),
    ]
)
NOW_MS = 1_700_000_000_000


@pytest.fixture(autouse=True)
def kept(monkeypatch: pytest.MonkeyPatch) -> Iterator[Kept]:
    """Of this test's worker."""
    mine = Kept()
    monkeypatch.setattr(produce, "KEPT", mine)
    yield mine
    mine.close()


def rows(to: str | None, values: Sequence[bytes], first: int = 0) -> pyarrow.RecordBatch:
    """Records of partition 0 of `source`, from offset `first` on. `to` None: they are skipped."""
    records = [
        {
            "topic": "source",
            "partition": 0,
            "offset": first + at,
            "to": to,
            "timestamp_ms": NOW_MS,
            "key": b"k",
            "value": value,
            "header_names": ["a"],
            "header_values": [b"1"],
            "copy": None,
            "doubts": 0,
        }
        for at, value in enumerate(values)
    ]
    return pyarrow.RecordBatch.from_pylist(records, schema=SCHEMA)


@pytest.fixture
def writing(kafka: KafkaCluster, fresh_name: Callable[[str], str]) -> Callable[..., Writing]:
    group = fresh_name("link")

    def orders(to: str, end: int, **others: Any) -> Writing:
        whole = Writing(
            group=group,
            client={"bootstrap.servers": kafka.bootstrap_servers},
            targets={"source": to},
            topic_ids={"source": "id"},
            expected={},
            ends={("source", 0): end},
            exactly_once=True,
            transaction_timeout_ms=60_000,
        )
        return replace(whole, **others)

    return orders


def done(orders: Writing, *batches: pyarrow.RecordBatch) -> Result:
    (result,) = copying(orders)(iter(batches))
    (row,) = result.to_pylist()
    return dict(row)


def position(orders: Writing) -> int:
    with positions_of(orders.client, orders.group) as consumer:
        (found,) = consumer.committed([TopicPartition(orders.targets["source"], 0)], 30)
    return found.offset


def messages(kafka: KafkaCluster, topic: str) -> list[Message]:
    """The committed ones."""
    settings = {
        "bootstrap.servers": kafka.bootstrap_servers,
        "group.id": "reader",
        "enable.partition.eof": True,
        "isolation.level": "read_committed",
    }
    consumer = Consumer(settings)
    consumer.assign([TopicPartition(topic, 0, 0)])
    found = []
    while True:
        message = consumer.poll(30)
        assert message is not None, "no answer within 30 s"
        if message.error() is not None:
            break
        found.append(message)
    consumer.close()
    return found


def values(kafka: KafkaCluster, topic: str) -> list[bytes]:
    return [message.value() or b"" for message in messages(kafka, topic)]


def test_a_task_makes_several_transactions_and_the_next_attempt_goes_on_behind_them(
    kafka: KafkaCluster,
    topic: Callable[..., str],
    writing: Callable[..., Writing],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(pace, "TRANSACTION_BYTES_MAX", TRANSACTION_BYTES_FIRST)
    to = topic()
    sent = [b"%03d" % at + bytes(10_000) for at in range(200)]
    orders = writing(to, 205)

    def dies() -> Iterator[pyarrow.RecordBatch]:
        yield rows(to, sent[:120])
        raise RuntimeError("the worker is gone")

    with pytest.raises(RuntimeError):
        list(copying(orders)(dies()))
    reached = position(orders)
    assert 0 < reached < 120
    assert values(kafka, to) == sent[:reached], "records and position are one transaction"
    result = done(orders, rows(to, sent[:120]), rows(to, sent[120:], 120))
    assert (result["already"], result["copied"]) == (reached, 200 - reached)
    assert values(kafka, to) == sent
    assert (result["position"], position(orders)) == (205, 205), "the end of the range"


def test_a_task_ends_before_its_range_when_it_has_written_enough(
    kafka: KafkaCluster, topic: Callable[..., str], writing: Callable[..., Writing]
) -> None:
    to = topic()
    sent = [b"%03d" % at + bytes(10_000) for at in range(200)]
    orders = writing(to, 205, task_bytes_max=500_000)
    result = done(orders, rows(to, sent))
    assert 50 <= result["position"] < 200
    assert result["bytes"] >= 500_000
    assert position(orders) == result["position"]
    assert values(kafka, to) == sent[: result["position"]]


def test_a_worker_keeps_its_producer_while_nobody_else_writes(
    kafka: KafkaCluster,
    topic: Callable[..., str],
    writing: Callable[..., Writing],
    monkeypatch: pytest.MonkeyPatch,
    kept: Kept,
) -> None:
    opened: list[Writer] = []

    class Counted(Writer):
        def __post_init__(self) -> None:
            opened.append(self)
            super().__post_init__()

    monkeypatch.setattr(produce, "Writer", Counted)
    to = topic()
    for at in range(3):
        done(writing(to, at + 1), rows(to, [b"%d" % at], at))
    assert len(opened) == 1
    monkeypatch.setattr(produce, "KEPT", Kept())  # another worker
    done(writing(to, 4), rows(to, [b"3"], 3))
    assert len(opened) == 2
    monkeypatch.setattr(produce, "KEPT", kept)
    result = done(writing(to, 5), rows(to, [b"3", b"4"], 3))
    assert (len(opened), result["already"], result["copied"]) == (3, 1, 1)
    assert values(kafka, to) == [b"%d" % at for at in range(5)]
    assert opened[2].pace is opened[0].pace, "what it has learnt of the target stays"


def test_a_writer_looks_for_its_coordinator_once_it_is_connected(
    kafka: KafkaCluster, topic: Callable[..., str]
) -> None:
    to, logger = topic(), Mock()
    settings = {"debug": "eos", "log_level": 7, "logger": logger}
    for number in range(20):
        name = f"{to}-{number}"
        client = {"bootstrap.servers": kafka.bootstrap_servers, **settings}
        Writer(client, name, to, 60.0, exactly_once=True).check()  # which hands over what was said
    said = [str(call.args) for call in logger.log.call_args_list]
    assert [line for line in said if "Transaction coordinator changed" in line]
    assert not [line for line in said if "Unable to query for transaction coordinator" in line]


def test_a_worker_whose_id_somebody_else_has_opened_writes_nothing(
    kafka: KafkaCluster, topic: Callable[..., str], writing: Callable[..., Writing]
) -> None:
    to = topic()
    orders = writing(to, 1)
    done(orders, rows(to, [b"0"]))
    name = f"{orders.group}-{to}-0"
    Writer(orders.client, name, to, 60.0, exactly_once=True)  # and has written nothing
    with pytest.raises(KafkaException):
        done(writing(to, 2), rows(to, [b"1"], 1))
    assert (values(kafka, to), position(orders)) == ([b"0"], 1)
    done(writing(to, 2), rows(to, [b"1"], 1))  # Spark's next attempt
    assert values(kafka, to) == [b"0", b"1"]


def test_small_records_fit_into_a_topic_whose_batches_must_be_small(
    kafka: KafkaCluster, topic: Callable[..., str], writing: Callable[..., Writing]
) -> None:
    to = topic(config={"max.message.bytes": "2000"})
    sent = [b"%03d" % at + bytes(500) for at in range(300)]
    result = done(writing(to, 300, taking={"source": Taking(2_000)}), rows(to, sent))
    assert (result["refused"], result["copied"]) == (None, 300)
    assert values(kafka, to) == sent


def test_a_record_that_only_fits_when_it_is_compressed(
    kafka: KafkaCluster, topic: Callable[..., str], writing: Callable[..., Writing]
) -> None:
    """So it came to the source, whose limit is the same."""
    to = topic(config={"max.message.bytes": "2000"})
    sent = [b"a", bytes(100_000), b"b"]
    result = done(writing(to, 3, taking={"source": Taking(2_000)}), rows(to, sent))
    assert (result["refused"], result["copied"]) == (None, 3)
    assert values(kafka, to) == sent


def test_a_record_that_only_kafka_bounds(
    kafka: KafkaCluster, topic: Callable[..., str], writing: Callable[..., Writing]
) -> None:
    """It was larger than librdkafka's queue: its link waited for good, without an error."""
    to, large = topic(config={"max.message.bytes": "90000000"}), bytes(33 * 1024 * 1024)
    result = done(writing(to, 2, transaction_timeout_ms=20_000), rows(to, [b"0", large]))
    assert (result["refused"], result["copied"]) == (None, 2)
    assert [len(value) for value in values(kafka, to)] == [1, len(large)]


LONG, LONGER = (Random(1).randbytes(size) for size in (10_000, 12_000))  # no codec helps
SENT = [b"0", b"1", LONG, b"3", LONGER, b"5"]


@pytest.mark.parametrize("exactly_once", [True, False])
def test_a_refused_record_stops_its_topic_and_what_is_before_it_stands(
    kafka: KafkaCluster,
    topic: Callable[..., str],
    writing: Callable[..., Writing],
    exactly_once: bool,
) -> None:
    to = topic(config={"max.message.bytes": "1000"})
    orders = writing(to, 9, exactly_once=exactly_once)
    result = done(orders, rows(to, SENT))
    assert "source-0, offset 2: Broker: Message size too large" in result["refused"]
    assert (result["position"], position(orders), result["copied"]) == (2, 2, 2)
    assert values(kafka, to)[-2:] == SENT[:2]


def test_refused_records_are_left_out_and_counted(
    kafka: KafkaCluster, topic: Callable[..., str], writing: Callable[..., Writing]
) -> None:
    to = topic(config={"max.message.bytes": "1000"})
    orders = writing(to, 9, on_refused="skip")
    result = done(orders, rows(to, SENT))
    assert (result["refused"], result["copied"], result["left_out"]) == (None, 4, 2)
    assert result["last_left_out"] == "offset 4: Broker: Message size too large"
    assert (result["position"], position(orders)) == (9, 9)
    assert values(kafka, to) == [b"0", b"1", b"3", b"5"]


def test_a_process_that_was_frozen_among_refused_records(
    kafka: KafkaCluster,
    topic: Callable[..., str],
    writing: Callable[..., Writing],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It opened the id anew for the next slice, which made it the newest, and wrote once more what
    the process that has the lease now had written.
    """
    to = topic(config={"max.message.bytes": "1000"})
    orders, batch = writing(to, 9, on_refused="skip"), rows(to, SENT)
    frozen = produce._Task(orders, "source", 0, Kept())
    slices, careful = [], produce._Task._one_by_one

    def one_by_one(task: produce._Task, piece: pyarrow.RecordBatch) -> None:
        slices.append(task)
        if slices.count(frozen) == 2 and task is frozen:
            produce._Task(orders, "source", 0, Kept()).run(iter([batch]))
        careful(task, piece)

    monkeypatch.setattr(produce, "CAREFUL_RECORDS", 1)
    monkeypatch.setattr(produce._Task, "_one_by_one", one_by_one)
    with pytest.raises(produce.PositionMoved, match="is 9, this run has reached 1"):
        frozen.run(iter([batch]))
    assert (position(orders), values(kafka, to)) == (9, [b"0", b"1", b"3", b"5"])


def test_refused_records_are_dead_letters_in_the_same_transaction(
    kafka: KafkaCluster, topic: Callable[..., str], writing: Callable[..., Writing]
) -> None:
    to, letters = topic(config={"max.message.bytes": "1000"}), topic()
    orders = writing(to, 9, on_refused="dead_letter", dead_letter_topic=letters)
    result = done(orders, rows(to, SENT))
    assert (result["refused"], result["copied"], result["left_out"]) == (None, 4, 2)
    assert values(kafka, to) == [b"0", b"1", b"3", b"5"]
    found = messages(kafka, letters)
    assert [message.value() for message in found] == [SENT[2], SENT[4]]
    own, reason, origin = found[0].headers() or []
    assert own == ("a", b"1")
    assert reason == (REASON_HEADER, b"Broker: Message size too large")
    assert origin[0] == ORIGIN_HEADER
    assert json.loads(origin[1] or b"") == {
        "topic": "source",
        "partition": 0,
        "offset": 2,
        "timestamp_ms": NOW_MS,
    }


def test_a_dead_letter_that_is_refused_stops_the_topic(
    kafka: KafkaCluster, topic: Callable[..., str], writing: Callable[..., Writing]
) -> None:
    to = topic(config={"max.message.bytes": "1000"})
    letters = topic(config={"max.message.bytes": "1000"})
    orders = writing(to, 9, on_refused="dead_letter", dead_letter_topic=letters)
    result = done(orders, rows(to, SENT))
    assert "offset 2" in result["refused"]
    assert (result["position"], values(kafka, to), values(kafka, letters)) == (2, SENT[:2], [])


@pytest.mark.deep
def test_a_topic_that_is_gone_is_no_reason_to_leave_records_out(
    writing: Callable[..., Writing], fresh_name: Callable[[str], str], topic: Callable[..., str]
) -> None:
    result = done(writing(topic(), 2, on_refused="skip"), rows(fresh_name("gone"), [b"0", b"1"]))
    assert result["refused"]
    assert (result["position"], result["left_out"]) == (0, 0)


def test_a_range_without_a_record_moves_the_position(
    topic: Callable[..., str], writing: Callable[..., Writing]
) -> None:
    orders = writing(topic(), 7)
    (result,) = produce.passed(orders, [("source", 0)])
    assert (result["position"], position(orders)) == (7, 7)


def test_a_position_that_stands_is_committed_again(
    topic: Callable[..., str], writing: Callable[..., Writing]
) -> None:
    """Kafka forgets what nobody has committed for a week."""
    orders = writing(topic(), 0)
    with positions_of(orders.client, orders.group) as consumer:
        place = TopicPartition(orders.targets["source"], 0, 7, "an older commit")
        consumer.commit(offsets=[place], asynchronous=False)
        for again, metadata in ((False, "an older commit"), (True, "id")):
            (result,) = produce.passed(replace(orders, again=again), [("source", 0)])
            assert (result["position"], result["refused"]) == (7, None)
            (found,) = consumer.committed([place], 30)
            assert (found.offset, found.metadata) == (7, metadata)


def test_a_batch_whose_records_are_all_skipped_writes_nothing_to_the_topic(
    topic: Callable[..., str], writing: Callable[..., Writing]
) -> None:
    """Of two links in a circle each reads what the other writes: an empty transaction that left a
    marker in the topic would be read, and answered with another one, for ever.
    """
    orders = writing(name := topic(), 3)
    result = done(orders, rows(None, [b"a", b"b", b"c"]))
    assert (result["skipped"], result["copied"], position(orders)) == (3, 0, 3)
    produce.passed(replace(orders, ends={("source", 0): 9}), [("source", 0)])
    assert position(orders) == 9
    with positions_of(orders.client, orders.group) as consumer:
        assert consumer.get_watermark_offsets(TopicPartition(name, 0), 30) == (0, 0)
