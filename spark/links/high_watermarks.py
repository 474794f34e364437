"""Where a source's logs end, open transactions included: a link copies none of their records, and
none behind the first of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from time import monotonic

from spark.streaming.kafka import KafkaSide
from spark.streaming.limits import HIGH_WATERMARKS_EVERY_S
from spark.streaming.orders import Partition


@dataclass(slots=True)
class HighWatermarks:
    """Asked for before the ends of committed records are, and seldom. So an end that is below one
    tells of a transaction, and the short ones of every day are seldom told.
    """

    clock: Callable[[], float] = monotonic
    _found: Mapping[Partition, int] = field(default_factory=dict)
    _asked_s: float = float("-inf")

    def of(self, side: KafkaSide, places: Iterable[Partition]) -> Mapping[Partition, int]:
        """Raises KafkaException."""
        if self.clock() - self._asked_s >= HIGH_WATERMARKS_EVERY_S:
            self._found = side.high_watermarks(places)
            self._asked_s = self.clock()
        return self._found
