"""Headers of single records, for operators: the first of each, without the record's value, however
long they are. From the cache of batches, or else by a Fetch.
"""

from __future__ import annotations

from bisect import bisect_left

from gateway.core.reading.cache import Source
from gateway.core.wire.records import CorruptBatch, HeaderStarts, headers_at
from gateway.reading.limits import HEADER_BYTES_SHOWN, HEADERS_SHOWN
from gateway.reading.refetch import Refetches
from gateway.upstream.errors import Refused


class RecordHeaders:
    def __init__(self, refetches: Refetches) -> None:
        self._refetches = refetches

    async def of(self, source: Source, offset: int) -> HeaderStarts | None:
        """None: the record is no longer in the log. Raises UpstreamError."""
        _, batch = await self._refetches.piece(source, offset)
        if batch is None:
            return None
        at = bisect_left(batch.offsets, offset)
        if at == batch.count or batch.offsets[at] != offset:
            return None
        try:
            return headers_at(batch, at, HEADERS_SHOWN, HEADER_BYTES_SHOWN)
        except CorruptBatch as error:
            what = f"offset {offset} of {source.tp.topic}-{source.tp.partition}: {error}"
            raise Refused(error.code, what) from error
