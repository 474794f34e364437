"""Dead letters: records that ran out of attempts, written to the group's dead letter topic.

The record goes as it was: key, value, headers (all, in order, repeated names too), timestamp. Its
place and the reason are in further headers behind its own. A key is released only after its dead
letter is durable, so every record gets an answer of its own: written by all in-sync replicas, or
not. The form of letters to a queue that Kafka's configs name is Kafka's (queue_letters.py).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING

from dispatcher.core.steps import WriteDeadLetters
from gateway.core.cluster.topology import TopicPartition
from gateway.core.health_lines import first_named
from gateway.core.reading.cache import (
    RecordsGone,
    RecordsLarge,
    RecordsReplaced,
    Source,
    epoch_max_of,
)
from gateway.core.share.dead_letter_queue import DeadLetterQueue, letter
from gateway.core.wire.errors import ErrorCode, error_name
from gateway.core.wire.records import Header, Record, read_records
from gateway.group_log import GroupLog
from gateway.reading.limits import (
    DEAD_LETTER_PART_BYTES_MAX,
    DEAD_LETTER_PARTS_MAX,
    DEAD_LETTERS_AT_ONCE,
    FAILED_GROUPS_MAX,
    LETTERS_NAMED,
    LETTERS_TOLD_MS,
)
from gateway.reading.queue_letters import write_to_queue
from gateway.reading.read_records import NO_BYTES_MAX, ReadRecords
from gateway.upstream.cluster import Upstream
from gateway.upstream.errors import Unreachable, UpstreamError

if TYPE_CHECKING:
    from gateway.reading.letter_producer import LetterProducer


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """One record and why it ends here. `attempts` counts deliveries; `member` had the last one."""

    record: Record
    tp: TopicPartition
    group: str
    attempts: int
    reason: str
    member: str

    def headers(self) -> list[Header]:
        origin = {
            "keyway.dlq.topic": self.tp.topic,
            "keyway.dlq.partition": str(self.tp.partition),
            "keyway.dlq.offset": str(self.record.offset),
            "keyway.dlq.group": self.group,
            "keyway.dlq.attempts": str(self.attempts),
            "keyway.dlq.reason": self.reason,
            "keyway.dlq.member": self.member,
        }
        if self.record.key is None and self.record.value is None:
            # The producer library sends no record that has neither; it goes with an empty value.
            origin["keyway.dlq.null_value"] = "true"
        return [*self.record.headers, *((name, text.encode()) for name, text in origin.items())]


OWN_TOPIC = "the records come from that very topic"


class DeadLetters:
    """The producer starts with the first dead letter; `close` stops it."""

    def __init__(
        self,
        upstream: Upstream,
        records: ReadRecords,
        group_log: GroupLog,
        now_ms: Callable[[], int],
    ) -> None:
        self._upstream = upstream
        self._records = records
        self._group_log = group_log
        self._now_ms = now_ms
        self._producer: LetterProducer | None = None
        self._changing = asyncio.Lock()
        self._parts = asyncio.Semaphore(DEAD_LETTER_PARTS_MAX)
        self._slots = list(range(DEAD_LETTER_PARTS_MAX))  # of parts that are not under way
        self._closed = False
        self._troubles: dict[str, str] = {}  # by topic that did not take its last letters
        # The last failure of each group, and when: by group and topic, the latest last.
        self._failed: dict[tuple[str, str], tuple[str, int]] = {}

    def trouble(self, origin: str, topic: str) -> str | None:
        """Why the last letters from `origin` for `topic` were not written; None if they were."""
        return OWN_TOPIC if origin == topic else self._troubles.get(topic)

    def warnings(self) -> list[str]:
        """Lines of /health: the groups whose letters are tried again and again; of many, the first
        by name and their number.
        """
        since_ms = self._now_ms() - LETTERS_TOLD_MS
        failed = {place: why for place, (why, at_ms) in self._failed.items() if at_ms > since_ms}
        places = sorted(failed)
        lines = (
            f"group {group!r}: dead letters to topic {topic!r} are not written, and their keys"
            f" wait: {failed[group, topic]}"
            for group, topic in places
        )
        return first_named(lines, len(places), LETTERS_NAMED, "nor are those of {} more groups")

    async def write_offsets(
        self,
        group: str,
        source: Source,
        topic: str,
        effect: WriteDeadLetters,
        queue: DeadLetterQueue | None = None,
    ) -> list[bool | None]:
        """Reads these records and writes them to `topic`: one answer per offset, true = durable,
        None = the log has lost the record, so there is no letter. With `queue`, `topic` is Kafka's
        dead letter queue of the group.

        None is written to the topic it comes from: the group that rejects it would get it for ever.
        Raises RecordsReplaced, when all others are written.
        """
        if topic == source.tp.topic:
            self._note(group, topic, len(effect.offsets), OWN_TOPIC)
            return [False] * len(effect.offsets)
        durable: list[bool | None] = []
        replaced = False
        while (at := len(durable)) < len(effect.offsets):
            stop = at + DEAD_LETTERS_AT_ONCE
            part = WriteDeadLetters(
                effect.offsets[at:stop],
                effect.deliveries[at:stop],
                effect.reasons[at:stop],
                effect.members[at:stop],
                effect.epoch,
            )
            try:
                durable += await self._write_some(group, source, topic, part, queue)
            except RecordsReplaced:
                replaced = True
                durable += [False] * len(part.offsets)
        if replaced:
            raise RecordsReplaced(durable)
        return durable

    async def _write_some(
        self,
        group: str,
        source: Source,
        topic: str,
        part: WriteDeadLetters,
        queue: DeadLetterQueue | None,
    ) -> Sequence[bool | None]:
        async with self._parts:
            if queue is None:
                return await self._write_part(group, source, topic, part)
            slot = self._slots.pop()
            try:
                return await self._write_to_queue(group, source, queue, part, slot)
            finally:
                self._slots.append(slot)

    async def _write_to_queue(
        self, group: str, source: Source, queue: DeadLetterQueue, part: WriteDeadLetters, slot: int
    ) -> list[bool]:
        """As `_write_part`. Of a record that is no longer in the log the letter has the place."""
        found: dict[int, Record] = {}
        count = len(part.offsets)
        if self._closed:
            return [False] * count
        try:
            if queue.copies:
                found, count = await self._found(group, source, part)
        except UpstreamError as error:
            self._not_written(group, queue.topic, count, str(error))
            return [False] * count
        now_ms = self._now_ms()
        letters = [
            letter(source.tp, group, offset, deliveries, reason, found.get(offset), now_ms)
            for offset, deliveries, reason in zip(
                part.offsets[:count], part.deliveries, part.reasons, strict=False
            )
        ]
        outcomes = await write_to_queue(
            self._upstream, queue.topic, source.tp.partition, letters, slot
        )
        failures = [reason for reason in outcomes if reason is not None]
        if failures:
            self._not_written(group, queue.topic, len(failures), failures[0])
        else:
            self._written(group, queue.topic)
        return [reason is None for reason in outcomes]

    async def _write_part(
        self, group: str, source: Source, topic: str, part: WriteDeadLetters
    ) -> Sequence[bool | None]:
        """The answers for the first letters: for as many as could be read at once."""
        if self._closed:
            return [False] * len(part.offsets)
        try:
            found, count = await self._found(group, source, part)
        except UpstreamError as error:
            self._not_written(group, topic, len(part.offsets), str(error))
            return [False] * len(part.offsets)
        letters = [
            DeadLetter(found[offset], source.tp, group, attempts, reason.value, member)
            for offset, attempts, reason, member in zip(
                part.offsets, part.deliveries, part.reasons, part.members, strict=True
            )
            if offset in found
        ]
        results = await self.write(topic, letters)
        written = {letter.record.offset: ok for letter, ok in zip(letters, results, strict=True)}
        return [written.get(offset) for offset in part.offsets[:count]]

    async def _found(
        self, group: str, source: Source, part: WriteDeadLetters
    ) -> tuple[dict[int, Record], int]:
        """The records of the first `count` offsets that still exist, and that count: fewer offsets
        than were asked for if their records are large. Raises RecordsReplaced, UpstreamError.
        """
        offsets = part.offsets
        wanted, count = offsets, len(offsets)
        epoch_max = epoch_max_of(part.epoch)
        while wanted:
            bytes_max = DEAD_LETTER_PART_BYTES_MAX if len(wanted) > 1 else NO_BYTES_MAX
            try:
                data = await self._records.bytes_for(
                    source, wanted, len(wanted), bytes_max, epoch_max
                )
            except RecordsLarge as large:
                wanted = wanted[: max(1, large.fitting)]
                count = offsets.index(wanted[-1]) + 1
            except RecordsGone as gone:
                place = {"topic": source.tp.topic, "partition": source.tp.partition}
                gone_at = gone.offsets[0]
                self._group_log.note(
                    group, "dead_letters_gone", len(gone.offsets), **place, offset=gone_at
                )
                lost = set(gone.offsets)
                wanted = [offset for offset in wanted if offset not in lost]
            else:
                return {record.offset: record for record in read_records(data)}, count
        return {}, count

    async def write(self, topic: str, letters: Sequence[DeadLetter]) -> list[bool]:
        """One answer per letter, true = on all in-sync replicas. Raises nothing of Kafka's."""
        if not letters:
            return []
        group = letters[0].group
        try:
            known = (await self._upstream.refresh([topic])).topics.get(topic)
            # None: a window that had watched it too has closed meanwhile.
            error_code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if known is None else known.error
            if error_code:
                reason = f"the topic: {error_name(error_code)}"
                self._not_written(group, topic, len(letters), reason)
                return [False] * len(letters)
            producer = await self._started()
        except UpstreamError as error:
            self._not_written(group, topic, len(letters), str(error))
            return [False] * len(letters)
        outcomes = await asyncio.gather(
            *(producer.send(topic, letter.record, letter.headers()) for letter in letters)
        )
        failures = [reason for reason in outcomes if reason is not None]
        if failures:
            self._not_written(group, topic, len(failures), failures[0])
            # It may be fenced, hold letters that would be written a second time later, or have
            # lost its place: aiokafka counts a record that was refused as too large as sent, and
            # every later one of that partition is out of order.
            await self._drop(producer)
        else:
            self._written(group, topic)
        return [reason is None for reason in outcomes]

    def _not_written(self, group: str, topic: str, count: int, reason: str) -> None:
        self._troubles[topic] = reason
        self._note(group, topic, count, reason)

    def _written(self, group: str, topic: str) -> None:
        self._troubles.pop(topic, None)
        self._failed.pop((group, topic), None)

    def _note(self, group: str, topic: str, count: int, reason: str) -> None:
        self._failed.pop((group, topic), None)
        self._failed[group, topic] = reason, self._now_ms()
        if len(self._failed) > FAILED_GROUPS_MAX:
            del self._failed[next(iter(self._failed))]
        self._group_log.note(group, "dead_letters_not_written", count, topic=topic, reason=reason)

    async def _started(self) -> LetterProducer:
        """Raises UpstreamError."""
        async with self._changing:
            if self._closed:
                raise Unreachable("the node stops")
            if self._producer is None:
                # In a thread: it takes 200 ms, and others are served meanwhile.
                await asyncio.to_thread(import_module, "gateway.reading.letter_producer")
                from gateway.reading.letter_producer import LetterProducer

                self._producer = await LetterProducer.started(self._upstream.settings)
            return self._producer

    async def _drop(self, producer: LetterProducer) -> None:
        async with self._changing:
            if self._producer is producer:
                await self._stop_producer()

    async def close(self) -> None:
        """No letter is begun any more: each would make the node's stop longer."""
        self._closed = True
        async with self._changing:
            await self._stop_producer()

    async def _stop_producer(self) -> None:
        producer, self._producer = self._producer, None
        if producer is not None:
            await producer.stop()
