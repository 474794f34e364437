"""The topic `_keyway-offsets` of one cluster: its latest state, and our writes to it."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from confluent_kafka import Consumer, KafkaError, TopicPartition

from clusters.core.internal import OFFSETS_TOPIC as TOPIC
from clusters.core.internal import STATE_TOPIC_CONFIG
from offsets.client import RECORD_BYTES_MAX, ClusterClient, consumed
from offsets.core.board import Board
from offsets.core.entries import (
    APPLIED,
    BOTH,
    ENTRY,
    ROW,
    VERSION,
    Applied,
    Entry,
    Place,
    encode_applied,
    encode_entry,
    key_of,
    read_body,
)
from offsets.core.plan import Row
from offsets.errors import ClusterAway

_LARGE_RECORDS: Final = {"max.message.bytes": str(RECORD_BYTES_MAX)}


class BoardTopic:
    """`close` it. Reading creates no topic; `ensure` and writing do. `remember` False: it is only
    written to.
    """

    def __init__(self, client: ClusterClient, *, remember: bool = True) -> None:
        self.client = client
        self._remember = remember
        self.state = Board()
        self._consumer: Consumer | None = None
        self._ensured = False

    def ensure(self) -> None:
        """Creates the topic unless it is there. That it is not listed is no proof, and without it
        nothing is known of what was applied here. Raises ClusterAway, NotReadable.
        """
        if not self._ensured:
            self.client.ensure_compacted(TOPIC, STATE_TOPIC_CONFIG | _LARGE_RECORDS)
            self._ensured = True

    def read(self, *, for_s: float) -> bool:
        """To the topic's present end; False: time was up before. Raises ClusterAway."""
        until = time.monotonic() + for_s
        if self._consumer is None and not self._start():
            return True
        assert self._consumer is not None
        end = self._end()
        while True:
            if self._position() >= end:
                return True
            if time.monotonic() > until:
                return False
            for message in consumed(self._consumer, 0.05):
                error = message.error()
                if error is None:
                    self.state.read(message.key(), message.value())
                elif error.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED:
                    raise ClusterAway(f"{self.client.name}: {TOPIC}: {error.str()}")

    def _start(self) -> bool:
        if TOPIC not in self.client.topics():
            return False
        self._consumer = self.client.consumer()
        self._consumer.assign([TopicPartition(TOPIC, 0, 0)])
        return True

    def _end(self) -> int:
        return self.client.end(TOPIC)

    def _position(self) -> int:
        """The next offset to read; the topic has no transactions, so no markers at its end."""
        assert self._consumer is not None
        (at,) = self._consumer.position([TopicPartition(TOPIC, 0)])
        return max(0, int(at.offset))

    # ----------------------------------------------------------------------------------- writing

    def write_entries(self, entries: Iterable[Entry]) -> None:
        """Raises ClusterAway, NotReadable."""
        self._write([(key_of(ENTRY, it.place, it.source), encode_entry(it)) for it in entries])

    def write_applied(self, applied: Mapping[Place, Applied]) -> None:
        """Raises ClusterAway, NotReadable."""
        self._write([(key_of(APPLIED, it), encode_applied(one)) for it, one in applied.items()])

    def write_rows(self, rows: Iterable[Row]) -> None:
        """Raises ClusterAway, NotReadable."""
        records = []
        for row in rows:
            place, value = (row.group, row.topic, row.partition), _shown(row.shown())
            if self.state.rows.get((place, row.source)) != read_body(value):
                records.append((key_of(ROW, place, row.source), value))
        self._write(records)

    def write_tombstones(self, before_ms: int) -> int:
        """For all that is told of commits that were deleted before then; how many records. Raises
        ClusterAway, NotReadable.
        """
        keys = self.state.expired(before_ms)
        self._write([(key, None) for key in keys])
        return len(keys)

    def write_both(self, groups: Iterable[str], *, both: bool) -> None:
        """Raises ClusterAway, NotReadable."""
        value = _shown({}) if both else None
        self._write([(key_of(BOTH, (group, "", 0)), value) for group in groups])

    def _write(self, records: Sequence[tuple[bytes, bytes | None]]) -> None:
        if not records:
            return
        self.ensure()
        self.client.write(TOPIC, records)
        if self._remember:
            for key, value in records:
                self.state.read(key, value)

    def close(self) -> None:
        if self._consumer is not None:
            self._consumer.close()


def _shown(row: dict[str, Any]) -> bytes:
    return json.dumps({"version": VERSION, **row}, separators=(",", ":")).encode()
