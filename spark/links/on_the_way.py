"""A pipeline's steps on the records of a link. Only fresh records go through them: a record that
was copied before has been through them on its first hop.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

import pyarrow

from spark.pipelines.config import Pipeline
from spark.transforms.frames import batch_function

Batches = Iterable[pyarrow.RecordBatch]


def fresh_steps(pipeline: Pipeline) -> Callable[[Batches], Iterator[object]]:
    """For batches as sealing.py judges them; every row comes back, in its order. A row that the
    steps filter out has no `logical_topic`.
    """
    return fresh_only(batch_function(pipeline.plan, "logical_topic"))


def fresh_only(steps: Callable[[Batches], Batches]) -> Callable[[Batches], Iterator[object]]:
    """`steps` must give back the rows it gets, in their order."""

    def run(batches: Batches) -> Iterator[object]:
        for batch in batches:
            fresh = batch.column("origin").is_null()
            count = fresh.true_count
            if count == batch.num_rows:
                yield from steps([batch])
            elif count == 0:
                yield batch
            else:
                copied = batch.filter(batch.column("origin").is_valid())
                both = pyarrow.Table.from_batches([*steps([batch.filter(fresh)]), copied])
                yield from both.sort_by("offset").to_batches()

    return run
