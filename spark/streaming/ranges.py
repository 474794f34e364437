"""Where the range of a micro-batch ends, partition by partition.

A position is the end of the range that was read, not the offset behind the last record: behind the
last record may stand commit markers and aborted records, which Spark passes without a row. Spark
tells no task the range it reads. It writes the ends into its checkpoint before the batch runs, so
they are read from there.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from spark.streaming.orders import Partition

_VERSION = "v1"


def batch_ends(checkpoint: Path, number: int) -> dict[Partition, int]:
    """`number`: as `foreachBatch` gives it. Raises OSError, ValueError."""
    # A line each: the version, the state of the query, then the offsets of every source.
    version, _, offsets = (checkpoint / "offsets" / str(number)).read_text().splitlines()
    if version != _VERSION:
        raise ValueError(f"Spark's checkpoint has version {version}, not {_VERSION}")
    return {
        (topic, int(partition)): int(end)
        for topic, ends in json.loads(offsets).items()
        for partition, end in ends.items()
    }


def moved(ends: Mapping[Partition, int], before: Mapping[Partition, int]) -> set[Partition]:
    """The partitions of which the batch reads something: those that end behind `before`."""
    return {place for place, end in ends.items() if end > before.get(place, end)}
