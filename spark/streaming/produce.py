"""The work of one Spark task: it writes the records of one partition, and the position behind
them, to the target.

The position is the end of the range that Spark has read, not the offset behind the last record:
markers and aborted records may stand between the two. That holds only if Spark has read all of it
(whole_input.py).

Exactly once: records and position are one Kafka transaction, and a task makes several of them, each
with the position behind its records. The transactional id belongs to the link and partition, so
opening it fences the writer before and ends its open transaction; then the position is read, and
records before it, which an earlier attempt has committed, are not written again. A task that is not
the newest cannot commit.

At least once: records are flushed, then the position is committed. Records between the two are
written again after a crash; they are recognised by their origin in the target's log, and counted.

A record that the target refuses is found by sending the records of its transaction one by one; what
is before it is committed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from itertools import chain
from time import monotonic
from typing import Any

import pyarrow
from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from keyway.clusters.core.names import Unfit
from spark.streaming.careful import sent_singly
from spark.streaming.core.limits import BATCH_S_MAX
from spark.streaming.core.survey import UNKNOWN_EPOCH, Position
from spark.streaming.kafka import committing, position_of
from spark.streaming.limits import (
    ANSWER_S,
    CAREFUL_RECORDS,
    PIECE_BYTES,
    POLL_EVERY_RECORDS,
    PROBE_S,
    REPEATS_SCANNED_MAX,
)
from spark.streaming.orders import (
    RECORD_REFUSALS,
    REFUSALS,
    RESULT_SCHEMA,
    Partition,
    Result,
    Settings,
    Taking,
    Tally,
    Writing,
)
from spark.streaming.read_back import read_back
from spark.streaming.rows import headers_of_rows, listed, origin_of, pieces_of
from spark.streaming.whole_input import require_whole
from spark.streaming.writers import Kept, Writer
from spark.streaming.zips import not_read_again

Prepared = Callable[[Iterable[pyarrow.RecordBatch]], Iterator[pyarrow.RecordBatch]]

KEPT = Kept()  # of this process, which runs one task after the other


class PositionMoved(Exception):
    """The position on the target is not the one this run has reached: somebody set it back, another
    process has written, or the link has another target now.
    """


class _Refused(Exception):
    """Why the topic stops."""


def copying(writing: Writing, prepared: Prepared = iter) -> Prepared:
    """The function for `mapInArrow`. Each Spark partition must be one partition of a topic, in
    order, as the Kafka source makes them. `prepared` gives its batches the columns that
    spark/links/sealing.py seals.
    """
    # A function inside this one would be pickled with all that it names, so with a KEPT of its own.
    return partial(_copied, writing, prepared)


def _copied(
    writing: Writing, prepared: Prepared, batches: Iterable[pyarrow.RecordBatch]
) -> Iterator[pyarrow.RecordBatch]:
    rest = (batch for batch in prepared(batches) if batch.num_rows)
    first = next(rest, None)
    if first is not None:
        topic, partition = first.column("topic")[0].as_py(), first.column("partition")[0].as_py()
        row = _result(_Task(writing, topic, partition, KEPT), chain([first], rest))
        yield pyarrow.RecordBatch.from_pylist([row], schema=RESULT_SCHEMA)
    not_read_again()


def passed(writing: Writing, places: Iterable[Partition]) -> list[Result]:
    """Moves the positions of places whose ranges held no record, as a task of each would do it. A
    task without rows does not know its partition, so the driver does this.
    """
    kept = Kept()  # links of one process do not share theirs
    try:
        return [_result(_Task(writing, *place, kept), iter(())) for place in places]
    finally:
        kept.close()


def places_of(results: Iterable[Result]) -> set[Partition]:
    return {(result["topic"], result["partition"]) for result in results}


def _result(task: _Task, batches: Iterator[pyarrow.RecordBatch]) -> Result:
    tally, refused = task.run(batches)
    return {
        "topic": task.topic,
        "partition": task.partition,
        **{name: getattr(tally, name) for name in Tally.__slots__},
        "refused": refused,
    }


@dataclass(slots=True)
class _Open:
    """The transaction under way."""

    pieces: list[pyarrow.RecordBatch] = field(default_factory=list)
    bytes: int = 0
    began_s: float = 0.0


@dataclass(slots=True)
class _Task:
    writing: Writing
    topic: str
    partition: int
    kept: Kept
    consumer: Consumer = field(init=False)
    writer: Writer = field(init=False)
    tally: Tally = field(default_factory=Tally, init=False)
    origins: frozenset[bytes] = field(default=frozenset(), init=False)

    def run(self, batches: Iterator[pyarrow.RecordBatch]) -> tuple[Tally, str | None]:
        """Returns the done work, and a reason if the target refuses more. Raises KafkaException for
        failures that Spark may try again.
        """
        try:
            self._write(batches)
        except _Refused as refused:
            return self.tally, str(refused)
        except KafkaException as error:
            if error.args[0].code() not in REFUSALS:
                raise
            return self.tally, self._reason(self.tally.position, error.args[0])
        return self.tally, None

    @property
    def _place(self) -> Partition:
        return self.topic, self.partition

    @property
    def _target(self) -> str:
        return self.writing.targets[self.topic]

    def _reason(self, offset: int, error: KafkaError) -> str:
        near = f"{self.topic}-{self.partition}, offset {offset}"
        return f"the target refuses a record of {near}: {error.str()}"

    # ----------------------------------------------------------------------------- the transactions

    def _write(self, batches: Iterator[pyarrow.RecordBatch]) -> None:
        since = self.tally.position = self._opened()
        taken_up = since > 0 and self._place in self.writing.taken_up
        if taken_up and not self.writing.exactly_once:
            self.origins = self._origins_of_the_end()
        began_s, transaction = monotonic(), _Open()
        try:
            for batch in batches:
                for piece in self._new_pieces(batch, since):
                    full = self._add(transaction, piece)
                    late = monotonic() - began_s >= BATCH_S_MAX
                    if full and (late or self.tally.bytes >= self.writing.task_bytes_max):
                        self.kept.leave(self.writer)
                        return
            require_whole()
            self._end(transaction)
        except BaseException:
            self.writer.close()
            raise
        self.kept.leave(self.writer)

    def _new_pieces(self, batch: pyarrow.RecordBatch, since: int) -> Iterator[pyarrow.RecordBatch]:
        done = int(batch.column("offset").to_numpy().searchsorted(since))
        self.tally.already += done
        if done < batch.num_rows:
            yield from pieces_of(batch.slice(done), min(PIECE_BYTES, self.writer.pace.bytes_max))

    def _add(self, transaction: _Open, piece: pyarrow.RecordBatch) -> bool:
        """Whether the record filled the transaction, which is committed then."""
        if not transaction.pieces:
            transaction.began_s = monotonic()
            self.writer.begin()
        transaction.pieces.append(piece)
        transaction.bytes += piece.nbytes
        try:
            self._produce(piece)
            seconds = monotonic() - transaction.began_s
            full = self.writer.pace.full(transaction.bytes, seconds)
            if full:
                self._commit(transaction, _end_of(piece))
        except KafkaException as error:
            self._carefully(transaction, error)
            return True
        return full

    def _end(self, transaction: _Open) -> None:
        """The range ends where its last record is, or behind that."""
        last = _end_of(transaction.pieces[-1]) if transaction.pieces else self.tally.position
        end = max(last, self.writing.ends.get(self._place, 0))
        if end == self.tally.position and not self.writing.again:
            return
        if not transaction.pieces:
            self.writer.begin()
        try:
            self._commit(transaction, end)
        except KafkaException as error:
            self._carefully(transaction, error)
            self._end(transaction)

    def _commit(self, transaction: _Open, position: int) -> None:
        self.writer.commit(self.consumer, self._at(position))
        seconds = monotonic() - transaction.began_s
        self.writer.pace.committed(transaction.bytes, seconds)
        for piece in transaction.pieces:
            self._count(piece)
        self.tally.position = position
        transaction.pieces.clear()
        transaction.bytes = 0

    def _count(self, piece: pyarrow.RecordBatch, refused: Mapping[int, KafkaError] = {}) -> None:
        tally = self.tally
        written = piece.num_rows - self._topics(piece).count(None)
        tally.skipped += piece.num_rows - written
        tally.copied += written - len(refused)
        tally.left_out += len(refused)
        if refused:
            tally.last_left_out = f"offset {max(refused)}: {refused[max(refused)].str()}"
        tally.doubts += sum(listed(piece.column("doubts")))
        tally.last_timestamp_ms = piece.column("timestamp_ms")[-1].as_py()
        tally.bytes += piece.nbytes
        if self.origins:
            copies = listed(piece.column("copy"))
            tally.repeats += sum(
                copy is not None and origin_of(copy) in self.origins for copy in copies
            )

    # ---------------------------------------------------------------------------- the position

    def _opened(self) -> int:
        """Opens consumer and writer; returns the position, before which all records are there."""
        writing = self.writing
        self.consumer = self.kept.consumer(writing.client, writing.group)
        found = self.kept.taken(self._settings(), self._name, self._timeout_s)
        if found is not None and found.failed is None and self._stands_at(found.position):
            self.writer, position = found, found.position
        else:
            self.writer = self._new_writer()
            if found is not None and found.failed is None:
                self.writer.pace = found.pace  # another worker wrote since; the target is the same
            position = self._since(ANSWER_S)
        expected = writing.expected.get(self._place, 0)
        if position < expected:
            raise _moved(self._place, position, expected)
        return position

    @property
    def _name(self) -> str:
        """The transactional id, too."""
        return f"{self.writing.group}-{self._target}-{self.partition}"

    @property
    def _timeout_s(self) -> float:
        return self.writing.transaction_timeout_ms / 1_000

    def _settings(self, *, careful: bool = False) -> Settings:
        taking = self.writing.taking.get(self.topic, Taking())
        return {**self.writing.client, **taking.settings(careful=careful)}

    def _new_writer(self, *, careful: bool = False) -> Writer:
        return Writer(
            self._settings(careful=careful),
            self._name,
            self._target,
            self._timeout_s,
            exactly_once=self.writing.exactly_once,
        )

    def _stands_at(self, position: int) -> bool:
        """No proof is needed: without one the writer is opened anew."""
        try:
            return self._since(PROBE_S) == position
        except KafkaException:
            return False

    def _since(self, within_s: float) -> int:
        """The position on the target; 0 if there is none yet."""
        (found,) = self.consumer.committed([TopicPartition(self._target, self.partition)], within_s)
        if found.error is not None:
            raise KafkaException(found.error)
        position = position_of(found)
        if position.generation > self.writing.generation:
            raise PositionMoved(
                f"{self.topic}-{self.partition}: the link was switched away from this target"
            )
        return max(position.offset, 0)

    def _at(self, position: int) -> TopicPartition:
        writing = self.writing
        epoch = writing.epochs.get(self._place, UNKNOWN_EPOCH)
        told = Position(position, writing.topic_ids[self.topic], writing.generation, epoch)
        return committing((self._target, self.partition), told)

    def _origins_of_the_end(self) -> frozenset[bytes]:
        """The origins of the target's last records, the ones a crash may have left unaccounted."""
        settings = {**self.writing.client, "group.id": self.writing.group}
        found = read_back(settings, self._target, self.partition, REPEATS_SCANNED_MAX)
        return frozenset(origin_of(header) for header in found)

    # ----------------------------------------------------------------------------- the records

    def _produce(self, piece: pyarrow.RecordBatch) -> None:
        writer, partition, end_s = self.writer, self.partition, monotonic() + self._timeout_s
        produce, poll = writer.producer.produce, writer.producer.poll
        for at, (topic, key, value, timestamp_ms, headers) in enumerate(self._rows(piece)):
            if topic is None:
                continue
            while True:
                try:
                    produce(topic, value, key, partition, timestamp=timestamp_ms, headers=headers)
                    break
                except BufferError:
                    if monotonic() > end_s:
                        raise KafkaException(KafkaError(KafkaError._QUEUE_FULL)) from None
                    poll(0.1)
                    writer.check()
            if at % POLL_EVERY_RECORDS == 0:
                poll(0)
        writer.check()

    def _rows(self, piece: pyarrow.RecordBatch) -> Iterator[tuple[Any, ...]]:
        """Topic, key, value, timestamp, headers."""
        return zip(
            self._topics(piece),
            listed(piece.column("key")),
            listed(piece.column("value")),
            listed(piece.column("timestamp_ms")),
            headers_of_rows(piece, listed(piece.column("copy"))),
            strict=True,
        )

    def _topics(self, batch: pyarrow.RecordBatch) -> list[str | None]:
        """The target's topic of each row, None: it is not written. A pipeline that runs on its own
        names it in the column `to`; a link writes the records that have a copy header.
        """
        if "to" in batch.schema.names:
            return listed(batch.column("to"))
        copied = listed(batch.column("copy").is_valid())
        routed = self.writing.routed
        if routed is None:
            target = self._target
            return [target if is_copied else None for is_copied in copied]
        logical = listed(batch.column("logical_topic"))
        names = {name: routed.back(name) for name in set(logical) if name is not None}
        for there in names.values():
            if isinstance(there, Unfit):
                raise KafkaException(KafkaError(KafkaError.TOPIC_EXCEPTION, str(there)))
        return [
            str(names[topic]) if is_copied else None
            for topic, is_copied in zip(logical, copied, strict=True)
        ]

    # ------------------------------------------------------------------- records that are refused

    def _carefully(self, transaction: _Open, error: KafkaException) -> None:
        """Writes the transaction's records once more, each on its own, if it failed because of one
        of them. Raises any other failure, and _Refused.
        """
        fault = self.writer.failed or error.args[0]
        if fault.code() not in RECORD_REFUSALS:
            raise KafkaException(fault) from error
        self.writer.close()
        for piece in transaction.pieces:
            for at in range(0, piece.num_rows, CAREFUL_RECORDS):
                self._one_by_one(piece.slice(at, CAREFUL_RECORDS))
        transaction.pieces.clear()
        transaction.bytes = 0
        self._open_again(careful=False)

    def _open_again(self, *, careful: bool) -> None:
        """Opening the id takes it from the newest task, so the position must be read behind that:
        another process may have gone on with the records since this one read it last.
        """
        self.writer = self._new_writer(careful=careful)
        if (position := self._since(ANSWER_S)) != self.tally.position:
            raise _moved(self._place, position, self.tally.position)

    def _one_by_one(self, piece: pyarrow.RecordBatch) -> None:
        """Commits the piece up to the first record that is refused, or as the policy says: without
        such records, or with these among the dead letters.
        """
        refused: dict[int, KafkaError] = {}
        stops = ""
        while piece.num_rows:
            self._open_again(careful=True)
            self.writer.begin()
            rows = zip(listed(piece.column("offset")), self._rows(piece), strict=True)
            found = sent_singly(self.writer, self.writing, self._place, rows, refused)
            if not found:
                self.writer.commit(self.consumer, self._at(_end_of(piece)))
                self._count(piece, refused)
                self.tally.position = _end_of(piece)
                break
            self.writer.close()
            first = min(found)
            lasting = self.writing.on_refused == "stop" or first in refused
            if lasting or found[first].code() not in RECORD_REFUSALS:
                stops = self._reason(first, found[first])
                before = int(piece.column("offset").to_numpy().searchsorted(first))
                piece = piece.slice(0, before)
                refused = {offset: error for offset, error in refused.items() if offset < first}
            else:  # a fault of the topic is none of the record that met it
                refused |= {
                    offset: error
                    for offset, error in found.items()
                    if error.code() in RECORD_REFUSALS
                }
        if stops:
            raise _Refused(stops)


def _end_of(piece: pyarrow.RecordBatch) -> int:
    return int(piece.column("offset")[-1].as_py()) + 1


def _moved(place: Partition, position: int, reached: int) -> PositionMoved:
    told = f"the position on the target is {position}, this run has reached {reached}"
    return PositionMoved(f"{place[0]}-{place[1]}: {told}")
