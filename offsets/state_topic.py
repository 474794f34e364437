"""The topic `_keyway-offsets` of one cluster: its latest state, and our writes to it."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

import structlog

from keyway.clusters.core.internal import OFFSETS_TOPIC as TOPIC
from keyway.clusters.core.internal import STATE_TOPIC_CONFIG
from offsets.client import ClusterClient
from offsets.core.entries import (
    APPLIED,
    BEAT,
    BOTH,
    CUT,
    ENTRY,
    ROW,
    VERSION,
    Applied,
    Entry,
    GroupPartition,
    encode_applied,
    encode_cut,
    encode_entry,
    key_of,
    read_body,
)
from offsets.core.model import Cut
from offsets.core.plan import Row
from offsets.core.switches import SWITCH, SwitchReport, encode_report
from offsets.core.topic_state import TopicState
from offsets.errors import ClusterAway

log = structlog.get_logger("keyway.offsets")

# An entry with SETTLED_RANGES_MAX takes half of it.
_LARGE_RECORDS: Final = {"max.message.bytes": str(2 * 1024 * 1024)}


class StateTopic:
    """`close` it. Reading does not create the topic; `ensure` and writing do. With `remember` False
    the topic is only written to. `require_lease` is called before each write; it raises an
    OffsetsError unless it is sure that no other process writes here.
    """

    def __init__(
        self,
        client: ClusterClient,
        *,
        remember: bool = True,
        require_lease: Callable[[], None] = lambda: None,
    ) -> None:
        self.client = client
        self.require_lease = require_lease
        self._remember = remember
        self.state = TopicState()
        self._topic = client.compacted(TOPIC)
        self._ensured = False

    def ensure(self) -> None:
        """Creates the topic unless it exists. A topic that is not listed may exist all the same,
        and without the topic nothing is known of what was applied here. Into one that was deleted
        since, all that is known is written again. Raises ClusterAway, NotReadable.
        """
        if not self._ensured:
            with self.client.asking(TOPIC):
                created = self._topic.ensure(STATE_TOPIC_CONFIG | _LARGE_RECORDS)
                if created and (known := self.state.records()):
                    log.warning(
                        "state_topic_made_anew", cluster=self.client.name, records=len(known)
                    )
                    self._topic.write(known)
            self._ensured = True

    def topic_id(self) -> str | None:
        """None while the topic does not exist. Raises ClusterAway, NotReadable."""
        with self.client.asking(TOPIC):
            return self._topic.topic_id()

    def read(self, *, for_s: float) -> bool:
        """Reads to the topic's present end. Returns False if time was up before. Raises
        ClusterAway, NotReadable.
        """
        try:
            with self.client.asking(TOPIC):
                there = self._ensured or self._topic.exists()
                return not there or self._topic.read(self.state.read, for_s=for_s)
        except ClusterAway:
            self._ensured = False  # it may have been deleted
            raise

    # ----------------------------------------------------------------------------------- writing

    def write_told(self, told: Iterable[Entry | SwitchReport]) -> None:
        """Raises ClusterAway, NotReadable."""
        self._write(
            [
                (key_of(ENTRY, record.place, record.source), encode_entry(record))
                if isinstance(record, Entry)
                else (key_of(SWITCH, record.place, record.source), encode_report(record))
                for record in told
            ]
        )

    def write_applied(self, applied: Mapping[GroupPartition, Applied]) -> None:
        """Raises ClusterAway, NotReadable."""
        self._write(
            [(key_of(APPLIED, place), encode_applied(offset)) for place, offset in applied.items()]
        )

    def write_rows(self, rows: Iterable[Row]) -> None:
        """Raises ClusterAway, NotReadable."""
        records = []
        for row in rows:
            place, value = (row.group, row.topic, row.partition), _shown(row.shown())
            if self.state.rows.get((place, row.source)) != read_body(value):
                records.append((key_of(ROW, place, row.source), value))
        self._write(records)

    def write_tombstones(self, before_ms: int) -> int:
        """Deletes everything about commits that were deleted before `before_ms`. Returns the number
        of records. Raises ClusterAway, NotReadable.
        """
        keys = self.state.expired(before_ms)
        self._write([(key, None) for key in keys])
        return len(keys)

    def write_both(self, groups: Iterable[str], *, both: bool) -> None:
        """Raises ClusterAway, NotReadable."""
        value = _shown({}) if both else None
        self._write([(key_of(BOTH, (group, "", 0)), value) for group in groups])

    def write_cuts(self, cuts: Mapping[tuple[str, int], Cut]) -> None:
        """Raises ClusterAway, NotReadable."""
        self._write([(key_of(CUT, ("", *at)), encode_cut(cut)) for at, cut in cuts.items()])

    def write_beat(self, at_ms: int, problem: str) -> None:
        """A sign of life of the service, with what keeps it from its work. Raises ClusterAway,
        NotReadable.
        """
        self._write([(key_of(BEAT, ("", "", 0)), _shown({"at_ms": at_ms, "problem": problem}))])

    def _write(self, records: Sequence[tuple[bytes, bytes | None]]) -> None:
        if not records:
            return
        self.require_lease()
        self.ensure()
        with self.client.asking(TOPIC):
            self._topic.write(records)
        if self._remember:
            for key, value in records:
                self.state.read(key, value)

    def close(self) -> None:
        self._topic.close()


def _shown(row: dict[str, Any]) -> bytes:
    return json.dumps({"version": VERSION, **row}, separators=(",", ":")).encode()
