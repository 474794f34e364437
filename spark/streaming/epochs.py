"""The leader epochs of the logs that a query reads: by them a log that was cut and has grown again
is told from one that has only grown (KIP-320).

The epoch that is kept with a position is not that of its last record, which Spark does not tell. It
is that of the leader that had all records of the batch before they were read, and that can only be
later: where a later leader lacks one of the records, the earlier epochs end before the position.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from spark.streaming.core.survey import UNKNOWN_EPOCH, Position
from spark.streaming.kafka import KafkaSide
from spark.streaming.orders import Partition


@dataclass(slots=True)
class Epochs:
    """`of`: by place, as of the last look."""

    of: dict[Partition, int] = field(default_factory=dict)

    def positions(self, places: Mapping[Partition, int]) -> dict[Partition, Position]:
        """The offsets of `places`, with the epochs."""
        return {
            place: Position(at, "", epoch=self.of.get(place, UNKNOWN_EPOCH))
            for place, at in places.items()
        }

    def fit(
        self, side: KafkaSide, starts: Mapping[Partition, int], ends: Mapping[Partition, int]
    ) -> bool:
        """Looks at the logs before a batch reads them, from `starts` up to `ends`. False: one may
        have been cut since the last look. Raises KafkaException.
        """
        tails = side.tails(starts)
        short = any(tails[place].end < ends[place] for place in starts)
        if short or side.cut(self.positions(starts), tails):
            return False
        self.of |= {place: tail.epoch for place, tail in tails.items()}
        return True
