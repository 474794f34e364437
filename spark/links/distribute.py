"""Links at work: one PySpark Structured Streaming query per link, and the loop around it.

The position of a link is its group's committed offset on the target, and nothing else: every query
starts from there with an empty checkpoint, so there is nothing that could disagree with it. A query
copies a fixed set of partitions. When that set changes (a new topic, a topic that stops, another
target) or the query fails, it is stopped and a new one starts from the positions.

    survey ─► positions ─► query (batches) ─┬─ a batch fails: wait, survey
       ▲                                    ├─ topics or target changed, a topic refused: survey
       └────────────────────────────────────┘
"""

# Long: the loop that is drawn above, whose steps share the state of one run.
from __future__ import annotations

import shutil
import threading
import uuid
from collections.abc import Iterable, Mapping, Sequence, Set
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from time import monotonic

import structlog
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AclOperation
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from keyway.clusters.config import ClustersConfig
from keyway.clusters.core.tree import ClusterName, Distributor
from keyway.kafka.identities import Identities
from keyway.service import Backoff
from spark.links.beginning import Beginning, policy_of
from spark.links.high_watermarks import HighWatermarks
from spark.links.link import Link
from spark.links.on_the_way import fresh_steps
from spark.links.plan import Plan
from spark.links.refusals import Refusals
from spark.links.reports import LinkReport
from spark.links.sealing import COLUMNS, Named, Sealing
from spark.links.status import StatusTopic
from spark.links.surveyor import Surveyor
from spark.links.switch import choose_target
from spark.pipelines.config import Pipeline
from spark.streaming.core.pace import BatchSize
from spark.streaming.core.survey import UNKNOWN_EPOCH
from spark.streaming.epochs import Epochs
from spark.streaming.faults import cause
from spark.streaming.kafka import KafkaSide
from spark.streaming.known_topics import KnownTopics
from spark.streaming.limits import (
    BATCH_ENDS_S,
    BATCH_LOOK_S,
    LOOK_AT_STOPPED_S,
    RETRY_S,
    RETRY_S_MAX,
    SURVEY_EVERY_S,
    SURVEY_EVERY_S_MAX,
    SURVEY_REST,
)
from spark.streaming.orders import RESULT_DDL, Partition, Result, Taking, Writing
from spark.streaming.produce import PositionMoved, copying, passed, places_of
from spark.streaming.ranges import batch_ends, moved
from spark.streaming.source import between, following
from spark.streaming.unreadable import OVERFLOW, Damage, damaged, firsts, told, unreadable

log = structlog.get_logger("keyway.links")

# The failures of queries and clusters; anything else is a bug and ends the run.
FAILURES = (KafkaException, PySparkException, Py4JJavaError, PositionMoved)


@dataclass(slots=True)
class LinkRun:
    """One link, which runs until `stop` is set. Fresh records go through `pipeline`."""

    session: SparkSession
    config: ClustersConfig
    distributor: Distributor
    stop: threading.Event
    pipeline: Pipeline | None = None
    from_start: bool = False  # also where the target has copies, but the link no position
    identities: Identities | None = None  # None: nobody asks
    _replan: threading.Event = field(default_factory=threading.Event, init=False)
    _idle: threading.Event = field(default_factory=threading.Event, init=False)
    _refusals: Refusals = field(default_factory=Refusals, init=False)
    _reached: dict[Partition, int] = field(default_factory=dict, init=False)
    _epochs: Epochs = field(default_factory=Epochs, init=False)
    _taken_up: set[Partition] = field(default_factory=set, init=False)
    report: LinkReport = field(init=False)
    _source: KafkaSide = field(init=False)
    _target: KafkaSide = field(init=False)
    _link: Link = field(init=False)
    _surveyor: Surveyor = field(init=False)
    _at_work: set[str] = field(default_factory=set, init=False)  # copied since the last look
    _marks: HighWatermarks = field(default_factory=HighWatermarks, init=False)
    _underway: Mapping[Partition, Partition] = field(default_factory=dict, init=False)  # by target
    _starts_at: dict[Partition, int] = field(default_factory=dict, init=False)
    # What a batch failed with: Spark tells of it only that a callback has failed.
    _failure: Exception | None = field(default=None, init=False)
    _size: BatchSize = field(init=False)
    _taking: Mapping[str, Taking] = field(default_factory=dict, init=False)
    _unreadable: dict[Partition, int] = field(default_factory=dict, init=False)  # offsets
    # Records that are damaged on the source's disk, found since the last round; and Java's words.
    _damaged: dict[Partition, Damage] = field(default_factory=dict, init=False)
    _told_stopped: dict[str, str] = field(default_factory=dict, init=False)  # and why

    def __post_init__(self) -> None:
        self._idle.set()
        self._source = KafkaSide(self.config.cluster(self.distributor.source))
        status = StatusTopic(self._source, self.config.messages.status_topic)
        messages = self.config.messages
        self._size = BatchSize(messages.records_per_batch_max, messages.bytes_per_batch_max)
        self.report = LinkReport(self.distributor, status, seals=self.config.seals())

    def run(self) -> None:
        """Raises bugs; a cluster that is away is waited for."""
        backoff = Backoff(RETRY_S, RETRY_S_MAX)
        while not self.stop.is_set():
            try:
                copied = self.report.copied_total
                self._failure = None
                self._round()
                backoff.worked()
            except FAILURES as error:
                if self.report.copied_total > copied:
                    backoff.worked()
                wait_s = backoff.failed()
                fault = cause(self._failure or error)
                self._look_for_unreadable(fault)
                if self.identities is not None:  # what was away may come back as another cluster
                    self.identities.doubt([self.distributor.source, *self.distributor.allowed])
                log.warning("link_waits", link=self.report.link, fault=fault, wait_s=wait_s)
                self.report.trouble(fault)
                self.stop.wait(wait_s)
        self.report.ended()

    # ---------------------------------------------------------------- a query, from start to end

    def _round(self) -> None:
        away = self._away()
        self.report.load()
        self._link = choose_target(self.config, self.distributor, self._source, self.report)
        self._require_identity(self._link.target, away)
        self._aim()
        self._replan.clear()
        surveyed = self._survey()
        starts, plan = self._starts(surveyed)
        starts, plan = self._up_to_unreadable(starts, plan)
        self._starts_at = starts
        reasons = {name: why for name in plan.topics if (why := self._refusals.reason(name))}
        reached = self._epochs.positions(self._reached)
        self.report.planned(plan.topics, plan.stopped, plan.target_ids, reached, reasons)
        self._tell_of_stopped(plan.stopped)
        self._refusals.keep(plan.topics.keys() | plan.stopped.keys())
        self.report.forget_left(self._source.absent)
        if not starts:
            self.report.well()  # both clusters have answered, and no query will tell
            self.stop.wait(SURVEY_EVERY_S)
            return
        checkpoints = self.config.messages.state_directory / self._link.name
        shutil.rmtree(checkpoints, ignore_errors=True)  # of a run that was killed
        query = self._query(plan, starts, (checkpoints / uuid.uuid4().hex).resolve())
        log.info(
            "link_runs", link=self._link.name, target=self._link.target, partitions=len(starts)
        )
        try:
            self._watch(query, surveyed, plan)
        finally:
            self._idle.wait(BATCH_ENDS_S)  # stopped in a batch, its tasks would go on writing
            self._end(query)
            shutil.rmtree(checkpoints, ignore_errors=True)
        failure = query.exception()
        if failure is not None and not self._replan.is_set():
            raise failure

    def _tell_of_stopped(self, stopped: Mapping[str, str]) -> None:
        """Logs each topic once. What the target refused was logged when it did."""
        for name, why in stopped.items():
            if why not in (self._told_stopped.get(name), self._refusals.reason(name)):
                log.warning("topic_stops", link=self._link.name, topic=name, why=why)
        self._told_stopped = dict(stopped)

    def _aim(self) -> None:
        """Turns to the link's present target. What was known of topics on either side is asked for
        again.
        """
        self._target = KafkaSide(self.config.cluster(self._link.target))
        self._surveyor = Surveyor(
            self.config,
            self._link,
            KnownTopics(self._source, self.config.messages.copied_configs, AclOperation.READ),
            KnownTopics(self._target),
            self.pipeline,
            self._refusals,
        )

    def _end(self, query: StreamingQuery) -> None:
        """Ends the query, and its batch with it. A batch that outlived its query would write beside
        the next query's, and the two would fence each other.
        """
        try:
            query.stop()
        except Py4JJavaError as error:  # spark.sql.streaming.stopTimeout is over
            log.warning("link waits for its batch", link=self.report.link, fault=cause(error))
        while not self._idle.wait(BATCH_LOOK_S) and not self.stop.is_set():
            pass

    def _away(self) -> dict[str, str]:
        """The clusters that are away, of all that this link reads from or may write to. A switch
        writes to its target, so all are asked before. Raises ConfigError for a cluster that is not
        what the file says.
        """
        if self.identities is None:
            return {}
        source = self.distributor.source
        away = self.identities.look([source, *self.distributor.allowed])
        self._require_identity(source, away)
        return away

    def _require_identity(self, name: ClusterName, away: Mapping[str, str]) -> None:
        if name in away:
            raise KafkaException(KafkaError(KafkaError._TRANSPORT, f"{name}: {away[name]}"))

    def _watch(self, query: StreamingQuery, surveyed: Plan, plan: Plan) -> None:
        """Returns when the query has ended, or when there is a reason for another one. `surveyed`:
        the topics that could be copied; `plan` has those of them that are copied.
        """
        looked_s = looked_at_stopped_s = monotonic()
        pause_s = SURVEY_EVERY_S
        while query.isActive and not self.stop.is_set() and not self._replan.is_set():
            self._replan.wait(0.1)
            if monotonic() - looked_s < pause_s:
                continue
            looked_s = monotonic()
            if query.exception() is not None:  # its thread died, which Spark may call active
                return
            if query.lastProgress is not None:  # it has read what is new, or found nothing
                self.report.well()
            if self._look(surveyed):
                self._replan.set()
            if monotonic() - looked_at_stopped_s >= LOOK_AT_STOPPED_S:
                looked_at_stopped_s = monotonic()
                if self._beginning.goes_on(surveyed, plan, firsts(self._unreadable, self._damaged)):
                    self._replan.set()
            took_s = monotonic() - looked_s
            pause_s = min(max(SURVEY_EVERY_S, took_s * SURVEY_REST), SURVEY_EVERY_S_MAX)

    def _look(self, surveyed: Plan) -> bool:
        """Reports the lag. Returns True if the target or the work has changed."""
        self._publish()
        return self.report.switch_wanted() or not surveyed.same_work(self._survey())

    def _query(
        self, plan: Plan, starts: Mapping[Partition, int], checkpoint: Path
    ) -> StreamingQuery:
        messages = self.config.messages
        rows_max = min(self._size.records, messages.rate_records_per_s or 2**62)
        records = following(self.session, self._source.cluster, starts, rows_max)

        def batch(rows: DataFrame, number: int) -> None:
            self._idle.clear()
            try:
                self._batch(plan, starts, batch_ends(checkpoint, number), rows)
            except Exception as error:
                self._failure = error
                raise
            finally:
                self._underway = {}
                self._idle.set()

        return (
            records.writeStream.queryName(f"{self._link.name}-{uuid.uuid4().hex[:8]}")
            .option("checkpointLocation", checkpoint.as_uri())
            .trigger(processingTime=f"{messages.trigger_interval_ms} milliseconds")
            .foreachBatch(batch)
            .start()
        )

    def _batch(
        self,
        plan: Plan,
        starts: Mapping[Partition, int],
        ends: Mapping[Partition, int],
        rows: DataFrame,
    ) -> None:
        """Copies one micro-batch, which began at `starts` or where the last one ended, and reads up
        to `ends`. Once a new query is wanted, the rest of this one does nothing: the next starts
        from the positions.
        """
        if self._replan.is_set() or self.stop.is_set():
            return
        began_s = monotonic()
        places = moved(ends, {**starts, **self._reached})
        begin = {place: self._reached.get(place, starts[place]) for place in places}
        changed = self._source_changed(plan, {name for name, _ in places})
        if changed or not self._epochs.fit(self._source, begin, ends):
            self._replan.set()
            return
        self._underway = {
            (plan.targets[name], partition): (name, partition) for name, partition in places
        }
        writing = self._writing(plan, ends, places=len(places))
        copies = copying(writing, self._sealing(plan).sealed)
        copied = rows.select(*COLUMNS).mapInArrow(copies, RESULT_DDL)
        results = [result.asDict() for result in copied.collect()]
        self._underway = {}
        total = self._account(results)
        without = sorted(places - places_of(results))
        self._account(passed(self._writing(plan, ends), without))
        self._measure(results, ends, monotonic() - began_s)
        self._keep_to_the_rate(total, began_s)

    def _sealing(self, plan: Plan) -> Sealing:
        names = {
            name: Named(plan.logical[name], topic.topic_id) for name, topic in plan.topics.items()
        }
        steps = None if self.pipeline is None else fresh_steps(self.pipeline)
        return Sealing(names, self.config.seals(), self.distributor, steps)

    def _account(self, results: Iterable[Result]) -> int:
        """Takes note of the work of tasks. Returns the number of records."""
        total = 0
        for result in results:
            place = (result["topic"], result["partition"])
            if result["position"] >= 0:
                self._taken_up.discard(place)
                self._reached[place] = max(self._reached.get(place, 0), result["position"])
                total += result["copied"] + result["skipped"] + result["left_out"]
                self._at_work.add(place[0])
                self.report.copied(result, self._epochs.of.get(place, UNKNOWN_EPOCH))
            if (why := result["refused"]) is not None:
                self._refused(place, why)
                self._replan.set()
                continue
            self._refusals.written(place)
            if not self._refusals.reason(place[0]):
                self.report.runs(place[0])
        return total

    def _refused(self, place: Partition, why: str) -> None:
        """The topic stops, and the others go on."""
        if self._refusals.refused(place, why, monotonic()):
            log.warning("topic_stops", link=self.report.link, topic=place[0], why=why)

    def _measure(
        self, results: Sequence[Result], ends: Mapping[Partition, int], seconds: float
    ) -> None:
        """Changes the size of the next batches if these took too long, or were too large."""
        cut = any(
            result["refused"] is None
            and result["position"] < ends[result["topic"], result["partition"]]
            for result in results
        )
        records = sum(
            result["copied"] + result["skipped"] + result["left_out"] for result in results
        )
        size_bytes = sum(result["bytes"] for result in results)
        if self._size.measured(records, size_bytes, seconds, cut=cut):
            log.info("batch_size_changes", link=self._link.name, records=self._size.records)
            self._replan.set()

    def _writing(self, plan: Plan, ends: Mapping[Partition, int], places: int = 1) -> Writing:
        """`places`: the tasks that share the bytes of a batch."""
        messages = self.config.messages
        return Writing(
            group=self._link.group,
            client=self._target.settings,
            targets=dict(plan.targets),
            topic_ids={name: topic.topic_id for name, topic in plan.topics.items()},
            expected=dict(self._reached),
            ends=ends,
            taken_up=frozenset(self._taken_up),
            generation=self.report.generation,
            epochs=dict(self._epochs.of),
            exactly_once=messages.delivery == "exactly_once",
            transaction_timeout_ms=messages.transaction_timeout_ms,
            routed=None if self.pipeline is None else self._target.cluster.topic_names(),
            taking=plan.taking,
            task_bytes_max=messages.bytes_per_batch_max // max(1, places),
            on_refused=messages.on_refused,
            dead_letter_topic=messages.dead_letter_topic,
        )

    def _keep_to_the_rate(self, records: int, began_s: float) -> None:
        rate = self.config.messages.rate_records_per_s
        if rate is not None:
            self.stop.wait(max(0.0, records / rate - (monotonic() - began_s)))

    def _publish(self) -> None:
        """Beside the batches: no record is to wait for what is told of those before it."""
        if places := self._underway:  # its tasks tell nothing before they end
            with suppress(KafkaException):  # The batch finds out by itself.
                found = self._target.positions(self._link.group, places)
                self.report.reached({places[place]: position for place, position in found.items()})
        marks = self._marks.of(self._source, self._starts_at)
        self.report.publish(self._source.log_ends(self._starts_at), self._starts_at, marks)

    # ------------------------------------------------------------------------- the topics to copy

    def _source_changed(self, plan: Plan, read: Set[str]) -> bool:
        """Asked before every batch, about the topics that it reads: a topic that was created again
        must not be read at the old one's positions.
        """
        topics = {name: plan.topics[name] for name in sorted(read)}
        now = self._source.described(list(topics))
        return now != {name: (topic.topic_id, topic.partitions) for name, topic in topics.items()}

    def _survey(self) -> Plan:
        at_work, self._at_work = self._at_work, set()
        policy = policy_of(self.config.messages)
        followed = self.report.followed()
        plan = self._surveyor.plan(self.report.knows, policy, followed, at_work)
        for name in plan.taking:  # What was refused may fit now.
            if name in self._taking and self._taking[name] != plan.taking[name]:
                self._refusals.try_again(name)
        self._taking = plan.taking
        return plan

    def _look_for_unreadable(self, fault: str) -> None:
        if (damage := damaged(fault)) is not None:
            if self._damaged.pop(damage.place, None) == damage:
                self._refused(damage.place, damage.words)  # what is before it cannot be read either
            else:
                self._damaged[damage.place] = damage
        if OVERFLOW not in fault:
            return
        try:
            self._unreadable |= unreadable(self._source, {**self._starts_at, **self._reached})
        except KafkaException as error:
            log.warning("link_look_failed", link=self.report.link, fault=cause(error))

    def _up_to_unreadable(
        self, starts: dict[Partition, int], plan: Plan
    ) -> tuple[dict[Partition, int], Plan]:
        """Copies what is before the records that Spark cannot read, as much as one batch takes.
        There their topics stop, or go on behind them.
        """
        self._damaged = {place: at for place, at in self._damaged.items() if place in starts}
        ahead = {
            at: starts[at] for at, odd in self._unreadable.items() if starts.get(at, odd + 1) <= odd
        }
        # Asked for anew: a topic that was made anew, or was cut, has another record there.
        self._unreadable = unreadable(self._source, ahead) if ahead else {}
        first = firsts(self._unreadable, self._damaged)
        held = {place: at for place, at in first.items() if starts.get(place, at + 1) <= at}
        if before := {place: at for place, at in held.items() if starts[place] < at}:
            records = between(self.session, self._source.cluster, starts, before)
            self._batch(plan, starts, before, records)
        reached = {
            place for place, at in held.items() if self._reached.get(place, starts[place]) == at
        }
        if self.config.messages.on_refused == "skip":
            behind = {place: held.pop(place) + 1 for place in reached - self._damaged.keys()}
            self._account(passed(self._writing(plan, behind), behind))
            for place, offset in behind.items():
                self.report.left_out(place, offset - 1)
                starts[place] = offset
        stopped = {
            name: self._damaged[name, partition].words
            if (name, partition) in self._damaged
            else told(partition, at)
            for (name, partition), at in held.items()
        }
        for place in reached & self._damaged.keys():
            self._refused(place, self._damaged.pop(place).words)
        return (
            {place: at for place, at in starts.items() if place[0] not in stopped},
            replace(
                plan,
                topics={name: topic for name, topic in plan.topics.items() if name not in stopped},
                stopped={**plan.stopped, **stopped},
            ),
        )

    def _starts(self, plan: Plan) -> tuple[dict[Partition, int], Plan]:
        """The places of the next query and where each begins, and the plan without the topics that
        stop at their positions.
        """
        begun = self._beginning.starts(plan)
        self._reached, self._taken_up = begun.reached, set(begun.reached)
        self._epochs = Epochs(begun.epochs)
        return begun.starts, begun.plan

    @property
    def _beginning(self) -> Beginning:
        return Beginning(
            self.config, self._link, self._source, self._target, self.report, self.from_start
        )
