"""Only fresh records go through a pipeline's steps, and all rows keep their order."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import pyarrow
import pytest

from spark.links.on_the_way import fresh_only


def shouted(batches: Iterable[Any]) -> Iterator[Any]:
    for batch in batches:
        values = [value.upper() for value in batch.column("value").to_pylist()]
        yield batch.set_column(2, "value", pyarrow.array(values))


@pytest.mark.parametrize("fresh", [set(), {0}, {1, 3}, {0, 1, 2, 3}])
def test_rows_that_came_from_elsewhere_stay_as_they_are(fresh: set[int]) -> None:
    rows = pyarrow.RecordBatch.from_pydict(
        {
            "offset": [0, 1, 2, 3],
            "origin": [None if at in fresh else "-0-1-c/t" for at in range(4)],
            "value": ["a", "b", "c", "d"],
        },
        schema=pyarrow.schema(
            [("offset", pyarrow.int64()), ("origin", pyarrow.string()), ("value", pyarrow.string())]
        ),
    )
    done = pyarrow.Table.from_batches(list(fresh_only(shouted)([rows])))
    assert done.column("offset").to_pylist() == [0, 1, 2, 3]
    assert done.column("value").to_pylist() == [
        "ABCD"[at] if at in fresh else "abcd"[at] for at in range(4)
    ]
