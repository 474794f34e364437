"""All repartitions that a node takes part in: each step when its time has come, and what operators
ask. Of several nodes all look and act by the records; one takes the steps (company.py).

While none runs, this waits for one to begin. Clients are shown what the records say, from before
the first of them comes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

import structlog

from gateway.core.cluster.topology import TopicPartition
from gateway.core.forwarding.metadata_answer import ListedTopic
from gateway.core.repartition.hiding import shown_of
from gateway.core.repartition.holds import Holds
from gateway.core.repartition.plan import Order, Plan, counts, planned
from gateway.core.repartition.progress import AbortRefused, Left, NodeSaid, aborted, next_step
from gateway.core.repartition.record import Move, Pace, Phase, Repartition
from gateway.core.repartition.screening import Screening
from gateway.listen.server import ConnectionId, Server
from gateway.operations.errors import OperationError, StateUnavailable
from gateway.repartition.company import Company
from gateway.repartition.limits import (
    CLIENTS_TOLD_MS,
    FOLLOW_S,
    GONE_LOOK_S,
    GROUPS_NAMED_MS,
    LEFT_MS,
    LOAD_AGAIN_S,
    LOOK_MS,
    LOOK_PAUSE_FACTOR,
    LOOK_PAUSE_MS_MAX,
    RUNNING_MAX,
    SERVED_TOLD_MS,
)
from gateway.repartition.running import RunningTopic, monotonic_ms
from gateway.repartition.steps import Steps, TopicGone, aborted_before, begun
from gateway.repartition.survey import Survey
from gateway.repartition.table import RepartitionTable, Reports
from gateway.routing.lost_cancel import cancelled
from gateway.upstream.cluster import Upstream
from gateway.upstream.errors import UpstreamError
from gateway.windows.table import WindowTable

log = structlog.get_logger("keyway.repartition")


class NotNow(OperationError):
    """The state of the topic forbids it."""

    status = 409


class NoRepartition(OperationError):
    status = 404


@dataclass(slots=True)
class _Rest:
    """What a running repartition has left, from the last time that somebody asked."""

    left: list[Left]
    at_ms: int


# Long: the node's part, operators' part and the record's part of one state.
class Repartitions:
    def __init__(
        self,
        table: RepartitionTable,
        upstream: Upstream,
        server: Server,
        windows: WindowTable,
        holds: Holds,
        screening: Screening,
        survey: Survey,
        steps: Steps,
        pace: Pace,
        company: Company,
    ) -> None:
        self.records: dict[str, Repartition] = {}  # by topic, also repartitions that are over
        self.running: dict[str, RunningTopic] = {}
        self.away = ""  # why the records could not be loaded
        self._table = table
        self._upstream = upstream
        self._server = server
        self._windows = windows
        self._holds = holds
        self._screening = screening
        self._survey = survey
        self._steps = steps
        self._pace = pace
        self._company = company
        company.tell(lambda: {topic: run.said for topic, run in self.running.items()})
        self._known = asyncio.Event()  # the records were loaded
        self._begun = asyncio.Event()
        self._acting = asyncio.Lock()  # a step, or an operator
        self._rests: dict[str, _Rest] = {}
        self._look_due_ms: float = 0
        self._groups_named_ms = 0  # by then clients have named their groups here
        self._clients_due_ms = 0  # when other nodes are told of clients again
        screening.hears_all = self._hears_all
        self._missed: set[str] = set()  # ids of topics that the last look did not find
        windows.on_loaded(lambda window, _: self._watch(window.key.topic_id, window.partition))
        server.on_metadata(self._served)
        server.withhold(
            lambda: [name for name, run in self.running.items() if company.withholds(run.record)]
        )
        server.on_disconnect(self._disconnected)

    # ------------------------------------------------------------------------------------ the clock

    async def load(self) -> bool:
        """Loads the records. False: Redis is away, and `run` asks again."""
        try:
            records = await self._table.load()
        except StateUnavailable as away:
            if self.away != str(away):
                log.warning("repartitions_not_loaded", reason=str(away))
            self.away = str(away)
            return False
        for record in records.values():
            self._apply(record)
        if any(run.record.holds for run in self.running.values()):
            self._groups_named_ms = monotonic_ms() + GROUPS_NAMED_MS
        self.away, self._holds.loaded = "", True
        self._known.set()
        return True

    async def known(self) -> None:
        """Returns once the records are loaded. Before that clients would be shown partitions that
        are hidden, and what they write there nobody could read. Nor does anybody wait for a node
        that was not among the others yet when a repartition began.
        """
        await self._known.wait()
        if self._company.shared is not None:
            with suppress(StateUnavailable):
                for topic, record in (await self._table.load()).items():
                    known = self.records.get(topic)
                    if known is None or known.is_before(record):
                        self._apply(record)

    async def run(self) -> None:
        """Runs until cancelled."""
        while not cancelled():
            if not self._holds.loaded:
                await asyncio.sleep(0 if await self.load() else LOAD_AGAIN_S)
            elif not self.running:
                await self._rest()
            else:
                began_ms = monotonic_ms()
                await self._follow()
                await self._tell_clients()
                for run in list(self.running.values()):
                    await self._turn(run)
                took_ms = monotonic_ms() - began_ms
                pause_ms = min(LOOK_PAUSE_FACTOR * took_ms, LOOK_PAUSE_MS_MAX)
                await asyncio.sleep(max(LOOK_MS, pause_ms) / 1000)
            if monotonic_ms() >= self._look_due_ms:
                await self._look_for_topics()

    async def _rest(self) -> None:
        self._begun.clear()
        alone = self._company.shared is None
        try:
            async with asyncio.timeout(GONE_LOOK_S if alone else FOLLOW_S):
                await self._begun.wait()
        except TimeoutError:
            await self._follow()

    async def _follow(self) -> None:
        """Acts by the records that other nodes have written. A record that Redis has lost is
        written again: one that is older there than here, or is missing while its topic still
        exists. A node that stands alone does so, too, so that hidden partitions stay hidden when
        it restarts.
        """
        async with self._acting:
            try:
                records = await self._table.load()
            except StateUnavailable as away:
                log.info("repartitions_not_followed", reason=str(away))
                return
            for topic, record in records.items():
                known = self.records.get(topic)
                if known is not None and record.is_before(known):
                    await self._write_again(known, record.version)
                elif record != known:
                    self._apply(record)
            for topic in self.records.keys() - records.keys():
                await self._write_again(self.records[topic], 0)

    async def _write_again(self, record: Repartition, replaced: int) -> None:
        try:
            await self._steps.there(record)
            await self._table.put(record.topic, replaced, record)
        except (TopicGone, UpstreamError, StateUnavailable) as away:
            log.info("repartition_not_written_again", topic=record.topic, reason=str(away))

    async def _look_for_topics(self) -> None:
        """Nothing is kept of a topic that is gone. A broker that has just started may not know one
        yet: it is gone if it was not found by two looks in a row.
        """
        self._look_due_ms = monotonic_ms() + GONE_LOOK_S * 1000
        missed = set()
        for record in list(self.records.values()):
            async with self._acting:
                try:
                    await self._steps.there(record)
                except TopicGone:
                    missed.add(record.topic_id)
                    if record.topic_id in self._missed:
                        await self._forget(self.records[record.topic])
                except UpstreamError:
                    pass
        self._missed = missed

    async def _turn(self, run: RunningTopic) -> None:
        record = run.record
        try:
            async with self._acting:
                if run.record is record and record.topic in self.running:
                    await self._step(run)
            run.error = ""
        except (TopicGone, OperationError, UpstreamError) as error:
            if run.error != str(error):
                log.warning("repartition_waits", topic=record.topic, reason=str(error))
            run.error = str(error)
        except Exception as bug:  # It costs this repartition a turn, not the node.
            log.exception("repartition_failed", topic=record.topic)
            run.error = f"internal error: {bug!r}"

    async def _step(self, run: RunningTopic) -> None:
        record = run.record
        await run.ask_clock(self._table)
        if record.holds:
            await run.look()
            if self._company.leads():
                await run.late.sample(record, run.ends, self._upstream, run.clock.latest_ms())
            shared = self._company.shared is not None
            if shared:
                await run.hear_of_served(self._table)
            run.close_late_ones(SERVED_TOLD_MS if shared else 0)
        run.said = NodeSaid(record.version, len(run.outstanding()), run.late.last_ms)
        if not self._company.leads():
            run.reasons = (f"node {self._company.leader} takes the steps",)
            return
        if record.holds and record.into and monotonic_ms() >= run.starts_due_ms:
            await self._steps.keep_starts(record)
            run.starts_due_ms = monotonic_ms() + self._steps.commits.repeat_ms
        said = self._company.said(record.topic, run.said)
        left = await self.left(run, LEFT_MS) if record.phase is Phase.DRAINING else []
        now_ms = run.clock.earliest_ms()
        following = next_step(record, self._company.live, said, left, now_ms)
        run.reasons = following.reasons
        if following.move is Move.CREATE:
            self._alone_into(record)
        if following.move is not None:
            await self._put(await self._steps.make(following.move, run, now_ms), record)
            if following.move is Move.SHOW:
                await self._upstream.refresh([record.topic, record.new_topic])

    def _alone_into(self, record: Repartition) -> None:
        """Two nodes may have begun one each at the same time. Raises NotNow."""
        for other in self.records.values():
            if record.into and other.into == record.into and other.runs and other is not record:
                raise NotNow(
                    f"topic {other.topic!r} is to move into {record.into!r}, too:"
                    " `keyway repartition abort` one of them"
                )

    async def left(self, run: RunningTopic, age_ms: int) -> list[Left]:
        """What groups have left, as of at most `age_ms` ago. Raises StateUnavailable."""
        topic = run.record.topic
        known = self._rests.get(topic)
        if known is None or monotonic_ms() - known.at_ms > age_ms:
            known = self._rests[topic] = _Rest(await self._steps.left(run), monotonic_ms())
        return known.left

    # ----------------------------------------------------------------------------------- its record

    async def _put(self, record: Repartition, before: Repartition | None) -> None:
        """Raises NotNow if another process has written one meanwhile; then that one counts. A
        Redis that came back without the one of `before`, or with an older one, gets the new one.
        """
        replaced = 0 if before is None else before.version
        while not await self._table.put(record.topic, replaced, record):
            known = (await self._table.load()).get(record.topic)
            if known is not None and (before is None or not known.is_before(before)):
                self._apply(known)
                raise NotNow(f"topic {record.topic!r}: another process has gone on with it")
            log.warning("repartition_lost_in_redis", topic=record.topic)
            replaced = 0 if known is None else known.version
        self._apply(record)
        log.info(
            "repartition",
            topic=record.topic,
            phase=record.phase.value,
            goes_from=counts(record),
        )

    async def _forget(self, record: Repartition) -> None:
        try:
            await self._table.put(record.topic, record.version, None)
        except StateUnavailable as away:
            log.info("repartition_not_forgotten", topic=record.topic, reason=str(away))
            return
        self._drop(record)

    def _drop(self, record: Repartition) -> None:
        log.info("repartition_topic_gone", topic=record.topic)
        self.records.pop(record.topic, None)
        self._end(record.topic)
        self._show()

    def _apply(self, record: Repartition) -> None:
        """This node acts by it from now on."""
        topic = record.topic
        self.records[topic] = record
        self._rests.pop(topic, None)
        if not record.runs:
            self._end(topic)
        elif topic in self.running:
            self.running[topic].moved(record)
        else:
            self.running[topic] = RunningTopic(
                record,
                self._upstream,
                self._server,
                self._windows,
                self._holds,
                self._steps.plain_groups,
                self._share,
                self._company.way,
            )
            self._begun.set()
        self._show()

    def _end(self, topic: str) -> None:
        run = self.running.pop(topic, None)
        if run is not None:
            run.end()

    def _show(self) -> None:
        shown, hiding = shown_of(self.records.values())
        ends = {
            name: run.plain.ends
            for run in self.running.values()
            for name in (run.record.topic, run.record.new_topic)
            if run.plain is not None
        }
        self._screening.look_for(shown, hiding, ends, listens=bool(self.running))
        self._server.looks.changed()
        self._server.counters.apis.topics.watch(
            {name: shown[name].topic_id for name in self.running if name in shown}
        )
        self._server.hide(shown or None)
        self._upstream.hide(shown or None)
        self._upstream.request_refresh()

    async def _share(self, topic_id: str, reports: Reports) -> Reports:
        if self._company.shared is None:
            return reports
        return await self._table.share_reports(topic_id, reports)

    # ---------------------------------------------------------------------------------------- heard

    def _watch(self, topic_id: str, partition: TopicPartition) -> None:
        run = self.running.get(partition.topic)
        if run is not None and run.topic_id == topic_id and run.record.holds:
            run.moved(run.record)

    def _served(self, connection: ConnectionId, metadata: Sequence[ListedTopic]) -> None:
        for run in self.running.values():
            run.served(connection, metadata)

    def _disconnected(self, connection: ConnectionId) -> None:
        for run in self.running.values():
            run.disconnected(connection)

    def _hears_all(self) -> bool:
        """All groups that a client names are named to this node."""
        return self._company.shared is None and monotonic_ms() >= self._groups_named_ms

    async def _tell_clients(self) -> None:
        """A consumer names its group to one node, and fetches from all."""
        plain = [run.plain for run in self.running.values() if run.plain is not None]
        waiting = frozenset[str]().union(*(each.ends.waiting for each in plain))
        if self._company.shared is None or not waiting or monotonic_ms() < self._clients_due_ms:
            return
        groups = self._screening.groups
        try:
            groups.heard(await self._table.share_clients(groups.clients_of(waiting)))
        except StateUnavailable as away:
            log.info("clients_not_told", reason=str(away))
        self._clients_due_ms = monotonic_ms() + CLIENTS_TOLD_MS

    # ------------------------------------------------------------------------------------ operators

    @property
    def leads(self) -> bool:
        """This node takes the steps, as far as it knows."""
        return self._company.leader == self._company.me

    async def follow(self) -> None:
        """Before an order: what another node has begun, or ended, just now counts here, too."""
        if self._holds.loaded and self._company.shared is not None:
            await self._follow()

    async def plan(self, order: Order) -> Plan:
        """Raises OperationError."""
        await self.follow()
        return (await self._planned(order))[0]

    async def _planned(self, order: Order) -> tuple[Plan, bytes]:
        topic, into = order.topic, order.into
        if not self._holds.loaded:
            raise StateUnavailable("Redis: the repartitions are not loaded yet")
        known = self.records.get(topic)
        facts = await self._survey.facts(topic, aborted_before(known), order.partitioner)
        successor = await self._survey.into(into) if into else None
        plan = planned(facts, order.after, known, order.unordered, successor)
        refusals = list(plan.refusals)
        taken = {
            name
            for record in self.records.values()
            for name in (record.topic, record.new_topic)
            if record.runs and record.topic != topic
        }
        refusals += [f"topic {name!r} has one now" for name in sorted(taken & {topic, into})]
        if known is not None and known.topic_id != facts.topic_id.hex():
            refusals = [
                "it was created anew: its repartition of before is forgotten within two minutes"
            ]
        if len(self.running) >= RUNNING_MAX and topic not in self.running:
            refusals.append(f"{RUNNING_MAX} topics are repartitioned now: no more at a time")
        return replace(plan, refusals=tuple(refusals)), facts.topic_id

    async def start(self, order: Order) -> Plan:
        """Raises OperationError; NotNow with the reasons of the plan."""
        topic, into = order.topic, order.into
        await self.follow()
        async with self._acting:
            plan, topic_id = await self._planned(order)
            if plan.refusals:
                raise NotNow(f"topic {topic!r}: {'; '.join(plan.refusals)}")
            known = self.records.get(topic)
            record = Repartition(
                topic=topic,
                topic_id=topic_id.hex(),
                before=plan.before,
                after=plan.before + order.after if into else order.after,
                into=into,
                partitioner=plan.partitioner,
                pace=self._pace,
                unordered=tuple(sorted(set(order.unordered))),
            )
            await self._put(begun(record, known, await self._table.now_ms()), known)
            return plan

    async def abort(self, topic: str, *, force: bool = False) -> Repartition:
        """`force`: also if members of groups are given partitions that stay hidden. Raises
        OperationError.
        """
        await self.follow()
        async with self._acting:
            known = self.records.get(topic)
            if known is None:
                raise NoRepartition(f"topic {topic!r} has no repartition")
            try:
                record = aborted(known)
            except AbortRefused as refused:
                raise NotNow(str(refused)) from refused
            if not force:
                await self._given_none(known)
            await self._put(record, known)
            return record

    async def _given_none(self, record: Repartition) -> None:
        """Raises NotNow, StateUnavailable."""
        try:
            groups = await self._steps.given_hidden(record)
        except UpstreamError as error:
            raise StateUnavailable(f"upstream: {error}") from error
        if groups:
            raise NotNow(
                f"topic {record.topic!r}: Kafka has its new partitions already, and deletes none."
                f" It assigns them to members of the KIP-848 groups {', '.join(groups[:10])}:"
                " after an abort some may have hidden partitions alone, and idle, until another"
                " repartition of the topic is shown. Let this one go on, or abort with `force`"
            )
