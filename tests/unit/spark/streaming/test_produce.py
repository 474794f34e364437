"""Columns of an Arrow batch as arguments of `produce`."""

from __future__ import annotations

import pyarrow
import pytest

from keyway.clusters.core.copies import COPY_HEADER
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
