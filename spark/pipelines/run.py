"""A pipeline that runs on its own: topic to topics, exactly once, until it is stopped.

Spark reads; one task per partition of the source transforms its records and writes them with the
producer that message distribution uses (spark/streaming/produce.py): records and the position
behind them are one Kafka transaction on the target. The position is the committed offset of the
group `keyway-pipeline-NAME`, on the source's topic if both are one cluster, so that tools show the
pipeline's lag; else, on the target, on the target's topic. Spark's checkpoint holds nothing that
matters and is thrown away.

Partition, timestamp, key and headers are the source's, so every topic that is written must have at
least the source's number of partitions, and keep timestamps. One that is missing is created.
"""

from __future__ import annotations

import tempfile
import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from itertools import islice
from math import inf
from pathlib import Path
from time import monotonic

from confluent_kafka import KafkaException
from py4j.protocol import Py4JJavaError
from pyspark.errors import StreamingQueryException
from pyspark.sql import Column, DataFrame, Observation, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery

from keyway.service import Backoff
from spark.pipelines.config import Pipeline
from spark.streaming.core.survey import (
    Copied,
    Missing,
    Policy,
    Position,
    Stopped,
    Topic,
    compare,
    start,
)
from spark.streaming.epochs import Epochs
from spark.streaming.faults import cause
from spark.streaming.kafka import KafkaSide
from spark.streaming.limits import (
    BATCH_LOOK_S,
    COMMITTED_AGAIN_AT_ONCE,
    COMMITTED_AGAIN_S,
    RETRY_S,
    RETRY_S_MAX,
    TRIES_MAX,
)
from spark.streaming.orders import RESULT_DDL, Partition, Result, Writing
from spark.streaming.produce import PositionMoved, copying, passed, places_of
from spark.streaming.ranges import batch_ends, moved
from spark.streaming.source import following
from spark.transforms.frames import marked

GROUP_PREFIX = "keyway-pipeline-"
TRIGGER_MS = 1_000  # from batch to batch; a transaction each
TRANSACTION_TIMEOUT_MS = 60_000  # a task that died holds up read_committed readers for so long
LOOK_EVERY_S = 5.0  # at the source's partitions
# A gap or a topic that was created again means lost records: somebody must decide.
POLICY = Policy(create_topics=True, stop_on_gap=True, stop_on_recreated=True)


class RunError(Exception):
    """The pipeline cannot go on; says why, and nothing was written that is not accounted for."""


@dataclass(slots=True)
class Counts:
    """Records since the start. `again`: records that were left out because an earlier run had
    written them.
    """

    written: int = 0
    filtered: int = 0
    quarantined: int = 0
    again: int = 0


@dataclass(frozen=True, slots=True)
class _Work:
    """The work of one query. `positions_topic`: where the group's offsets are committed."""

    topic: Topic
    positions_topic: str
    starts: Mapping[int, int]


class PipelineRun:
    """Calls `changed` with the counts after each batch, and `waits` with a fault before it tries
    again.
    """

    def __init__(
        self,
        session: SparkSession,
        pipeline: Pipeline,
        *,
        stop: threading.Event,
        changed: Callable[[Counts], None] = lambda _counts: None,
        waits: Callable[[str], None] = lambda _fault: None,
    ) -> None:
        config = pipeline.config
        assert config.source is not None, "checked by the caller"
        assert config.target is not None, "checked by the caller"
        self.counts = Counts()
        self._session = session
        self._pipeline = pipeline
        self._source_section, self._target_section = config.source, config.target
        self._source = KafkaSide(config.source.cluster("source"))
        self._target = KafkaSide(config.target_cluster())
        self._group = GROUP_PREFIX + config.name
        self._stop = stop
        self._changed = changed
        self._waits = waits
        self._reached: dict[Partition, int] = {}
        self._epochs = Epochs()
        self._committed_s: dict[Partition, float] = {}
        self._busy = threading.Lock()  # with a batch, or commits
        self._refused: RunError | None = None
        self._cut = False  # a task has ended before its range, or did not begin

    def run(self, *, once: bool) -> None:
        """Works until `stop` is set; with `once`, until all records that are there now are done. A
        cluster or registry that is away is tried again; half a minute without progress ends the
        run. Raises RunError, KafkaException, StreamingQueryException, PositionMoved.
        """
        backoff = Backoff(RETRY_S, RETRY_S_MAX)
        while not self._stop.is_set():
            done = replace(self.counts)
            try:
                if self._round(once=once):
                    return
            except (KafkaException, StreamingQueryException, PositionMoved) as error:
                if self.counts != done:
                    backoff.worked()
                wait_s = backoff.failed()
                if backoff.failures > TRIES_MAX:
                    raise
                self._waits(cause(error))
                self._stop.wait(wait_s)

    def _round(self, *, once: bool) -> bool:
        """One query, from its start to its end. Returns True if everything is done."""
        self._prepare_topics()
        work = self._work()
        self._commit_again(work, len(work.starts))
        self._cut = False
        with tempfile.TemporaryDirectory(
            prefix="keyway-pipeline-", ignore_cleanup_errors=True
        ) as checkpoint:
            query = self._query(work, Path(checkpoint), once=once)
            try:
                return self._watch(query, work)
            finally:
                self._end(query)

    def _end(self, query: StreamingQuery) -> None:
        """Ends the query, and its batch with it, which may take longer than Spark waits for it."""
        try:
            query.stop()
        except Py4JJavaError as error:  # spark.sql.streaming.stopTimeout is over
            self._waits(cause(error))
            while query.isActive and not self._stop.wait(BATCH_LOOK_S):
                pass

    # ------------------------------------------------------------------------------- before it runs

    def _source_topic(self) -> Topic:
        name = self._source_section.topic
        found = self._source.topics([name]).get(name)
        if found is None:
            raise self._fault("source", f"there is no topic {name}")
        return found

    def _prepare_topics(self) -> None:
        source = self._source_topic()
        written = sorted(self._pipeline.config.topics_written())
        if source.name in written and self._source.cluster_id() == self._target.cluster_id():
            raise self._fault(
                "target", f"records that go to {source.name} would be read again for ever"
            )
        there = self._target.topics(written)
        for name in written:
            topic = there.get(name)
            if topic is not None and topic.partitions > source.partitions:
                topic = replace(topic, partitions=source.partitions)
            match compare(source, topic, POLICY):
                case Stopped(reason=reason):
                    raise self._fault("target", f"topic {name}: {reason}")
                case Missing():
                    self._target.create(name, source.partitions, {})
                case _:
                    continue

    def _fault(self, section: str, reason: str) -> RunError:
        line = self._pipeline.line(section)
        return RunError(f"{self._pipeline.path}:{line}: {reason}")

    def _work(self) -> _Work:
        topic = self._source_topic()
        one = self._pipeline.config.same_cluster
        positions_topic = topic.name if one else self._target_section.topic
        places = [(topic.name, partition) for partition in range(topic.partitions)]
        found = self._target.positions(
            self._group, [(positions_topic, partition) for partition in range(topic.partitions)]
        )
        positions = {partition: position for (_, partition), position in found.items()}
        if not positions and self._source_section.start == "latest":
            positions = {
                partition: Position(tail.end, topic.topic_id, epoch=tail.epoch)
                for (_, partition), tail in self._source.tails(places).items()
            }
            self._target.set_positions(
                self._group,
                {(positions_topic, partition): at for partition, at in positions.items()},
                stood={},  # another process of the pipeline may have begun meanwhile
            )
        log_starts = {
            partition: at for (_, partition), at in self._source.log_starts(places).items()
        }
        tails = self._source.tails(places)
        stood = {
            (topic.name, partition): replace(position, epoch=position.epoch_at(topic))
            for partition, position in positions.items()
        }
        cut = {partition for _, partition in self._source.cut(stood, tails)}
        log_ends = {partition: tail.end for (_, partition), tail in tails.items()}
        match start(topic, positions, log_starts, log_ends, POLICY, cut=cut):
            case Stopped(reason=reason):
                raise self._fault(
                    "source",
                    f"topic {topic.name}: {reason}; to go on, delete or reset the offsets of group"
                    f" {self._group}",
                )
            case Copied(starts=starts):
                self._reached = {
                    (topic.name, partition): starts[partition] for partition in positions
                }
                self._epochs = Epochs({place: tail.epoch for place, tail in tails.items()})
                return _Work(topic, positions_topic, starts)

    # ------------------------------------------------------------------------------- while it runs

    def _query(self, work: _Work, checkpoint: Path, *, once: bool) -> StreamingQuery:
        starts = {(work.topic.name, partition): at for partition, at in work.starts.items()}
        rows_max = self._source_section.records_per_batch_max
        records = following(self._session, self._source.cluster, starts, rows_max)

        def batch(rows: DataFrame, number: int) -> None:
            with self._busy:
                self._batch(work, batch_ends(checkpoint, number), rows)

        stream = records.writeStream.option("checkpointLocation", checkpoint.as_uri())
        writer = stream.foreachBatch(batch)
        if once:
            return writer.trigger(availableNow=True).start()
        return writer.trigger(processingTime=f"{TRIGGER_MS} milliseconds").start()

    def _watch(self, query: StreamingQuery, work: _Work) -> bool:
        """Returns when the query has ended or must be stopped. False: another one has to go on,
        because a task has ended before its range, or because the source topic is another one or has
        more partitions now.
        """
        looked_s = monotonic()
        while not self._stop.wait(0.1):
            if not query.isActive:
                failure = self._refused or query.exception()
                if failure is not None:
                    raise failure
                return not self._cut
            if self._cut:
                return False
            if monotonic() - looked_s < LOOK_EVERY_S:
                continue
            looked_s = monotonic()
            now = self._source.identities([work.topic.name]).get(work.topic.name)
            if now != (work.topic.topic_id, work.topic.partitions):
                return False
            self._commit_again(work, COMMITTED_AGAIN_AT_ONCE)
        return True

    def _commit_again(self, work: _Work, places_max: int) -> None:
        """Commits positions that stand, as `work` was begun and each hour after that. Without this
        Kafka would forget those of partitions that rest. A batch goes first: its tasks have the
        transactional ids.
        """
        before_s = monotonic() - COMMITTED_AGAIN_S
        old = (at for at in self._reached if self._committed_s.get(at, -inf) <= before_s)
        places = list(islice(old, places_max))
        if places and self._busy.acquire(blocking=False):
            try:
                self._account(passed(replace(self._writing(work, {}), again=True), places))
            finally:
                self._busy.release()

    def _batch(self, work: _Work, ends: Mapping[Partition, int], records: DataFrame) -> None:
        if self._stop.is_set() or self._cut:
            return
        starts = {(work.topic.name, partition): at for partition, at in work.starts.items()}
        before = starts | self._reached
        read = {place: before[place] for place in moved(ends, before)}
        if not self._epochs.fit(self._source, read, ends):
            self._cut = True
            return
        quarantine = self._pipeline.plan.quarantine
        sick = Observation("quarantine")
        rows = outgoing(records, self._pipeline, self._target_section.topic).observe(
            sick, F.count_if(F.col("to") == quarantine).alias("records")
        )
        copied = rows.mapInArrow(copying(self._writing(work, ends)), RESULT_DDL)
        results = [result.asDict() for result in copied.collect()]
        self._settle(work, ends, results)
        if results:
            self.counts.quarantined += sick.get["records"]
            self._changed(self.counts)

    def _settle(self, work: _Work, ends: Mapping[Partition, int], results: list[Result]) -> None:
        """Takes note of a batch's tasks. One that took long ends before its range. Spark's next
        batch begins behind the range, so another query has to go on from the positions.
        """
        before = dict(self._reached)
        self._account(results)
        starts = {(work.topic.name, partition): at for partition, at in work.starts.items()}
        without = moved(ends, starts | before) - places_of(results)
        self._account(passed(self._writing(work, ends), sorted(without)))
        self._cut = any(
            result["position"] < ends[result["topic"], result["partition"]] for result in results
        )

    def _writing(self, work: _Work, ends: Mapping[Partition, int]) -> Writing:
        return Writing(
            group=self._group,
            client=self._target.settings,
            targets={work.topic.name: work.positions_topic},
            topic_ids={work.topic.name: work.topic.topic_id},
            expected=dict(self._reached),
            epochs=dict(self._epochs.of),
            ends=ends,
            exactly_once=True,
            transaction_timeout_ms=TRANSACTION_TIMEOUT_MS,
        )

    def _account(self, results: Iterable[Result]) -> None:
        for result in results:
            place = (result["topic"], result["partition"])
            if result["position"] >= 0:
                self._reached[place] = max(self._reached.get(place, 0), result["position"])
                self._committed_s[place] = monotonic()
            self.counts.written += result["copied"]
            self.counts.filtered += result["skipped"]
            self.counts.again += result["already"]
            if result["refused"] is not None:
                self._refused = RunError(result["refused"])
                raise self._refused


def outgoing(records: DataFrame, pipeline: Pipeline, topic: str) -> DataFrame:
    """The columns that `streaming/produce.py` takes, one row per record of the Kafka source; `to`
    is where it goes, null: nowhere. `topic`: where records go that no route sends elsewhere.
    """
    rows = marked(records.withColumn("to", F.lit(topic)), pipeline.plan, destination="to")
    kept: Column = F.col("to").isNotNull()
    return rows.select(
        "topic",
        "partition",
        "offset",
        "to",
        # 0 means "now" to librdkafka, so the first millisecond is written as the second.
        F.greatest(F.unix_millis("timestamp"), F.lit(1)).alias("timestamp_ms"),
        F.when(kept, F.col("key")).alias("key"),
        F.when(kept, F.col("value")).alias("value"),
        F.transform("headers", lambda header: header["key"]).alias("header_names"),
        F.transform("headers", lambda header: header["value"]).alias("header_values"),
        F.lit(None).cast("binary").alias("copy"),
        F.lit(0).cast("int").alias("doubts"),
    )
