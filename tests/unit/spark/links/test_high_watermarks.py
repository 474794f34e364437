"""How often the ends of open transactions are asked for."""

from __future__ import annotations

from collections.abc import Iterable
from typing import cast

from spark.links.high_watermarks import HighWatermarks
from spark.streaming.kafka import KafkaSide
from spark.streaming.limits import HIGH_WATERMARKS_EVERY_S
from spark.streaming.orders import Partition

PLACE = ("flights", 0)


class Side:
    end = 7

    def high_watermarks(self, places: Iterable[Partition]) -> dict[Partition, int]:
        return dict.fromkeys(places, self.end)


def test_they_are_asked_for_seldom() -> None:
    """Ten thousand partitions are many questions, and a look comes each two seconds."""
    now_s, side = 0.0, Side()
    marks = HighWatermarks(lambda: now_s)
    kafka = cast(KafkaSide, side)
    assert marks.of(kafka, [PLACE]) == {PLACE: 7}
    side.end, now_s = 9, HIGH_WATERMARKS_EVERY_S - 1
    assert marks.of(kafka, [PLACE]) == {PLACE: 7}
    now_s += 1
    assert marks.of(kafka, [PLACE]) == {PLACE: 9}
