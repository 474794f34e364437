"""The reader's results, as a window's life takes them."""

from __future__ import annotations

from dispatcher.core.life.commands import Command, Failure
from dispatcher.core.life.life import WindowLife
from dispatcher.core.model import RecordsRead
from dispatcher.core.stored.cut import Cut
from gateway.core.reading.fetching import ReadResult
from gateway.core.wire.errors import ErrorCode


def taken_in(life: WindowLife, read: ReadResult, now_ms: int) -> list[Command]:
    """The commands that follow from `read`."""
    if read.error == ErrorCode.NONE:
        ahead = read.high_watermark
        columns = (read.offsets, read.keys)
        records = RecordsRead(read.start, read.end, *columns, now_ms, ahead, read.epoch)
        return life.records_read(records, read.log_start)
    if read.error == ErrorCode.MESSAGE_TOO_LARGE:
        return life.given_up.too_large(life.core, read.start, read.end, now_ms)
    if read.error == ErrorCode.OFFSET_OUT_OF_RANGE and read.diverged_at >= 0:
        return life.diverged(read.start, Cut(read.diverged_at, read.epoch), now_ms)
    if read.error == ErrorCode.OFFSET_OUT_OF_RANGE:
        return life.out_of_range(read.start, read.log_start, read.high_watermark, now_ms)
    failure = Failure(f"reading failed with Kafka error {read.error}")
    return life.read_failed(read.start, failure, now_ms)
