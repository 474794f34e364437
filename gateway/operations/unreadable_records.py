"""Batches that are too large when decompressed: listed, and given up by an operator.

Such a batch stops its partition for every group that reads it, unless the group's policy
`exhausted` is to drop. A group that gives it up reads on behind it, as behind a hole of the log;
the records before and behind it are delivered. Any other unreadable place is only shown: a damaged
batch may be mended.
"""

from __future__ import annotations

from dataclasses import dataclass

import structlog

from gateway.operations.errors import (
    NotUnreadable,
    PartitionUnknown,
    StateUnavailable,
)
from gateway.operations.group_offsets import GroupOffsets
from gateway.windows.failures import WindowUnavailable
from gateway.windows.window import Window

log = structlog.get_logger("keyway.admin")


@dataclass(frozen=True, slots=True)
class UnreadablePlace:
    """`end`: behind the batch; None: it cannot be skipped, only mended upstream."""

    topic: str
    partition: int
    offset: int
    end: int | None
    reason: str


@dataclass(frozen=True, slots=True)
class UnreadableRecords:
    offsets: GroupOffsets

    async def rows(self, group: str, *, topic: str | None = None) -> list[UnreadablePlace]:
        """Where the group's windows cannot read on, by topic and partition. Raises GroupUnknown,
        StateUnavailable.
        """
        found = [_place(window) for window in await self._windows(group)]
        rows = [row for row in found if row is not None and topic in (None, row.topic)]
        return sorted(rows, key=lambda row: (row.topic, row.partition))

    async def skip(self, group: str, topic: str, partition: int, offset: int) -> UnreadablePlace:
        """The group reads on behind the batch at `offset`. Returns the batch given up once that is
        stored and committed to Kafka.

        Raises GroupUnknown, PartitionUnknown, NotUnreadable, StateUnavailable.
        """
        window = await self._window(group, topic, partition)
        # From here to `give_up` nothing is awaited: the decision is about the batch found now.
        place = _place(window)
        where = f"{topic}-{partition}"
        if place is None:
            raise NotUnreadable(f"{where}: nothing is unreadable")
        if place.end is None:
            raise NotUnreadable(
                f"{where}: only a batch that is too large can be skipped; {place.reason}"
            )
        if offset not in range(place.offset, place.end):
            what = f"unreadable are the offsets {place.offset} to {place.end - 1}"
            raise NotUnreadable(f"{where}: offset {offset} is not unreadable; {what}")
        try:
            await window.give_up(place.end)
        except WindowUnavailable as unavailable:
            raise StateUnavailable(f"{where}: {unavailable}") from unavailable
        log.info(
            "unreadable_skipped",
            group=group,
            topic=topic,
            partition=partition,
            first=place.offset,
            last=place.end - 1,
            reason=place.reason,
        )
        # The skipped offsets behind the cursor are in the commit alone, as holes of the log are.
        await self.offsets.committer.commit()
        return place

    async def _windows(self, group: str) -> list[Window]:
        """Raises GroupUnknown, StateUnavailable."""
        await self.offsets.require(group)
        return self.offsets.windows.of_group(group)

    async def _window(self, group: str, topic: str, partition: int) -> Window:
        for window in await self._windows(group):
            if (window.partition.topic, window.partition.partition) == (topic, partition):
                return window
        raise PartitionUnknown(f"group {group!r} reads nothing of {topic}-{partition}")


def _place(window: Window) -> UnreadablePlace | None:
    core, unreadable = window.dispatcher, window.unreadable
    if core is None or unreadable is None:
        return None
    return UnreadablePlace(
        topic=window.partition.topic,
        partition=window.partition.partition,
        offset=core.read_position,
        end=unreadable.end if unreadable.end > core.read_position else None,
        reason=unreadable.reason,
    )
