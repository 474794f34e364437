"""Records that come to an old partition after its boundary: seen where windows read, and sampled
where none does.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from gateway.core.cluster.topology import TopicPartition
from gateway.core.reading.fetching import ReadResult
from gateway.core.repartition.holding import moves
from gateway.core.repartition.record import Phase, Repartition
from gateway.repartition.limits import SAMPLE_MS
from gateway.repartition.survey import keys_from
from gateway.upstream.cluster import Upstream
from gateway.upstream.errors import UpstreamError


@dataclass(slots=True)
class LateRecords:
    """Of a topic that grows: records of keys that move, above the boundary of an old partition,
    from a producer that has not asked for Metadata since, or one that bypasses the gateway. Of a
    topic that moves: records that came when nothing could come any more.
    """

    records: int = 0
    last_ms: int = 0  # when the last one came, or one by a producer that has not moved; 0: none
    by_partition: Counter[int] = field(default_factory=Counter)
    _looked_to: dict[int, int] = field(default_factory=dict)  # offsets before it, by partition
    _sample_due_ms: int = 0

    def ended_at(self, record: Repartition, ends: Mapping[int, int], now_ms: int) -> None:
        """Of a topic that moves: whoever writes to its old partitions has not moved yet."""
        for partition in range(len(record.boundaries)):
            end, first = ends.get(partition, 0), self._first(record, partition)
            if end > first:
                self.last_ms = now_ms
                if record.phase is Phase.DRAINING:
                    self.records += end - first
                    self.by_partition[partition] += end - first
            self._looked_to[partition] = max(end, self._looked_to.get(partition, 0))

    def read(self, record: Repartition, partition: int, read: ReadResult, now_ms: int) -> None:
        """A window has read on."""
        if _keys_tell(record) and read.end > self._first(record, partition):
            keyed = zip(read.offsets, read.keys, strict=True)
            self._count(record, partition, read.end, keyed, now_ms)

    async def sample(
        self, record: Repartition, ends: Mapping[int, int], upstream: Upstream, now_ms: int
    ) -> None:
        """Looks at an old partition of a topic that no Key-Shared group reads: at what one fetch
        brings, and at the partition with the most new records. It does not come back to the rest.
        """
        at_ms = time.monotonic_ns() // 1_000_000
        topic = upstream.topology.topics.get(record.topic)
        if at_ms < self._sample_due_ms or topic is None or record.groups or not _keys_tell(record):
            return
        self._sample_due_ms = at_ms + SAMPLE_MS
        new = {at: ends.get(at, 0) - self._first(record, at) for at in range(record.before)}
        partition = max(new, key=lambda at: new[at])
        if new[partition] <= 0 or partition not in topic.partitions:
            return
        tp = TopicPartition(record.topic, bytes.fromhex(record.topic_id), partition)
        leader, first = topic.partitions[partition].leader, self._first(record, partition)
        try:
            keyed = await keys_from(upstream, tp, leader, first)
        except UpstreamError:
            return
        self._count(record, partition, ends[partition], keyed, now_ms)

    def _first(self, record: Repartition, partition: int) -> int:
        """Records below it were looked at, or are of before the change."""
        return max(self._looked_to.get(partition, 0), record.boundaries[partition])

    def _count(
        self,
        record: Repartition,
        partition: int,
        end: int,
        keyed: Iterable[tuple[int, bytes | None]],
        now_ms: int,
    ) -> None:
        first = self._first(record, partition)
        self._looked_to[partition] = end
        late = sum(
            offset >= first and key is not None and moves(record, partition, key)
            for offset, key in keyed
        )
        if late:
            self.records += late
            self.by_partition[partition] += late
            self.last_ms = now_ms


def _keys_tell(record: Repartition) -> bool:
    """Whether a record's key tells that it is late."""
    return bool(record.boundaries) and record.partitioner is not None and not record.into
