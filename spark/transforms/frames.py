"""DataFrame -> DataFrame: a plan over records as Spark's Kafka source gives them.

The columns topic, key, value and headers must be there (`includeHeaders`); partition and offset are
written into the origin of a quarantined record if they are. Every other column, timestamp and
partition among them, goes through as it is, in Arrow, without becoming Python objects. So do the
headers, except those of quarantined records.

Inside a link, between read and write:

    marked(frame, plan, destination="logical_topic")

gives back every row, in its order, with its target in the column `destination`: the topic of a
route, the quarantine topic, null for "filtered out", else the old value. The writer can so move
its position past a filtered record and count it; topic, partition and offset are the source's, and
names of topics are translated behind the transforms.

Quarantined records have their key, value, timestamp and headers as they came, and two more headers:
`keyway-quarantine-reason` (text) and `keyway-quarantine-origin` (JSON: topic, partition, offset,
pipeline, step, counted from 1).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING

from pyspark.sql.types import StructField, StructType

from spark.transforms.core.engine import Engine, Outcome
from spark.transforms.core.plan import Plan
from spark.transforms.registry import registry_of

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

REASON_HEADER = "keyway-quarantine-reason"
ORIGIN_HEADER = "keyway-quarantine-origin"
REASON_CHARACTERS_MAX = 1_000  # a header travels with every fetch of the quarantine topic
NEEDED = ("topic", "key", "value", "headers")


def marked(frame: DataFrame, plan: Plan, *, destination: str = "topic") -> DataFrame:
    """Raises ValueError if a column is missing."""
    missing = [name for name in (*NEEDED, destination) if name not in frame.columns]
    if missing:
        raise ValueError(f"the records have no column {', '.join(missing)}")
    # A column of a constant is "never null"; this one may become null.
    fields = [
        StructField(
            field.name, field.dataType, field.nullable or field.name == destination, field.metadata
        )
        for field in frame.schema
    ]
    return frame.mapInArrow(batch_function(plan, destination), StructType(fields))


def batch_function(
    plan: Plan, destination: str = "topic"
) -> Callable[[Iterable[pa.RecordBatch]], Iterable[pa.RecordBatch]]:
    """The work of one task. It returns the same rows in the same order."""

    def run(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        engine = engine_of(plan)
        for batch in batches:
            yield apply(engine, batch, destination)

    return run


def engine_of(plan: Plan) -> Engine:
    return Engine(plan, None if plan.registry is None else registry_of(plan.registry))


def apply(engine: Engine, batch: pa.RecordBatch, destination: str = "topic") -> pa.RecordBatch:
    """Raises RegistryError."""
    import pyarrow as pa  # only workers need it

    topics, keys, values = (
        batch.column(name).to_pylist() for name in (destination, "key", "value")
    )
    outcomes = [
        engine.process(topic, key, value)
        for topic, key, value in zip(topics, keys, values, strict=True)
    ]
    new: dict[str, list[object]] = {
        destination: [outcome.topic for outcome in outcomes],
        "key": [outcome.key for outcome in outcomes],
        "value": [outcome.value for outcome in outcomes],
    }
    if any(outcome.problem for outcome in outcomes):
        new["headers"] = _with_reasons(engine.plan, batch, outcomes)
    columns = [
        pa.array(new[field.name], type=field.type) if field.name in new else batch.column(at)
        for at, field in enumerate(batch.schema)
    ]
    return pa.RecordBatch.from_arrays(columns, schema=batch.schema)


def _with_reasons(plan: Plan, batch: pa.RecordBatch, outcomes: list[Outcome]) -> list[object]:
    nowhere: list[int | None] = [None] * batch.num_rows
    place = {
        name: batch.column(name).to_pylist() if name in batch.schema.names else nowhere
        for name in ("topic", "partition", "offset")
    }
    headers: list[object] = batch.column("headers").to_pylist()
    for row, outcome in enumerate(outcomes):
        if outcome.problem is None:
            continue
        origin = {name: column[row] for name, column in place.items()}
        origin |= {"pipeline": plan.name, "step": outcome.problem.step + 1}
        added = [
            {
                "key": REASON_HEADER,
                "value": outcome.problem.reason[:REASON_CHARACTERS_MAX].encode(),
            },
            {"key": ORIGIN_HEADER, "value": json.dumps(origin).encode()},
        ]
        there = headers[row]
        headers[row] = [*(there if isinstance(there, list) else ()), *added]
    return headers
