"""The rows of an Arrow batch as arguments of `produce`. A task never sees rows as objects: columns,
and one loop around `produce`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow

from keyway.clusters.core.copies import COPY_HEADER, ORIGIN_AT


def pieces_of(batch: pyarrow.RecordBatch, bytes_max: int) -> Iterator[pyarrow.RecordBatch]:
    """Pieces of about that size if the records are of one size; each has at least one record."""
    rows = max(1, batch.num_rows * bytes_max // max(1, batch.nbytes))
    for at in range(0, batch.num_rows, rows):
        yield batch.slice(at, rows)


def headers_of_rows(batch: pyarrow.RecordBatch, copies: list[bytes | None]) -> Iterator[Any]:
    """The headers of each row as confluent-kafka takes them: the record's own, in order, and ours.
    Made from the flattened columns: a Python list per row is made only where it is needed.
    """
    names, values = batch.column("header_names"), batch.column("header_values")
    flat = list(zip(listed(names.flatten()), listed(values.flatten()), strict=True))
    lengths = listed(names.value_lengths().fill_null(0))
    at = 0
    for length, copy in zip(lengths, copies, strict=True):
        headers = flat[at : at + length]
        if copy is not None:
            headers.append((COPY_HEADER, copy))
        yield headers
        at += length


def listed(column: pyarrow.Array) -> list[Any]:
    """The values as Python's own; null is None, and no integer may be null. `to_pylist` makes an
    object of Arrow's for every value first, which takes several times the CPU time.
    """
    values: list[Any] = column.to_numpy(zero_copy_only=False).tolist()
    return values


def origin_of(header: bytes) -> bytes:
    """The end of a well-formed copy header: topic id, partition, offset, cluster, topic."""
    return header[ORIGIN_AT:]
