"""Parked records (policy `block`, rejected or exhausted ones): listed, and released by an operator.

A window need not be in memory: a window that only the store has is opened for the operator, and
leaves memory again when it has been idle.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

import structlog

from dispatcher.core.model import Key, OperatorAct, OperatorVerb
from dispatcher.core.stats import ParkedRecord
from gateway.core.reading.cache import Source
from gateway.core.wire.errors import WireError
from gateway.core.wire.records import HeaderStarts, read_records
from gateway.operations.errors import (
    InvalidOperation,
    NotParked,
    PartitionUnknown,
    StateUnavailable,
)
from gateway.operations.group_offsets import GroupOffsets
from gateway.operations.limits import PARKED_KEYS_READ_MAX, WINDOW_LOAD_S_MAX
from gateway.reading.reader import NO_BYTES_MAX, RecordsGone
from gateway.upstream.errors import UpstreamError
from gateway.windows.failures import WindowUnavailable
from gateway.windows.start_position import isolation_of
from gateway.windows.window import Window

log = structlog.get_logger("keyway.admin")


ParkedPlace = tuple[str, int, int]  # topic, partition, offset


@dataclass(frozen=True, slots=True)
class ParkedRow:
    topic: str
    partition: int
    offset: int
    key: Key  # None: no key, or the record is gone from the log
    reason: str
    deliveries: int
    member_id: str  # of the last delivery


def place_of(row: ParkedRow) -> ParkedPlace:
    return row.topic, row.partition, row.offset


class RecordHeadersView(Protocol):
    """gateway.reading.record_headers.RecordHeaders"""

    async def of(self, source: Source, offset: int) -> HeaderStarts | None: ...


@dataclass(frozen=True, slots=True)
class ParkedRecords:
    offsets: GroupOffsets
    record_headers: RecordHeadersView
    now_ms: Callable[[], int]

    async def rows(
        self,
        group: str,
        *,
        topic: str | None = None,
        partition: int | None = None,
        after: ParkedPlace = ("", -1, -1),
        rows_max: int = sys.maxsize,
    ) -> list[ParkedRow]:
        """The first `rows_max` records parked in the group behind `after`, by topic, partition and
        offset. Raises GroupUnknown, StateUnavailable.
        """
        rows: list[ParkedRow] = []
        for window in sorted(await self._windows(group), key=_place):
            place = window.partition
            if topic not in (None, place.topic) or partition not in (None, place.partition):
                continue
            if _place(window) < after[:2] or len(rows) >= rows_max:
                continue
            floor = after[2] if _place(window) == after[:2] else -1
            parked = [it for it in await _parked(window) if it.offset > floor]
            parked = parked[: rows_max - len(rows)]
            keys = await _keys(window, parked)
            rows += [
                ParkedRow(
                    topic=place.topic,
                    partition=place.partition,
                    offset=record.offset,
                    key=keys.get(record.offset),
                    reason=record.reason.value,
                    deliveries=record.deliveries,
                    member_id=str(record.member_id),
                )
                for record in parked
            ]
        return rows

    async def headers(
        self, group: str, rows: Iterable[ParkedRow]
    ) -> dict[ParkedPlace, HeaderStarts]:
        """Read from Kafka for each of the rows; those of records that are gone are left out. Raises
        StateUnavailable.
        """
        isolation = isolation_of(self.offsets.windows.dependencies.settings.of(group))
        windows = {_place(it): it.partition for it in self.offsets.windows.of_group(group)}
        found: dict[ParkedPlace, HeaderStarts] = {}
        for row in rows:
            tp = windows.get((row.topic, row.partition))
            if tp is None:
                continue
            try:
                headers = await self.record_headers.of(Source(tp, isolation), row.offset)
            except UpstreamError as error:
                raise StateUnavailable(f"the headers cannot be read: {error}") from error
            if headers is not None:
                found[place_of(row)] = headers
        return found

    async def release(
        self,
        group: str,
        topic: str,
        partition: int,
        offsets: Sequence[int] | None,
        verb: OperatorVerb,
    ) -> list[int]:
        """Decides over parked records (None: all of the partition); all of them or none. Returns
        their offsets once the decision is stored.

        Raises GroupUnknown, PartitionUnknown, NotParked, InvalidOperation, StateUnavailable.
        """
        window = await self._window(group, topic, partition)
        if verb is OperatorVerb.DEAD_LETTER and not window.section.dead_letter_topic:
            raise InvalidOperation(f"group {group!r} has no dead_letter_topic")
        if verb is OperatorVerb.DEAD_LETTER and window.section.dead_letter_topic == topic:
            raise InvalidOperation(
                f"{topic} is the dead_letter_topic itself: not written there again"
            )
        # From here to `ask` nothing is awaited: the decision is about the records parked now.
        core = window.dispatcher
        if core is None:
            raise StateUnavailable(f"{topic}-{partition} is being loaded")
        parked = [record.offset for record in core.stats().parked]
        chosen = parked if offsets is None else sorted(set(offsets))
        missing = sorted(set(chosen) - set(parked))
        if missing:
            more = f" (and {len(missing) - 1} more)" if len(missing) > 1 else ""
            raise NotParked(f"{topic}-{partition}: offset {missing[0]} is not parked{more}")
        if not chosen:
            raise NotParked(f"{topic}-{partition}: nothing is parked")
        try:
            await window.ask(OperatorAct(verb, chosen, self.now_ms()))
        except WindowUnavailable as unavailable:
            raise StateUnavailable(f"{topic}-{partition}: {unavailable}") from unavailable
        log.info(
            "parked_released",
            group=group,
            topic=topic,
            partition=partition,
            action=verb.value,
            records=len(chosen),
            first=chosen[0],
            last=chosen[-1],
        )
        return chosen

    async def _windows(self, group: str) -> list[Window]:
        """All of the group, loaded or being loaded. Raises GroupUnknown, StateUnavailable."""
        await self.offsets.require(group)
        windows = self.offsets.windows
        stored = await self.offsets.stored(group)
        topics = await self.offsets.topics_by_id({key.topic_id for key in stored})
        for key in sorted(stored):
            topic = topics.get(key.topic_id)
            if topic is not None and key.partition in topic.partitions:
                windows.open(group, topic, key.partition)
        return windows.of_group(group)

    async def _window(self, group: str, topic: str, partition: int) -> Window:
        for window in await self._windows(group):
            if (window.partition.topic, window.partition.partition) == (topic, partition):
                await _loaded(window)
                return window
        raise PartitionUnknown(f"group {group!r} has nothing of {topic}-{partition}")


def _place(window: Window) -> tuple[str, int]:
    return window.partition.topic, window.partition.partition


async def _loaded(window: Window) -> None:
    """Raises StateUnavailable."""
    try:
        async with asyncio.timeout(WINDOW_LOAD_S_MAX):
            await window.loaded()
    except TimeoutError:
        place = f"{window.partition.topic}-{window.partition.partition}"
        raise StateUnavailable(f"{place} is not loaded: is Redis away, or upstream?") from None


async def _parked(window: Window) -> list[ParkedRecord]:
    await _loaded(window)
    core = window.dispatcher
    return [] if core is None else core.stats().parked


async def _keys(window: Window, parked: list[ParkedRecord]) -> dict[int, Key]:
    """Keys by offset. A window without members has not read its records: Kafka is asked."""
    keys = {record.offset: record.key for record in parked}
    unknown = [record.offset for record in parked if record.key is None]
    try:
        wanted = unknown[:PARKED_KEYS_READ_MAX]
        data = await window.bytes_for(wanted, len(wanted), NO_BYTES_MAX) if wanted else b""
        keys.update({record.offset: record.key for record in read_records(data)})
    except (RecordsGone, UpstreamError, WireError) as error:
        log.info("parked_keys_not_read", window=repr(window), reason=str(error))
    return keys
