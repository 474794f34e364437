"""Columns of an Arrow batch as arguments of `produce`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import SimpleNamespace
from typing import Any, cast

import pyarrow
import pytest
from confluent_kafka import KafkaError, KafkaException
from pyspark.cloudpickle import dumps, loads

from keyway.clusters.core.copies import COPY_HEADER
from spark.streaming import produce
from spark.streaming.orders import Tally, Writing
from spark.streaming.rows import headers_of_rows, origin_of

Rows = list[list[tuple[str, bytes | None]] | None]


def batch(rows: Rows) -> pyarrow.RecordBatch:
    names = [None if row is None else [name for name, _ in row] for row in rows]
    values = [None if row is None else [value for _, value in row] for row in rows]
    return pyarrow.RecordBatch.from_arrays(
        [
            pyarrow.array(names, pyarrow.list_(pyarrow.string())),
            pyarrow.array(values, pyarrow.list_(pyarrow.binary())),
        ],
        ["header_names", "header_values"],
    )


@pytest.mark.parametrize(
    "rows",
    [
        [[], [], []],
        [[("a", b"1")], [], [("b", None), ("a", b"2")]],
        [None, [("a", b"1"), ("a", b"1")], None],  # rows that are not copied
    ],
)
@pytest.mark.parametrize("first", [0, 1])
def test_own_headers_come_first_and_in_order(rows: Rows, first: int) -> None:
    """Also of a slice: rows before a position are cut off."""
    copies: list[bytes | None] = [b"copy %d" % at for at in range(len(rows))]
    found = list(headers_of_rows(batch(rows).slice(first), copies[first:]))
    expected = [[*(row or []), (COPY_HEADER, copy)] for row, copy in zip(rows, copies, strict=True)]
    assert found == expected[first:]


def test_the_origin_of_a_header() -> None:
    assert origin_of(b"1-00000005-1add591412421f2e-3-4711-ams-1/orders") == b"3-4711-ams-1/orders"


def test_a_task_uses_the_producers_that_its_worker_keeps(monkeypatch: pytest.MonkeyPatch) -> None:
    """Spark pickles the function of each batch anew. What it pickled by value, such as a global of
    a function within another one, would be new in every task.
    """
    used: list[object] = []

    def done(task: Any, _batches: object) -> dict[str, object]:
        used.append(task.kept)
        tally = {name: getattr(Tally(), name) for name in Tally.__slots__}
        return {"topic": task.topic, "partition": task.partition, "refused": None, **tally}

    monkeypatch.setattr(produce, "_result", done)
    rows = pyarrow.RecordBatch.from_pylist([{"topic": "orders", "partition": 3}])
    for _ in range(2):
        orders = Writing("group", {}, {}, {}, {}, {}, exactly_once=True, transaction_timeout_ms=1)
        pickled = dumps(produce.copying(orders))  # type: ignore[no-untyped-call]
        (row,) = loads(pickled)([rows])
        assert (row["topic"][0].as_py(), row["partition"][0].as_py()) == ("orders", 3)
    assert used == [produce.KEPT, produce.KEPT]


class Sending:
    """A task whose target says in turn which records it refuses: neither Kafka nor columns."""

    def __init__(
        self, monkeypatch: pytest.MonkeyPatch, *answers: dict[int, KafkaError], rows: int
    ) -> None:
        self.known: list[set[int]] = []  # that the policy left out, of each try
        self.counted: list[set[int]] = []
        left = iter(answers)

        def sent(*asked: Any) -> dict[int, KafkaError]:
            self.known.append(set(asked[4]))
            return next(left)

        def blank(_task: object, piece: pyarrow.RecordBatch) -> Iterable[tuple[()]]:
            return [()] * piece.num_rows

        def count(_task: object, _piece: object, refused: Mapping[int, KafkaError]) -> None:
            self.counted.append(set(refused))

        def nothing(*_: object, **__: object) -> None:
            """It works."""

        writer = SimpleNamespace(begin=nothing, commit=nothing, close=nothing)
        monkeypatch.setattr(produce, "sent_singly", sent)
        monkeypatch.setattr(produce._Task, "_rows", blank)
        monkeypatch.setattr(produce._Task, "_count", count)
        monkeypatch.setattr(produce._Task, "_new_writer", lambda *_, **__: writer)
        monkeypatch.setattr(produce._Task, "_since", lambda task, _: task.tally.position)
        writing = Writing(
            group="g",
            client={},
            targets={"t": "t"},
            topic_ids={"t": "id"},
            expected={},
            ends={},
            exactly_once=True,
            transaction_timeout_ms=60_000,
            on_refused="skip",
        )
        self.task = produce._Task(writing, "t", 0, produce.KEPT)
        self.task.consumer = cast(Any, None)
        self.batch = pyarrow.RecordBatch.from_pydict({"offset": list(range(rows))})


LARGE, DENIED = (
    KafkaError(code)
    for code in (KafkaError.MSG_SIZE_TOO_LARGE, KafkaError.TOPIC_AUTHORIZATION_FAILED)
)


def test_a_fault_of_the_topic_among_refused_records_stops_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Only the first answer was looked at: records behind it were skipped for a lost right."""
    sending = Sending(monkeypatch, {1: LARGE, 2: DENIED}, {2: DENIED}, {}, rows=3)
    with pytest.raises(produce._Refused, match="offset 2"):
        sending.task._one_by_one(sending.batch)
    assert sending.task.tally.position == 2
    assert sending.known == [set(), {1}, {1}]
    assert sending.counted == [{1}]


def test_a_refused_record_behind_the_one_that_stops_is_not_counted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It is not left out: it comes again once the topic goes on."""
    sending = Sending(monkeypatch, {3: LARGE}, {1: DENIED}, {}, rows=4)
    with pytest.raises(produce._Refused, match="offset 1"):
        sending.task._one_by_one(sending.batch)
    assert sending.task.tally.position == 1
    assert sending.counted == [set()]


def test_a_queue_that_never_has_room(monkeypatch: pytest.MonkeyPatch) -> None:
    """The task waited for good, and its link stood without an error."""
    now_s = [0.0]

    def refused(*_: object, **__: object) -> None:
        raise BufferError

    def waited(seconds: float) -> None:
        now_s[0] += seconds
        assert now_s[0] < 2 * 60, "past the transaction's time"

    sending = Sending(monkeypatch, rows=1)
    producer = SimpleNamespace(produce=refused, poll=waited)
    sending.task.writer = cast(Any, SimpleNamespace(producer=producer, check=lambda: None))
    monkeypatch.setattr(produce._Task, "_rows", lambda *_: [("t", None, b"v", 0, [])])
    monkeypatch.setattr(produce, "monotonic", lambda: now_s[0])
    with pytest.raises(KafkaException, match="_QUEUE_FULL"):
        sending.task._produce(sending.batch)
