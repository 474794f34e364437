"""Headers of the rows that a task writes: the record's own, and the copy header of a link's."""

from __future__ import annotations

import pyarrow
import pytest

from keyway.clusters.core.copies import COPY_HEADER
from spark.streaming.rows import headers_of_rows, listed

Headers = list[tuple[str, bytes | None]] | None


def batch(*rows: Headers) -> pyarrow.RecordBatch:
    names = [None if row is None else [name for name, _ in row] for row in rows]
    values = [None if row is None else [value for _, value in row] for row in rows]
    return pyarrow.record_batch(
        {
            "header_names": pyarrow.array(names, pyarrow.list_(pyarrow.string())),
            "header_values": pyarrow.array(values, pyarrow.list_(pyarrow.binary())),
        }
    )


def test_a_record_of_a_pipeline_gets_no_copy_header() -> None:
    rows = batch([("b", b"1"), ("a", None), ("b", b"2")], None, [], [("a", b"")])
    found = list(headers_of_rows(rows, [None] * 4))
    assert found == [[("b", b"1"), ("a", None), ("b", b"2")], [], [], [("a", b"")]]


def test_a_copy_gets_one_behind_its_own() -> None:
    rows = batch([("a", b"1")], None)
    assert list(headers_of_rows(rows, [b"x", b"y"])) == [
        [("a", b"1"), (COPY_HEADER, b"x")],
        [(COPY_HEADER, b"y")],
    ]


def test_rows_without_any_header() -> None:
    assert list(headers_of_rows(batch(None, []), [None, b"y"])) == [[], [(COPY_HEADER, b"y")]]


@pytest.mark.parametrize(
    "column",
    [
        pyarrow.array([b"\x00\xff", None, b""], pyarrow.binary()),
        pyarrow.array([None, None], pyarrow.binary()),
        pyarrow.array(["a", None, "é"], pyarrow.string()),
        pyarrow.array([-1, 2**62], pyarrow.int64()),
        pyarrow.array([True, False, True], pyarrow.bool_()),
        pyarrow.array([], pyarrow.binary()),
    ],
    ids=lambda schema: str(schema.type),
)
def test_values_are_pythons_own(column: pyarrow.Array) -> None:
    for rows in (column, column[1:]):
        found = listed(rows)
        assert found == rows.to_pylist()
        assert [type(header) for header in found] == [type(header) for header in rows.to_pylist()]
