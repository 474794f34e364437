"""Where a group starts on a partition it has never read (`share.auto.offset.reset`, KIP-932;
default latest).
"""

from __future__ import annotations

import structlog

from gateway.config import GroupSection
from gateway.core.topology import TopicPartition
from gateway.upstream import EARLIEST, LATEST, READ_COMMITTED, READ_UNCOMMITTED, Upstream

log = structlog.get_logger("keyway.window")


def isolation_of(section: GroupSection) -> int:
    return READ_COMMITTED if section.isolation_level == "read_committed" else READ_UNCOMMITTED


async def start_position(
    upstream: Upstream, section: GroupSection, group: str, partition: TopicPartition
) -> int:
    """The group's own config in Kafka wins over keyway.yaml. Raises UpstreamError."""
    config = await upstream.group_config(group)
    reset = config.get("share.auto.offset.reset", section.auto_offset_reset)
    timestamp = EARLIEST if reset == "earliest" else LATEST
    position = await upstream.list_offset(partition, timestamp, isolation_of(section))
    log.info(
        "window_starts",
        group=group,
        topic=partition.topic,
        partition=partition.partition,
        reset=reset,
        offset=position,
    )
    return position
