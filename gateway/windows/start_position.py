"""The start of a group on a partition that it has never read (`share.auto.offset.reset`, KIP-932;
default latest).
"""

from __future__ import annotations

import re

import structlog

from gateway.config.groups import GroupSection
from gateway.core.cluster.topology import TopicPartition
from gateway.core.reading.cache import Source
from gateway.upstream.cluster import EARLIEST, LATEST, READ_COMMITTED, READ_UNCOMMITTED
from gateway.windows.dependencies import OffsetsByTime

log = structlog.get_logger("keyway.window")

BY_DURATION = "by_duration:"
_DURATION = re.compile(  # ISO 8601 as java.time.Duration has it: days and smaller
    r"P(?:(\d+)D)?(?:T(?:(\d+)H)?(?:(\d+)M)?(?:(\d+(?:\.\d+)?)S)?)?", re.IGNORECASE
)
_UNITS_MS = (86_400_000, 3_600_000, 60_000, 1_000)


def isolation_of(section: GroupSection) -> int:
    return READ_COMMITTED if section.isolation_level == "read_committed" else READ_UNCOMMITTED


def source_of(section: GroupSection, partition: TopicPartition) -> Source:
    """The partition as members of a group with these settings see it."""
    return Source(partition, isolation_of(section))


def duration_ms(text: str) -> int | None:
    """None: no duration."""
    match = _DURATION.fullmatch(text)
    if match is None or not any(match.groups()):
        return None
    numbers = [float(number or 0) for number in match.groups()]
    return int(sum(n * unit for n, unit in zip(numbers, _UNITS_MS, strict=True)))


def _timestamp(reset: str, now_ms: int) -> int:
    if reset == "earliest":
        return EARLIEST
    ago_ms = duration_ms(reset.removeprefix(BY_DURATION)) if reset.startswith(BY_DURATION) else None
    return LATEST if ago_ms is None else max(0, now_ms - ago_ms)


async def start_position(
    upstream: OffsetsByTime,
    section: GroupSection,
    group: str,
    partition: TopicPartition,
    now_ms: int,
    *,
    added_later: bool = False,
) -> int:
    """The first offset to read. `added_later`: the partition was added after the group had
    begun with the topic; all its records are newer than the group's start, so the group reads them
    all. Raises UpstreamError.
    """
    reset = "earliest" if added_later else section.auto_offset_reset
    isolation = isolation_of(section)
    timestamp = _timestamp(reset, now_ms)
    # Before the look by time: a record that is produced between the two is young enough.
    end = -1 if timestamp < 0 else await upstream.list_offset(partition, LATEST, isolation)
    position = await upstream.list_offset(partition, timestamp, isolation)
    if position < 0:  # no record is so late
        position = end
    log.info(
        "window_starts",
        group=group,
        topic=partition.topic,
        partition=partition.partition,
        reset=reset,
        offset=position,
    )
    return position
