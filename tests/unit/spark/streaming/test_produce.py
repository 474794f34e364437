"""Columns of an Arrow batch as arguments of `produce`."""

from __future__ import annotations

from collections.abc import Iterable
from types import SimpleNamespace
from typing import Any, cast

import pyarrow
import pytest
from confluent_kafka import KafkaError
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


def test_a_fault_of_the_topic_among_refused_records_stops_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Only the first answer was looked at: records behind it were skipped for a lost right."""
    large, denied = (
        KafkaError(code)
        for code in (KafkaError.MSG_SIZE_TOO_LARGE, KafkaError.TOPIC_AUTHORIZATION_FAILED)
    )
    answers = iter([{1: large, 2: denied}, {2: denied}, {}])
    left_out: list[set[int]] = []

    def sent(*asked: Any) -> dict[int, KafkaError]:
        left_out.append(set(asked[4]))
        return next(answers)

    def rows(_task: object, piece: pyarrow.RecordBatch) -> Iterable[tuple[()]]:
        return [()] * piece.num_rows

    def nothing(*_: object, **__: object) -> None:
        """Neither Kafka nor columns."""

    writer = SimpleNamespace(begin=nothing, commit=nothing, close=nothing)
    monkeypatch.setattr(produce, "sent_singly", sent)
    monkeypatch.setattr(produce._Task, "_rows", rows)
    monkeypatch.setattr(produce._Task, "_count", nothing)
    monkeypatch.setattr(produce._Task, "_new_writer", lambda *_, **__: writer)
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
    task = produce._Task(writing, "t", 0, produce.KEPT)
    task.consumer = cast(Any, None)
    with pytest.raises(produce._Refused, match="offset 2"):
        task._one_by_one(pyarrow.RecordBatch.from_pydict({"offset": [0, 1, 2]}))
    assert task.tally.position == 2
    assert left_out == [set(), {1}, {1}]
