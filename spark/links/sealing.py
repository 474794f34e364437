"""The copy headers of a link's records: judged, and written anew, in the task that writes them.

It was Spark's own columns that did this once. Plain Python takes half their CPU for a record, and
nothing for the start: Java has no code to make and compile, and no batch has columns to plan.

A batch of one partition goes through three states:

    Kafka source   COLUMNS
    judged         + logical_topic, timestamp_ms, flags, origin (null: fresh), doubts; headers
                   without the copy headers
    sealed         + copy: the new header, null where the record is not copied at this level
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache, partial
from typing import Any

import pyarrow
import pyarrow.compute

from keyway.clusters.core.copies import (
    COPY_HEADER,
    NO_TOPIC_ID,
    as_in_headers,
    believed,
    cluster_of,
    header,
)
from keyway.clusters.core.seals import Stood, made
from keyway.clusters.core.tree import FRESH, Distributor, Flags
from keyway.clusters.core.trust import Seals
from spark.streaming.rows import listed

columns: Any = pyarrow.compute  # which makes its functions as it is imported
Batches = Iterable[pyarrow.RecordBatch]
Values = list[bytes | None]  # of the copy headers of a record
_FRESH = (0, None, 0)  # flags, origin, doubts
COLUMNS = ("topic", "partition", "offset", "timestamp", "key", "value", "headers")
JUDGED_DDL = (
    "topic string, partition int, offset bigint, key binary, value binary,"
    " headers array<struct<key:string,value:binary>>, logical_topic string, timestamp_ms bigint,"
    " flags bigint, origin string, doubts int"
)


@dataclass(frozen=True, slots=True)
class Named:
    """A topic of a cluster: its logical name, and its id there, empty where it is not known."""

    logical: str
    topic_id: str


@dataclass(frozen=True, slots=True)
class Sealing:
    """Pickled into tasks, so that no plan of Spark shows a secret."""

    topics: Mapping[str, Named]  # by their names on the source
    seals: Seals
    distributor: Distributor
    steps: Callable[[Batches], Batches] | None = None  # a pipeline's, of judged batches

    def sealed(self, batches: Batches) -> Iterator[pyarrow.RecordBatch]:
        rows = _judging(self.topics, self.seals, batches)
        for batch in rows if self.steps is None else self.steps(rows):
            yield sealed(batch, self.topics, self.seals, self.distributor)


def judging(
    topics: Mapping[str, Named], seals: Seals
) -> Callable[[Batches], Iterator[pyarrow.RecordBatch]]:
    """For `mapInArrow`, to columns of JUDGED_DDL."""
    return partial(_judging, topics, seals)


def _judging(
    topics: Mapping[str, Named], seals: Seals, batches: Batches
) -> Iterator[pyarrow.RecordBatch]:
    return (judged(batch, topics, seals) for batch in batches if batch.num_rows)


def judged(
    batch: pyarrow.RecordBatch, topics: Mapping[str, Named], seals: Seals
) -> pyarrow.RecordBatch:
    """`batch` as Spark's Kafka source gives it, of one topic."""
    logical = topics[batch.column("topic")[0].as_py()].logical
    lengths, headers = _taken_apart(batch.column("headers"))
    timestamps, rows = _milliseconds(batch.column("timestamp")), batch.num_rows
    found = {name: batch.column(name) for name in COLUMNS if name != "timestamp"} | {
        "headers": _lists(lengths, headers),
        "logical_topic": pyarrow.repeat(logical, rows),
        # 0 means "now" to librdkafka, so the first millisecond is written as the second.
        "timestamp_ms": columns.max_element_wise(timestamps, 1),
        "flags": pyarrow.repeat(pyarrow.scalar(0, pyarrow.int64()), rows),
        "origin": pyarrow.nulls(rows, pyarrow.string()),
        "doubts": pyarrow.repeat(pyarrow.scalar(0, pyarrow.int32()), rows),
    }
    are_copies = columns.equal(headers.field(0), COPY_HEADER)
    if columns.any(are_copies).as_py():
        records = zip(
            _copies(lengths, headers, are_copies),
            listed(timestamps),
            listed(batch.column("key")),
            listed(batch.column("value")),
            strict=True,
        )
        verdicts = [
            _judged(values, Stood(logical, *stood), seals) if values else _FRESH
            for values, *stood in records
        ]
        flags, origins, doubts = zip(*verdicts, strict=True)
        found |= {
            "flags": pyarrow.array(flags, pyarrow.int64()),
            "origin": pyarrow.array(origins, pyarrow.string()),
            "doubts": pyarrow.array(doubts, pyarrow.int32()),
            "headers": _without(lengths, headers, are_copies),
        }
    return pyarrow.RecordBatch.from_pydict(found)


def _judged(values: Values, record: Stood, seals: Seals) -> tuple[int, str | None, int]:
    claim, doubts = believed(values, record, seals)
    return (0, None, len(doubts)) if claim is None else (claim.flags, claim.origin, len(doubts))


def sealed(
    batch: pyarrow.RecordBatch,
    topics: Mapping[str, Named],
    seals: Seals,
    distributor: Distributor,
) -> pyarrow.RecordBatch:
    """`batch` as `judged` gives it, perhaps transformed since: a step may change key, value,
    headers and `logical_topic`, null for a row that it has filtered out. The origin is what the
    record was before.
    """
    topic, partition = batch.column("topic")[0].as_py(), batch.column("partition")[0].as_py()
    named = topics[topic]
    start = f"{as_in_headers(named.topic_id) or NO_TOPIC_ID}-{partition}-"
    end = f"-{distributor.source}/{named.logical}"
    seal, flags_of_copy = made(seals), cache(partial(_flags_of_copy, distributor))
    flags_of_fresh = flags_of_copy(distributor.source, FRESH)
    names = ("logical_topic", "flags", "origin", "offset", "timestamp_ms", "key", "value")
    copies: list[bytes | None] = []
    for logical, flags, origin, offset, timestamp_ms, key, value in zip(
        *(listed(batch.column(name)) for name in names), strict=True
    ):
        copied = flags_of_fresh if origin is None else flags_of_copy(cluster_of(origin), flags)
        if logical is None or copied is None:
            copies.append(None)
            continue
        place = origin or f"{start}{offset}{end}"
        digits = seal(f"{copied}-{place}", logical, timestamp_ms, key, value)
        copies.append(header(copied, place, digits))
    lengths, headers = _taken_apart(batch.column("headers"))
    kept = ("topic", "logical_topic", "partition", "offset", "timestamp_ms", "key", "value")
    return pyarrow.RecordBatch.from_pydict(
        {name: batch.column(name) for name in kept}
        | {
            "header_names": _lists(lengths, headers.field(0)),
            "header_values": _lists(lengths, headers.field(1)),
            "copy": pyarrow.array(copies, pyarrow.binary()),
            "doubts": batch.column("doubts"),
        }
    )


def _flags_of_copy(distributor: Distributor, origin: str, flags: int) -> str | None:
    """As the header has them."""
    copied = distributor.flags_of_copy_from(origin, Flags(flags))
    return None if copied is None else f"{copied:08x}"


def _milliseconds(timestamps: pyarrow.Array) -> pyarrow.Array:
    """Spark has made microseconds of Kafka's milliseconds."""
    return timestamps.cast(pyarrow.timestamp("ms", timestamps.type.tz)).cast(pyarrow.int64())


def _taken_apart(headers: pyarrow.ListArray) -> tuple[pyarrow.Array, pyarrow.StructArray]:
    """How many each row has (null: none), and those of all rows."""
    return headers.value_lengths().fill_null(0), headers.flatten()


def _copies(
    lengths: pyarrow.Array, headers: pyarrow.StructArray, are_copies: pyarrow.BooleanArray
) -> Iterator[Values]:
    """The copy headers of each row."""
    flat = list(zip(listed(are_copies), listed(headers.field(1)), strict=True))
    at = 0
    for length in listed(lengths):
        yield [value for is_copy, value in flat[at : at + length] if is_copy]
        at += length


def _without(
    lengths: pyarrow.Array, headers: pyarrow.StructArray, are_copies: pyarrow.BooleanArray
) -> pyarrow.ListArray:
    marks, left, at = listed(are_copies), list[int](), 0
    for length in listed(lengths):
        left.append(length - sum(marks[at : at + length]))
        at += length
    others = headers.filter(columns.invert(are_copies))
    return _lists(pyarrow.array(left, pyarrow.int32()), others)


def _lists(lengths: pyarrow.Array, values: pyarrow.Array) -> pyarrow.ListArray:
    ends = columns.cumulative_sum(lengths)
    offsets: Any = pyarrow.concat_arrays([pyarrow.array([0], pyarrow.int32()), ends])
    return pyarrow.ListArray.from_arrays(offsets, values)
