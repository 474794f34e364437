"""One partition that is followed: its index, and the rows of its end."""

from __future__ import annotations

from array import array
from bisect import bisect_left

from confluent_kafka import KafkaError

from offsets.core.index import PartitionIndex
from offsets.core.model import Rows, Stream
from offsets.limits import RECENT_ROWS_MAX


class Columns:
    """The columns of records that were read and are not indexed yet."""

    __slots__ = ("offsets", "origins", "streams", "timestamps")

    def __init__(self) -> None:
        self.offsets = array("q")
        self.timestamps = array("q")
        self.streams: list[Stream] = []
        self.origins = array("q")

    def add(self, offset: int, timestamp: int, stream: Stream, origin: int) -> None:
        self.offsets.append(offset)
        self.timestamps.append(timestamp)
        self.streams.append(stream)
        self.origins.append(origin)

    def rows(self, low: int = 0, high: int | None = None) -> Rows:
        return Rows(
            self.offsets[low:high],
            self.timestamps[low:high],
            self.streams[low:high],
            self.origins[low:high],
        )

    def drop(self, count: int) -> None:
        del self.offsets[:count]
        del self.timestamps[:count]
        del self.streams[:count]
        del self.origins[:count]


class Followed:
    """One partition: its index, and the rows of its end from `recent_from` on."""

    __slots__ = ("index", "recent", "recent_from")

    def __init__(self, index: PartitionIndex) -> None:
        self.index = index
        self.recent = Columns()
        self.recent_from = index.end

    def take(self, fresh: Columns, end: int, *, kept_max: int = RECENT_ROWS_MAX) -> None:
        # Records wait in the consumer's queue while the log's start, and so the index, passes them.
        fresh.drop(bisect_left(fresh.offsets, self.index.end))
        self.index.extend(fresh.rows(), end)
        recent = self.recent
        recent.offsets.extend(fresh.offsets)
        recent.timestamps.extend(fresh.timestamps)
        recent.streams.extend(fresh.streams)
        recent.origins.extend(fresh.origins)
        # In large steps: dropping from the front moves all that stays.
        if len(recent.offsets) > 2 * kept_max:
            recent.drop(len(recent.offsets) - kept_max)
            self.recent_from = recent.offsets[0]

    def goes_back(self, offset: int, error: KafkaError | None, end: int) -> bool:
        """Whether the consumer begins again before what it has read, up to `end` of late:
        librdkafka has found that the log lost its end (KIP-320). Behind the last record may be
        markers.
        """
        if error is None:
            read = self.index.end
        elif error.code() == KafkaError._PARTITION_EOF:
            read, _ = self.index.behind_last
        else:
            return False
        return self.index.start <= offset < max(read, end)

    def kept(self, first: int, last: int) -> Rows | None:
        """The rows from `first` to `last`; None: they must be read from Kafka."""
        if first < self.recent_from or last >= self.index.end:
            return None
        offsets = self.recent.offsets
        return self.recent.rows(bisect_left(offsets, first), bisect_left(offsets, last + 1))
