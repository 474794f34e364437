"""A status topic of links in memory."""

from __future__ import annotations

from collections.abc import Mapping

from spark.links.status import Json


class Kept:
    """A status topic that an earlier run has written."""

    def __init__(self, records: dict[str, Json]) -> None:
        self.records = records

    def ensure(self) -> None:
        pass

    def read(self) -> dict[str, Json]:
        return self.records

    def publish(self, records: Mapping[str, Json]) -> None:
        self.records.update(records)
