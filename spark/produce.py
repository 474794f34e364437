"""The work of one Spark task: it writes the records of one partition, and the position behind
them, to the target.

The position is the end of the range that Spark has read, not the offset behind the last record:
markers and aborted records may stand between the two.

Exactly once: records and position are one Kafka transaction. The transactional id belongs to the
link and partition, so opening it fences the writer before and ends its open transaction;
then the position is read, and records before it, which an earlier attempt has committed, are not
written again. A task that is not the newest cannot commit.

At least once: records are flushed, then the position is committed. Records between the two are
written again after a crash; they are recognised by their origin in the target's log, and counted.

The task never sees rows as objects: columns of Arrow batches, and one loop around `produce`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import chain
from typing import Any, cast

import pyarrow
from confluent_kafka import (
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    Producer,
    TopicPartition,
)

from clusters.core.copies import COPY_HEADER, ORIGIN_AT, Claim, parse
from clusters.core.names import Translation, Unfit
from spark.core.survey import Position
from spark.limits import (
    ANSWER_S,
    POLL_EVERY_RECORDS,
    QUEUE_KBYTES,
    QUIET,
    RECORD_BYTES_MAX,
    REPEATS_SCANNED_MAX,
)

Place = tuple[str, int]  # topic as the source calls it, partition

RESULT_FIELDS = (
    ("topic", pyarrow.string()),
    ("partition", pyarrow.int32()),
    ("position", pyarrow.int64()),  # the next offset of the source to be copied
    ("copied", pyarrow.int64()),
    ("skipped", pyarrow.int64()),  # by flags
    ("already", pyarrow.int64()),  # copied by an earlier attempt
    ("repeats", pyarrow.int64()),  # written although the target has that origin
    ("doubts", pyarrow.int64()),  # copy headers that were not believed
    ("last_timestamp_ms", pyarrow.int64()),  # of the last record; -1: none
    ("refused", pyarrow.string()),  # null, or why the target refuses a record of this topic
)
Result = dict[str, Any]  # a row of RESULT_FIELDS
RESULT_SCHEMA = pyarrow.schema(RESULT_FIELDS)
RESULT_DDL = (
    "topic string, partition int, position bigint, copied bigint, skipped bigint, already bigint,"
    " repeats bigint, doubts bigint, last_timestamp_ms bigint, refused string"
)
# The record or topic is at fault, not the connection: trying again cannot help, and other topics
# are not concerned.
REFUSALS = frozenset(
    {
        KafkaError.MSG_SIZE_TOO_LARGE,
        KafkaError.INVALID_MSG,
        KafkaError.INVALID_MSG_SIZE,
        KafkaError.INVALID_RECORD,
        KafkaError.INVALID_TIMESTAMP,
        KafkaError.RECORD_LIST_TOO_LARGE,
        KafkaError.TOPIC_AUTHORIZATION_FAILED,
        KafkaError.POLICY_VIOLATION,
        KafkaError.TOPIC_EXCEPTION,
        KafkaError.UNKNOWN_TOPIC_OR_PART,
        KafkaError._UNKNOWN_TOPIC,
        KafkaError._UNKNOWN_PARTITION,
    }
)


class PositionMoved(Exception):
    """The position on the target is not the one this run has reached: somebody set it back, or the
    link has another target now.
    """


@dataclass(frozen=True, slots=True)
class Writing:
    """The orders of a task, pickled into it. `expected`: the positions this run has reached, by
    place; a place that is missing is taken up where its position on the target says.
    """

    group: str
    client: Mapping[str, str]  # settings of librdkafka, with credentials
    targets: Mapping[str, str]  # topic on the source: topic on the target
    topic_ids: Mapping[str, str]  # on the source; stored with the position
    expected: Mapping[Place, int]
    ends: Mapping[Place, int]  # of the ranges that Spark reads: the positions of finished tasks
    exactly_once: bool
    transaction_timeout_ms: int
    # Places of which this run has written nothing yet: a crash may have left unaccounted records.
    taken_up: frozenset[Place] = frozenset()
    generation: int = 0  # of the last switch of targets: a later one fences this task
    # Where transforms route: from names on the target to logical ones. None: no row is routed.
    routed: Translation | None = None


@dataclass(slots=True)
class _Tally:
    position: int = -1
    copied: int = 0
    skipped: int = 0
    already: int = 0
    repeats: int = 0
    doubts: int = 0
    last_timestamp_ms: int = -1


def copying(
    writing: Writing,
) -> Callable[[Iterable[pyarrow.RecordBatch]], Iterator[pyarrow.RecordBatch]]:
    """The function for `mapInArrow` over columns as spark/columns.py seals them. Each Spark
    partition must be one partition of a topic, in order, as the Kafka source makes them.
    """

    def copy(batches: Iterable[pyarrow.RecordBatch]) -> Iterator[pyarrow.RecordBatch]:
        rest = (batch for batch in batches if batch.num_rows)
        first = next(rest, None)
        if first is not None:
            topic, partition = (
                first.column("topic")[0].as_py(),
                first.column("partition")[0].as_py(),
            )
            row = _result(_Task(writing, topic, partition), chain([first], rest))
            yield pyarrow.RecordBatch.from_pylist([row], schema=RESULT_SCHEMA)

    return copy


def passed(writing: Writing, places: Iterable[Place]) -> list[Result]:
    """Moves the positions of places whose ranges held no record, as a task of each would do it. A
    task without rows does not know its partition, so the driver does this.
    """
    return [_result(_Task(writing, *place), iter(())) for place in places]


def places_of(results: Iterable[Result]) -> set[Place]:
    return {(it["topic"], it["partition"]) for it in results}


def _result(task: _Task, batches: Iterator[pyarrow.RecordBatch]) -> Result:
    tally, refused = task.run(batches)
    row = (
        task.topic,
        task.partition,
        tally.position,
        tally.copied,
        tally.skipped,
        tally.already,
        tally.repeats,
        tally.doubts,
        tally.last_timestamp_ms,
        refused,
    )
    return dict(zip(RESULT_SCHEMA.names, row, strict=True))


@dataclass(slots=True)
class _Task:
    writing: Writing
    topic: str
    partition: int
    failed: KafkaError | None = field(default=None, init=False)

    def run(self, batches: Iterator[pyarrow.RecordBatch]) -> tuple[_Tally, str | None]:
        """Returns the done work; after a refusal none, and the reason. Raises KafkaException for
        failures that Spark may try again.
        """
        write = self._exactly_once if self.writing.exactly_once else self._at_least_once
        tally = _Tally()
        try:
            write(batches, tally)
        except KafkaException as error:
            fault = self.failed if self.failed is not None else error.args[0]
            if fault.code() not in REFUSALS:
                raise
            near = f"{self.topic}-{self.partition}, before offset {tally.position}"
            return _Tally(position=-1), f"the target refuses a record of {near}: {fault.str()}"
        return tally, None

    @property
    def _target(self) -> str:
        return self.writing.targets[self.topic]

    @property
    def _end(self) -> int:
        return self.writing.ends.get((self.topic, self.partition), 0)

    def _exactly_once(self, batches: Iterator[pyarrow.RecordBatch], tally: _Tally) -> None:
        writing = self.writing
        producer = self._producer(
            {
                "transactional.id": f"{writing.group}-{self._target}-{self.partition}",
                "transaction.timeout.ms": writing.transaction_timeout_ms,
            }
        )
        producer.init_transactions(ANSWER_S)
        with positions_of(writing.client, writing.group) as consumer:
            since = self._since(consumer)
            producer.begin_transaction()
            try:
                self._produce(producer, batches, tally, since)
                tally.position = max(tally.position, self._end)
                if tally.position <= since:
                    producer.abort_transaction(ANSWER_S)
                    tally.position = since
                    return
                where = self._place(tally.position)
                metadata = consumer.consumer_group_metadata()
                producer.send_offsets_to_transaction([where], metadata, ANSWER_S)
                producer.commit_transaction(writing.transaction_timeout_ms / 1_000)
            except KafkaException:
                self._abort(producer)
                raise

    def _abort(self, producer: Producer) -> None:
        """As far as it can be: the next writer on this partition ends an open transaction."""
        try:
            producer.purge()
            producer.abort_transaction(ANSWER_S)
        except KafkaException:
            return

    def _at_least_once(self, batches: Iterator[pyarrow.RecordBatch], tally: _Tally) -> None:
        writing = self.writing
        producer = self._producer(
            {"enable.idempotence": "true", "delivery.timeout.ms": writing.transaction_timeout_ms}
        )
        with positions_of(writing.client, writing.group) as consumer:
            since = self._since(consumer)
            taken_up = since > 0 and (self.topic, self.partition) in writing.taken_up
            origins = self._origins_of_the_end() if taken_up else frozenset()
            self._produce(producer, batches, tally, since, origins)
            unsent = producer.flush(writing.transaction_timeout_ms / 1_000)
            if self.failed is not None or unsent:
                raise KafkaException(self.failed or KafkaError(KafkaError._MSG_TIMED_OUT))
            tally.position = max(tally.position, self._end)
            if tally.position > since:
                where = self._place(tally.position)
                consumer.commit(offsets=[where], asynchronous=False)
            else:
                tally.position = since

    def _since(self, consumer: Consumer) -> int:
        """The position on the target: records before it are there. 0 if there is none yet."""
        (found,) = consumer.committed([TopicPartition(self._target, self.partition)], ANSWER_S)
        if found.error is not None:
            raise KafkaException(found.error)
        position = max(found.offset, 0)
        if Position.of(position, found.metadata).generation > self.writing.generation:
            raise PositionMoved(
                f"{self.topic}-{self.partition}: the link was switched away from this target"
            )
        expected = self.writing.expected.get((self.topic, self.partition), 0)
        if position < expected:
            raise PositionMoved(
                f"{self.topic}-{self.partition}: the position on the target is {position}, this run"
                f" has reached {expected}"
            )
        return position

    def _place(self, position: int) -> TopicPartition:
        writing = self.writing
        told = Position(position, writing.topic_ids[self.topic], writing.generation).metadata
        return TopicPartition(self._target, self.partition, position, metadata=told)

    def _producer(self, settings: Mapping[str, Any]) -> Producer:
        def told(error: KafkaError | None, _message: object) -> None:
            if error is not None and self.failed is None:
                self.failed = error

        return Producer(
            {
                **self.writing.client,
                "message.max.bytes": RECORD_BYTES_MAX,  # the topic decides, not this client
                "queue.buffering.max.messages": 0,  # no bound by number, but by bytes
                "queue.buffering.max.kbytes": QUEUE_KBYTES,
                "linger.ms": 5,
                "delivery.report.only.error": True,
                "on_delivery": told,
                "log_level": QUIET,
                **settings,
            }
        )

    def _produce(
        self,
        producer: Producer,
        batches: Iterator[pyarrow.RecordBatch],
        tally: _Tally,
        since: int,
        origins: frozenset[bytes] = frozenset(),
    ) -> None:
        for batch in batches:
            offsets = batch.column("offset").to_numpy()
            done = int(offsets.searchsorted(since))
            tally.already += done
            if done < batch.num_rows:
                self._produce_batch(producer, batch.slice(done), tally, origins)
            producer.poll(0)
            if self.failed is not None:
                raise KafkaException(self.failed)

    def _produce_batch(
        self,
        producer: Producer,
        batch: pyarrow.RecordBatch,
        tally: _Tally,
        origins: frozenset[bytes],
    ) -> None:
        copies = listed(batch.column("copy"))
        topics = self._topics(batch)
        rows = zip(
            topics,
            listed(batch.column("key")),
            listed(batch.column("value")),
            listed(batch.column("timestamp_ms")),
            headers_of_rows(batch, copies),
            strict=True,
        )
        partition, produce = self.partition, producer.produce
        for at, (topic, key, value, timestamp_ms, headers) in enumerate(rows):
            if topic is None:
                continue
            while True:
                try:
                    produce(topic, value, key, partition, timestamp=timestamp_ms, headers=headers)
                    break
                except BufferError:
                    producer.poll(0.1)
                    if self.failed is not None:
                        raise KafkaException(self.failed) from None
            if at % POLL_EVERY_RECORDS == 0:
                producer.poll(0)
        skipped = topics.count(None)
        tally.position = batch.column("offset")[-1].as_py() + 1
        tally.skipped += skipped
        tally.copied += batch.num_rows - skipped
        tally.doubts += sum(listed(batch.column("doubts")))
        tally.last_timestamp_ms = batch.column("timestamp_ms")[-1].as_py()
        if origins:
            tally.repeats += sum(it is not None and origin_of(it) in origins for it in copies)

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
            return [target if it else None for it in copied]
        logical = listed(batch.column("logical_topic"))
        names = {it: routed.back(it) for it in set(logical) if it is not None}
        for it in names.values():
            if isinstance(it, Unfit):
                raise KafkaException(KafkaError(KafkaError.TOPIC_EXCEPTION, str(it)))
        return [str(names[it]) if one else None for it, one in zip(logical, copied, strict=True)]

    def _origins_of_the_end(self) -> frozenset[bytes]:
        """The origins of the target's last records, the ones a crash may have left unaccounted."""
        settings = {**self.writing.client, "group.id": self.writing.group}
        found = read_back(settings, self._target, self.partition, REPEATS_SCANNED_MAX)
        return frozenset(origin_of(header) for header in found)


def headers_of_rows(batch: pyarrow.RecordBatch, copies: list[bytes | None]) -> Iterator[Any]:
    """The headers of each row as confluent-kafka takes them: the record's own, in order, and ours.
    Made from the flattened columns: a Python list per row is made only where it is needed.
    """
    names, values = batch.column("header_names"), batch.column("header_values")
    flat = list(zip(listed(names.flatten()), listed(values.flatten()), strict=True))
    lengths = listed(names.value_lengths().fill_null(0))
    at = 0
    for length, copy in zip(lengths, copies, strict=True):
        headers = flat[at : at + length]
        if copy is not None:
            headers.append((COPY_HEADER, copy))
        yield headers
        at += length


def listed(column: pyarrow.Array) -> list[Any]:
    """The values as Python's own; null is None, and no integer may be null. `to_pylist` makes an
    object of Arrow's for every value first, which takes several times the CPU time.
    """
    values: list[Any] = column.to_numpy(zero_copy_only=False).tolist()
    return values


def origin_of(header: bytes) -> bytes:
    """The end of a well-formed copy header: topic id, partition, offset, cluster, topic."""
    return header[ORIGIN_AT:]


@contextmanager
def positions_of(client: Mapping[str, str], group: str) -> Iterator[Consumer]:
    """A consumer of `group` that never subscribes: it reads and commits positions."""
    consumer = Consumer(
        {**client, "group.id": group, "enable.auto.commit": False, "log_level": QUIET}
    )
    try:
        yield consumer
    finally:
        consumer.close()


def read_back(
    client: Mapping[str, str], topic: str, partition: int, records_max: int
) -> Iterator[bytes]:
    """The well-formed copy headers among the last `records_max` offsets of a partition."""
    with positions_of({**client, "enable.partition.eof": "true"}, client["group.id"]) as consumer:
        where = TopicPartition(topic, partition)
        low, high = consumer.get_watermark_offsets(where, ANSWER_S)
        consumer.assign([TopicPartition(topic, partition, max(low, high - records_max))])
        while True:
            message = consumer.poll(ANSWER_S)
            if message is None:
                raise KafkaException(KafkaError(KafkaError._TIMED_OUT))
            error = message.error()
            if error is not None:
                if error.code() == KafkaError._PARTITION_EOF:
                    return
                raise KafkaException(error)
            for name, value in headers_of(message):
                if name == COPY_HEADER and value is not None and isinstance(parse(value), Claim):
                    yield value


def headers_of(message: Message) -> list[tuple[str, bytes | None]]:
    """A record's headers, in order."""
    found = cast("list[tuple[str, bytes | None]] | None", message.headers())
    return found or []
