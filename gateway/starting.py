"""Where a group starts on a partition it has never read (`share.auto.offset.reset`, KIP-932; default latest)."""

from __future__ import annotations

import structlog

from gateway.config import GroupSection
from gateway.core.topology import TopicPartition
from gateway.upstream import Upstream

log = structlog.get_logger("keyway.window")

EARLIEST_TIMESTAMP = -2
LATEST_TIMESTAMP = -1


async def start_position(
    upstream: Upstream, section: GroupSection, group: str, partition: TopicPartition
) -> int:
    """The group's own config in Kafka wins over keyway.yaml. Raises UpstreamError."""
    config = await upstream.group_config(group)
    reset = config.get("share.auto.offset.reset", section.auto_offset_reset)
    timestamp = EARLIEST_TIMESTAMP if reset == "earliest" else LATEST_TIMESTAMP
    position = await upstream.list_offset(partition, timestamp)
    log.info(
        "window_starts",
        group=group,
        topic=partition.topic,
        partition=partition.partition,
        reset=reset,
        offset=position,
    )
    return position
