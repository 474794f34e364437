"""Parked records (policy `block`, rejected or exhausted ones): listed, and released by an operator.

A window need not be in memory: a window that only the store has is opened for the operator, and
leaves memory again when it has been idle.
"""

from __future__ import annotations

import asyncio
import sys
from bisect import bisect_right
from collections.abc import AsyncIterator, Callable, Iterable
from dataclasses import dataclass
from typing import Protocol

import structlog

from dispatcher.core.dispatcher import Dispatcher
from dispatcher.core.model import Key, OperatorAct, OperatorVerb, Reason
from dispatcher.core.reports.stats import ParkedRecord
from dispatcher.core.routing.glob import matches
from dispatcher.store.base import WindowKey
from gateway.core.reading.cache import RecordsGone, Source
from gateway.core.routing.ownership import Standing
from gateway.core.wire.errors import WireError
from gateway.core.wire.records import RecordStart, read_records
from gateway.operations.errors import (
    InvalidOperation,
    NobodyTakes,
    NotParked,
    OperationError,
    PartitionUnknown,
    StateUnavailable,
)
from gateway.operations.group_offsets import GroupOffsets
from gateway.operations.limits import (
    PARKED_AT_ONCE,
    PARKED_KEYS_READ_MAX,
    VALUE_BYTES_SHOWN,
    WINDOW_LOAD_S_MAX,
)
from gateway.reading.read_records import NO_BYTES_MAX
from gateway.upstream.errors import UpstreamError
from gateway.windows.failures import WindowUnavailable
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
    since_ms: int
    behind: int  # records of its key that wait for it


@dataclass(frozen=True, slots=True)
class Choice:
    """The parked records that an operator decides about; None: any. `offsets` are of one partition,
    and all of them must be parked. `key` is a glob over the bytes of the key.
    """

    topic: str | None = None
    partition: int | None = None
    offsets: tuple[int, ...] | None = None
    reason: Reason | None = None
    key: bytes | None = None

    def in_window(self, window: Window) -> bool:
        return self.at(*_place(window))

    def at(self, topic: str, partition: int) -> bool:
        return self.topic in (None, topic) and self.partition in (None, partition)


EVERYTHING = Choice()


@dataclass(frozen=True, slots=True)
class Decided:
    """What became of one partition's records. `failed`: why nothing was decided about them, or
    about some.
    """

    topic: str
    partition: int
    offsets: list[int]
    failed: str | None = None
    error: type[OperationError] = StateUnavailable  # that it would be alone


def place_of(row: ParkedRow) -> ParkedPlace:
    return row.topic, row.partition, row.offset


class RecordStartsView(Protocol):
    """gateway.reading.record_starts.RecordStarts"""

    async def of(
        self, source: Source, offset: int, *, value_bytes_max: int = 0
    ) -> RecordStart | None: ...


@dataclass(frozen=True, slots=True)
class ParkedRecords:
    offsets: GroupOffsets
    record_starts: RecordStartsView
    now_ms: Callable[[], int]

    async def rows(
        self,
        group: str,
        choice: Choice = EVERYTHING,
        *,
        after: ParkedPlace = ("", -1, -1),
        rows_max: int = sys.maxsize,
    ) -> list[ParkedRow]:
        """The first `rows_max` of the chosen records behind `after`, by topic, partition and
        offset. Raises GroupUnknown, StateUnavailable.
        """
        rows: list[ParkedRow] = []
        windows, _ = await self._windows(group)
        for window in sorted(windows, key=_place):
            place = _place(window)
            if not choice.in_window(window) or place < after[:2] or len(rows) >= rows_max:
                continue
            floor = after[2] if place == after[:2] else -1
            await _loaded(window)
            parked: list[ParkedRecord] = []
            async for portion in _parked(window, floor):
                parked += [one for one in portion if _may_be_chosen(one, choice)]
                if choice.key is None and len(parked) >= rows_max - len(rows):
                    break
            if choice.key is None:
                parked = parked[: rows_max - len(rows)]
            keys = await self._keys(window, parked)
            chosen = [record for record in parked if _is_chosen(record, choice, keys)]
            rows += [
                ParkedRow(
                    topic=place[0],
                    partition=place[1],
                    offset=record.offset,
                    key=keys.get(record.offset),
                    reason=record.reason.value,
                    deliveries=record.deliveries,
                    member_id=str(record.member_id),
                    since_ms=record.since_ms,
                    behind=record.behind,
                )
                for record in chosen[: rows_max - len(rows)]
            ]
        return rows

    async def starts(self, group: str, rows: Iterable[ParkedRow]) -> dict[ParkedPlace, RecordStart]:
        """Read from Kafka for each of the rows, without values; records that are gone are left out.
        Raises StateUnavailable.
        """
        windows = {
            _place(open_window): open_window for open_window in self.offsets.windows.of_group(group)
        }
        found: dict[ParkedPlace, RecordStart] = {}
        for row in rows:
            window = windows.get((row.topic, row.partition))
            start = None if window is None else await self._start(window, row.offset, 0)
            if start is not None:
                found[place_of(row)] = start
        return found

    async def value(self, group: str, place: ParkedPlace) -> RecordStart | None:
        """A parked record with the first VALUE_BYTES_SHOWN of its value; no other record is shown.
        None: the record is gone from the log. Raises GroupUnknown, NotParked, StateUnavailable.
        """
        topic, partition, offset = place
        rows = await self.rows(
            group, Choice(topic, partition), after=(topic, partition, offset - 1), rows_max=1
        )
        if not rows or place_of(rows[0]) != place:
            raise NotParked(f"{topic}-{partition}: offset {offset} is not parked")
        for window in self.offsets.windows.of_group(group):
            if _place(window) == (topic, partition):
                return await self._start(window, offset, VALUE_BYTES_SHOWN)
        return None

    async def _start(self, window: Window, offset: int, value_bytes_max: int) -> RecordStart | None:
        """Raises StateUnavailable."""
        try:
            return await self.record_starts.of(
                window.source, offset, value_bytes_max=value_bytes_max
            )
        except UpstreamError as error:
            raise StateUnavailable(f"the record cannot be read: {error}") from error

    async def release(self, group: str, choice: Choice, verb: OperatorVerb) -> list[Decided]:
        """Decides over the chosen records, partition by partition, PARKED_AT_ONCE at a time.
        Returns once the decisions are stored. A partition that fails does not hold up the others;
        one with parked records that no node can have now fails.

        Raises GroupUnknown, PartitionUnknown, NotParked, InvalidOperation; StateUnavailable or
        NobodyTakes if no partition could be decided about.
        """
        all_windows, nowhere = await self._windows(group)
        windows = [known for known in all_windows if choice.in_window(known)]
        nowhere = {key: topic for key, topic in nowhere.items() if choice.at(topic, key.partition)}
        if not windows and not nowhere and choice.partition is not None:
            raise PartitionUnknown(f"group {group!r} has nothing of {_named(choice)}")
        decided: list[Decided] = []
        for window in sorted(windows, key=_place):
            topic, partition = _place(window)
            try:
                decided += await self._release(window, choice, verb)
            except StateUnavailable as away:
                decided.append(Decided(topic, partition, [], str(away)))
        for key, count in (await self.offsets.counts(nowhere, ())).items():
            if count is not None and count.parked:
                why = "it moves to another node, or has no leader"
                decided.append(Decided(nowhere[key], key.partition, [], why))
        if not decided:
            raise NotParked(f"{_named(choice)}: {_nothing(choice)}")
        if all(decision.failed for decision in decided):
            raise decided[0].error(str(decided[0].failed))
        return decided

    async def _release(self, window: Window, choice: Choice, verb: OperatorVerb) -> list[Decided]:
        """Of one partition. Raises NotParked, InvalidOperation, StateUnavailable."""
        chosen = await self._chosen(window, choice)
        if not chosen:
            return []
        if verb is OperatorVerb.DEAD_LETTER:
            _require_dead_letters(window)
        done: list[int] = []
        again: set[int] = set()
        failed = ""
        for at in range(0, len(chosen), PARKED_AT_ONCE):
            # From here to `ask` nothing is awaited: the decision is about the records parked now.
            portion = _still_parked(window, chosen[at : at + PARKED_AT_ONCE])
            try:
                await window.ask(OperatorAct(verb, portion, self.now_ms()))
            except WindowUnavailable as unavailable:
                failed = f"{_text(window)}: {unavailable}"
                break
            done += portion
            if verb is OperatorVerb.RETRY:
                again.update(_parked_again(window, portion))
        if failed and not done:
            raise StateUnavailable(failed)
        log.info(
            "parked_released",
            group=window.key.group,
            topic=window.partition.topic,
            partition=window.partition.partition,
            action=verb.value,
            records=len(done),
            first=chosen[0],
            last=chosen[-1],
        )
        decided = _decided(window, done, again)
        if failed:
            decided.append(Decided(*_place(window), [], failed))
        return decided

    async def _chosen(self, window: Window, choice: Choice) -> list[int]:
        """The parked offsets that it means, ascending. Raises NotParked, StateUnavailable."""
        await _loaded(window)
        parked: list[ParkedRecord] = []
        if choice.offsets is None:
            async for portion in _parked(window):
                parked += [one for one in portion if _may_be_chosen(one, choice)]
        elif (core := _dispatcher(window)) is not None:
            parked = core.parked(sorted(set(choice.offsets)))
        keys = {} if choice.key is None else await self._keys(window, parked, sys.maxsize)
        chosen = [record.offset for record in parked if _is_chosen(record, choice, keys)]
        if window.dispatcher is None:
            raise StateUnavailable(f"{_text(window)} is being loaded")
        missing = sorted(set(choice.offsets or ()) - set(chosen))
        if missing:
            more = f" (and {len(missing) - 1} more)" if len(missing) > 1 else ""
            raise NotParked(f"{_text(window)}: offset {missing[0]} is not parked{more}")
        return chosen

    async def _keys(
        self, window: Window, parked: list[ParkedRecord], most: int = PARKED_KEYS_READ_MAX
    ) -> dict[int, Key]:
        """Keys by offset. A window without members has not read its records: Kafka is asked, for
        `most` of them.
        """
        records = self.offsets.windows.dependencies.records
        keys = {record.offset: record.key for record in parked}
        unknown = [record.offset for record in parked if record.key is None][:most]
        try:
            for at in range(0, len(unknown), PARKED_KEYS_READ_MAX):
                wanted = unknown[at : at + PARKED_KEYS_READ_MAX]
                data = await records.bytes_for(window.source, wanted, len(wanted), NO_BYTES_MAX)
                keys.update({record.offset: record.key for record in read_records(data)})
        except (RecordsGone, UpstreamError, WireError) as error:
            log.info("parked_keys_not_read", window=repr(window), reason=str(error))
        return keys

    async def _windows(self, group: str) -> tuple[list[Window], dict[WindowKey, str]]:
        """All windows of the group that this node has, loaded or being loaded; and the topics of
        those that neither this node nor another one can have now. Raises GroupUnknown,
        StateUnavailable.
        """
        await self.offsets.require(group)
        windows = self.offsets.windows
        stored = await self.offsets.stored(group)
        topics = await self.offsets.topics_by_id({key.topic_id for key in stored})
        owners = windows.dependencies.owners
        nowhere: dict[WindowKey, str] = {}
        for key in sorted(stored):
            topic = topics.get(key.topic_id)
            if topic is not None and key.partition in topic.partitions:
                windows.open(group, topic, key.partition)
                leader = topic.partitions[key.partition].virtual_leader
                elsewhere = owners.standing(leader) is Standing.ELSEWHERE
                if windows.find(key) is None and not (elsewhere and leader in owners.endpoints()):
                    nowhere[key] = topic.name
        return windows.of_group(group), nowhere


def _place(window: Window) -> tuple[str, int]:
    return window.partition.topic, window.partition.partition


def _dispatcher(window: Window) -> Dispatcher | None:
    """None: the window is not up, or parks nothing, as that of an unreliable group."""
    core = window.dispatcher
    return core if isinstance(core, Dispatcher) else None


def _still_parked(window: Window, offsets: list[int]) -> list[int]:
    core = _dispatcher(window)
    return offsets if core is None else [record.offset for record in core.parked(offsets)]


def _parked_again(window: Window, offsets: list[int]) -> list[int]:
    """Records that an operator has sent out, and that nobody takes."""
    core = _dispatcher(window)
    parked = [] if core is None else core.parked(offsets)
    return [record.offset for record in parked if record.reason is Reason.OPERATOR]


def _decided(window: Window, chosen: list[int], again: set[int]) -> list[Decided]:
    topic, partition = _place(window)
    done = [offset for offset in chosen if offset not in again]
    found = [Decided(topic, partition, done)] if done else []
    if left := len(chosen) - len(done):
        records = "a record stays" if left == 1 else f"{left} records stay"
        why = f"{records} parked: no member that is there accepts the key"
        found.append(Decided(topic, partition, [], why, NobodyTakes))
    return found


def _text(window: Window) -> str:
    return f"{window.partition.topic}-{window.partition.partition}"


def _named(choice: Choice) -> str:
    """The part of the group that is asked for, as errors name it."""
    topic = "the group" if choice.topic is None else choice.topic
    return topic if choice.partition is None else f"{topic}-{choice.partition}"


def _nothing(choice: Choice) -> str:
    filtered = choice.reason is not None or choice.key is not None
    return "no parked record matches" if filtered else "nothing is parked"


def _may_be_chosen(record: ParkedRecord, choice: Choice) -> bool:
    """Whether it depends on its key alone."""
    return choice.reason is None or record.reason is choice.reason


def _is_chosen(record: ParkedRecord, choice: Choice, keys: dict[int, Key]) -> bool:
    if not _may_be_chosen(record, choice):
        return False
    if choice.key is None:
        return True
    key = keys.get(record.offset)
    return key is not None and matches(choice.key, key)


def _require_dead_letters(window: Window) -> None:
    """Raises InvalidOperation."""
    topic = window.section.dead_letter_topic
    if not topic:
        raise InvalidOperation(f"group {window.key.group!r} has no dead_letter_topic")
    if topic == window.partition.topic:
        raise InvalidOperation(f"{topic} is the dead_letter_topic itself: not written there again")


async def _loaded(window: Window) -> None:
    """Raises StateUnavailable."""
    try:
        async with asyncio.timeout(WINDOW_LOAD_S_MAX):
            await window.loaded()
    except TimeoutError:
        raise StateUnavailable(
            f"{_text(window)} is not loaded: is Redis away, or upstream?"
        ) from None


async def _parked(window: Window, floor: int = -1) -> AsyncIterator[list[ParkedRecord]]:
    """Those behind `floor`, PARKED_AT_ONCE in each turn of the event loop."""
    core = _dispatcher(window)
    offsets = [] if core is None else core.parked_offsets()
    for at in range(bisect_right(offsets, floor), len(offsets), PARKED_AT_ONCE):
        core = _dispatcher(window)
        if core is None:
            return
        yield core.parked(offsets[at : at + PARKED_AT_ONCE])
        await asyncio.sleep(0)
