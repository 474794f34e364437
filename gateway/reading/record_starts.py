"""Single records for operators: the time, the first headers and the beginning of the value, however
long they are. From the cache of batches, or else by a Fetch.
"""

from __future__ import annotations

from bisect import bisect_left

from gateway.core.reading.cache import Source
from gateway.core.wire.records import CorruptBatch, RecordStart, record_start
from gateway.reading.limits import HEADER_BYTES_SHOWN, HEADERS_SHOWN
from gateway.reading.refetch import Refetches
from gateway.upstream.errors import Refused


class RecordStarts:
    def __init__(self, refetches: Refetches) -> None:
        self._refetches = refetches

    async def of(
        self, source: Source, offset: int, *, value_bytes_max: int = 0
    ) -> RecordStart | None:
        """None: the record is no longer in the log. Raises UpstreamError."""
        _, batch = await self._refetches.piece(source, offset)
        if batch is None:
            return None
        at = bisect_left(batch.offsets, offset)
        if at == batch.count or batch.offsets[at] != offset:
            return None
        try:
            return record_start(batch, at, HEADERS_SHOWN, HEADER_BYTES_SHOWN, value_bytes_max)
        except CorruptBatch as error:
            what = f"offset {offset} of {source.tp.topic}-{source.tp.partition}: {error}"
            raise Refused(error.code, what) from error
