"""A status topic of links in memory."""

from __future__ import annotations

from collections.abc import Mapping

from spark.links.status import Json


class Kept:
    """A status topic that an earlier run has written."""

    def __init__(self, records: dict[str, Json]) -> None:
        self.records = records
        self.deleted = False

    def exists(self) -> bool:
        return not self.deleted

    def ensure(self) -> bool:
        """Returns whether it was made anew."""
        deleted, self.deleted = self.deleted, False
        if deleted:
            self.records.clear()
        return deleted

    def read(self, prefix: str = "") -> dict[str, Json]:
        return {key: record for key, record in self.records.items() if key.startswith(prefix)}

    def publish(self, records: Mapping[str, Json | None]) -> None:
        for key, value in records.items():
            if value is None:
                self.records.pop(key, None)
            else:
                self.records[key] = value
