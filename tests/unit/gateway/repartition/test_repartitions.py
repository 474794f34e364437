"""Repartitions of one node and of two, step by step, over a scripted Kafka and Redis."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Coroutine, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, cast

import pytest

from gateway.core.cluster.topology import Topology
from gateway.core.forwarding.effects import Screen
from gateway.core.repartition.hiding import Shown
from gateway.core.repartition.holds import Holds
from gateway.core.repartition.partitioners import Partitioner
from gateway.core.repartition.partitioners import Shown as ShownKeys
from gateway.core.repartition.plan import TopicFacts
from gateway.core.repartition.record import Pace, Phase, Repartition
from gateway.core.repartition.screening import Screening
from gateway.core.routing.ownership import Node as OwnNode
from gateway.core.routing.ownership import Routing
from gateway.core.wire.apis import ApiKey
from gateway.core.wire.schema import Message
from gateway.listen.counters import Counters
from gateway.listen.server import Server
from gateway.operations.errors import StateUnavailable
from gateway.operations.group_offsets import GroupOffsets
from gateway.repartition.company import Company
from gateway.repartition.limits import RUNNING_MAX
from gateway.repartition.repartitions import NoRepartition, NotNow, Repartitions
from gateway.repartition.status import status_of, warnings_of
from gateway.repartition.steps import Steps
from gateway.repartition.survey import GroupsOf, Survey
from gateway.repartition.table import RepartitionTable, Reports
from gateway.routing.limits import SESSION_MS
from gateway.routing.owners import SharedOwners
from gateway.routing.shared_table import NodeRow
from gateway.upstream.cluster import Upstream
from gateway.upstream.commits import Commit, Commits, Committed
from tests.rig.node_parts import TOPIC, TOPIC_ID, Node, topology
from tests.rig.virtual_time import now_ms, run

PACE = Pace(adoption_ms=1_000, settle_ms=100, late_ms=2_000, consumer_hold_ms=60_000)


@pytest.fixture(autouse=True)
def _clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a node's own clock says is the virtual loop's, too."""
    for module in ("repartitions", "running"):
        monkeypatch.setattr(f"gateway.repartition.{module}.monotonic_ms", now_ms)


@dataclass
class Table:
    """One Redis, of all nodes."""

    rows: dict[str, Repartition] = field(default_factory=dict)
    away: bool = False
    reports: Reports = field(default_factory=dict)

    async def load(self) -> dict[str, Repartition]:
        self._answer()
        return dict(self.rows)

    async def put(self, topic: str, replaced: int, record: Repartition | None) -> bool:
        self._answer()
        there = self.rows.get(topic)
        if (0 if there is None else there.version) != replaced:
            return False
        if record is None:
            self.rows.pop(topic, None)
        else:
            self.rows[topic] = record
        return True

    async def share_reports(self, _topic_id: str, mine: Reports) -> Reports:
        self._answer()
        self.reports |= mine
        return dict(self.reports)

    async def now_ms(self) -> int:
        self._answer()
        return now_ms()

    def _answer(self) -> None:
        if self.away:
            raise StateUnavailable("Redis: away")


@dataclass
class Kafka:
    partitions: int = 2
    ends: dict[int, int] = field(default_factory=dict)
    topic_id: bytes | None = TOPIC_ID  # None: the topic is gone
    refusal: int = 0  # of CreatePartitions
    committed: dict[str, dict[int, int]] = field(default_factory=dict)  # by group
    commit_codes: list[int] = field(default_factory=list)  # of the next commits
    for_members: list[str] = field(default_factory=list)  # groups whose offsets a transaction set
    others: tuple[str, ...] = ()  # plain groups with a position

    async def call(self, api_key: int, body: Message, **_: Any) -> Message:
        if api_key == ApiKey.METADATA:
            rows = [{"PartitionIndex": at, "LeaderId": 1} for at in range(self.partitions)]
            code = 3 if self.topic_id is None else 0
            return {"Topics": [{"ErrorCode": code, "TopicId": self.topic_id, "Partitions": rows}]}
        if api_key == ApiKey.CREATE_PARTITIONS:
            if not self.refusal:
                self.partitions = body["Topics"][0]["Count"]
            return {"Results": [{"ErrorCode": self.refusal, "ErrorMessage": "no"}]}
        assert api_key == ApiKey.LIST_OFFSETS
        (topic,) = body["Topics"]
        found = [
            {"ErrorCode": 0, "Offset": self.ends.get(at, 0), "PartitionIndex": at}
            for at in (row["PartitionIndex"] for row in topic["Partitions"])
        ]
        return {"Topics": [{"Name": topic["Name"], "Partitions": found}]}

    async def fetch_all(self, group: str) -> dict[tuple[str, int], Committed]:
        places = self.committed.get(group, {})
        return {(TOPIC, at): Committed(offset, -1, "") for at, offset in places.items()}

    async def commit(self, group: str, commits: Sequence[Commit]) -> list[int]:
        code = self.commit_codes.pop(0) if self.commit_codes else 0
        if code == 0:
            places = self.committed.setdefault(group, {})
            places.update({commit.tp.partition: commit.offset for commit in commits})
        return [code] * len(commits)

    async def commit_for_members(self, group: str, commits: list[Commit]) -> None:
        self.for_members.append(group)
        await self.commit(group, commits)

    # ------------------------------------------------------------------------------------ a survey

    async def facts(self, topic: str, _before: int | None) -> TopicFacts:
        return TopicFacts(
            name=topic,
            topic_id=TOPIC_ID,
            partitions=self.partitions,
            compacted=False,
            shown=ShownKeys(Partitioner.MURMUR2, 9),
            ordered_groups=(),
            unreliable_groups=(),
            other_groups=self.others,
        )

    async def groups(self, topic: str) -> GroupsOf:
        assert topic == TOPIC
        return GroupsOf((), (), self.others)

    async def first_record(self, _record: Repartition, _partition: int, position: int) -> int:
        return position


class View:
    """A node's upstream and its server: what it hides, and its log ends."""

    def __init__(self, kafka: Kafka) -> None:
        self.kafka = kafka
        self.call = kafka.call
        self.connections: dict[int, object] = {}
        self.screen = Screen()
        self.counters = Counters()
        self.hides: Shown | None = None
        self.withheld: Callable[[], Collection[str]] = tuple

    @property
    def topology(self) -> Topology:
        return topology(self.kafka.partitions)

    @property
    def shown(self) -> int | None:
        """Partitions that clients see; None: all."""
        return None if self.hides is None else self.hides[TOPIC].partitions

    async def refresh(self, _topics: Sequence[str] = ()) -> Topology:
        return self.topology

    def request_refresh(self) -> None: ...

    def hide(self, shown: Shown | None) -> None:
        self.hides = shown

    def withhold(self, topics: Callable[[], Collection[str]]) -> None:
        self.withheld = topics

    def on_metadata(self, _callback: object) -> None: ...

    def on_disconnect(self, _callback: object) -> None: ...


@dataclass
class Owners:
    node_id: str
    alive: set[str]
    companies: dict[str, Company]

    def others(self) -> list[str]:
        return sorted(self.alive - {self.node_id})

    def certain(self) -> bool:
        return True

    @property
    def routing(self) -> Routing:
        return Routing(owners={1: min(self.alive)})

    @property
    def trouble(self) -> str:
        return ""

    @property
    def rows(self) -> list[NodeRow]:
        return [
            NodeRow(
                node=OwnNode(id=name, serves={}),
                alive_ms=SESSION_MS,
                agreed={},
                facts={fact: tell() for fact, tell in each.told.items()},
            )
            for name, each in self.companies.items()
        ]


class Site:
    """`nodes`: their names; none: one that stands alone."""

    def __init__(self, *nodes: str) -> None:
        self.kafka, self.table = Kafka(), Table()
        self.alive, self.companies = set(nodes), dict[str, Company]()
        self.views: list[View] = []
        self.all: list[Repartitions] = []
        for name in nodes or ("",):
            owners = Owners(name, self.alive, self.companies) if name else None
            company = Company(cast(SharedOwners, owners), {})
            self.companies[name] = company
            view = View(self.kafka)
            self.views.append(view)
            self.all.append(self._node(view, company))

    @property
    def view(self) -> View:
        return self.views[0]

    @property
    def one(self) -> Repartitions:
        return self.all[0]

    @property
    def phase(self) -> Phase:
        return self.table.rows[TOPIC].phase

    def _node(self, view: View, company: Company) -> Repartitions:
        upstream, kafka = cast(Upstream, view), self.kafka
        windows = Node(topology=topology(2)).windows.table
        survey = cast(Survey, kafka)
        offsets = cast(GroupOffsets, kafka)
        return Repartitions(
            cast(RepartitionTable, self.table),
            upstream,
            cast(Server, view),
            windows,
            Holds(),
            Screening(),
            survey,
            Steps(upstream, cast(Commits, kafka), offsets, survey, kafka.commit_for_members),
            PACE,
            company,
        )

    async def until(self, *phases: Phase) -> None:
        for _ in range(2_000):
            if TOPIC in self.table.rows and self.phase in phases:
                return
            await asyncio.sleep(0.05)
        raise AssertionError(f"{self.table.rows}: {self.one.running}")


def story(
    tell: Callable[[Site], Coroutine[Any, Any, None]], *nodes: str, site: Site | None = None
) -> None:
    async def all_of_it() -> None:
        told = site or Site(*nodes)
        for each in told.all:
            await each.load()
        async with asyncio.TaskGroup() as tasks:
            running = [tasks.create_task(each.run()) for each in told.all]
            await tell(told)
            for task in running:
                task.cancel()

    run(all_of_it())


def test_two_topics_that_move_into_the_same_one_wait_for_an_abort() -> None:
    """Two nodes began them before either knew of the other."""

    async def tell(site: Site) -> None:
        await asyncio.sleep(5)
        for topic, other in (("a", "b"), ("b", "a")):
            assert site.table.rows[topic].phase is Phase.MARKED
            assert f"topic {other!r} is to move into 'new', too" in site.one.running[topic].error

    site = Site()
    of_both = {"topic_id": TOPIC_ID.hex(), "before": 2, "after": 5, "into": "new"}
    rest: Any = of_both | {"partitioner": None, "pace": PACE}
    site.table.rows |= {topic: Repartition(topic=topic, **rest) for topic in ("a", "b")}
    story(tell, site=site)


def test_from_its_marker_to_its_end() -> None:
    async def tell(site: Site) -> None:
        site.kafka.ends = {0: 5, 1: 7}
        plan = await site.one.start(TOPIC, 4, ())
        assert (plan.before, plan.after, plan.refusals) == (2, 4, ())
        assert site.view.shown == 2
        assert ApiKey.PRODUCE in site.view.screen.apis, "hidden partitions stop"
        await site.until(Phase.SHOWN, Phase.OPEN)
        assert site.kafka.partitions == 4
        assert site.view.shown == 4
        assert ApiKey.PRODUCE not in site.view.screen.apis
        await site.until(Phase.OPEN)
        assert site.table.rows[TOPIC].boundaries == (5, 7)
        site.kafka.ends = {0: 6, 1: 7}
        opened_ms = site.table.rows[TOPIC].opened_ms
        await site.until(Phase.FINISHED)
        ended = site.table.rows[TOPIC]
        assert ended.boundaries == (6, 7)
        assert ended.raised_ms >= opened_ms + PACE.late_ms
        assert (site.view.hides, site.view.screen.apis) == (None, frozenset())
        with pytest.raises(NotNow, match="no repartition under way"):
            await site.one.abort(TOPIC)

    story(tell)


def test_a_plain_group_is_waited_for() -> None:
    async def tell(site: Site) -> None:
        site.kafka.others = ("billing", "audit")
        site.kafka.committed = {"billing": {0: 3}, "audit": {0: 1}}
        site.kafka.ends = {0: 5}
        site.kafka.commit_codes = [25, 0]  # the first group has members
        assert (await site.one.plan(TOPIC, 4, ["audit"])).ordered_groups == ("billing",)
        await site.one.start(TOPIC, 4, ["audit"])
        await site.until(Phase.DRAINING)
        assert site.kafka.for_members == ["billing"]
        assert site.kafka.committed["audit"] == {0: 1, 2: 0, 3: 0}
        assert ApiKey.FETCH in site.view.screen.apis
        await asyncio.sleep(2)
        assert site.phase is Phase.DRAINING
        status = await status_of(site.one, site.table.rows[TOPIC])
        assert [(left.group, left.offsets) for left in status.left if left.offsets] == [
            ("billing", 2)
        ]
        assert status.waits_for == ("group billing: up to 2 records in partition 0",)
        site.kafka.committed["billing"][0] = 5
        await site.until(Phase.FINISHED)
        assert site.table.rows[TOPIC].given_up == ()

    story(tell)


def test_a_plain_group_that_stands_still_is_given_up() -> None:
    async def tell(site: Site) -> None:
        site.kafka.others = ("billing",)
        site.kafka.committed = {"billing": {0: 3}}
        site.kafka.ends = {0: 5}
        await site.one.start(TOPIC, 4, ())
        await site.until(Phase.FINISHED)
        ended = site.table.rows[TOPIC]
        assert ended.finished_ms - ended.shown_ms >= PACE.consumer_hold_ms
        assert ended.given_up == ("billing",)
        assert (await status_of(site.one, ended)).given_up == ("billing",)

    story(tell)


def test_an_abort_hides_what_was_created_and_the_next_one_takes_it() -> None:
    async def tell(site: Site) -> None:
        site.kafka.refusal = 41  # not the controller
        await site.one.start(TOPIC, 4, ())
        await asyncio.sleep(1)
        status = await status_of(site.one, site.table.rows[TOPIC])
        assert "NOT_CONTROLLER" in status.error
        assert "waits: CreatePartitions" in warnings_of(site.one)[0]
        with pytest.raises(NotNow, match="it goes from 2 to 4 partitions now: marked"):
            await site.one.start(TOPIC, 8, ())
        site.kafka.partitions = 4  # it was done after all
        assert (await site.one.abort(TOPIC)).phase is Phase.ABORTED
        assert site.view.shown == 2
        assert site.one.running == {}
        site.kafka.refusal = 0
        await site.one.start(TOPIC, 4, ())
        assert site.table.rows[TOPIC].before == 2
        await site.until(Phase.FINISHED)

    story(tell)


def test_a_topic_that_is_gone_is_forgotten() -> None:
    async def tell(site: Site) -> None:
        await site.one.start(TOPIC, 4, ())
        site.kafka.topic_id = b"anew" * 4
        for _ in range(200):
            await asyncio.sleep(0.05)
        assert site.table.rows == {}
        assert (site.one.records, site.one.running, site.view.hides) == ({}, {}, None)
        with pytest.raises(NoRepartition):
            await site.one.abort(TOPIC)

    story(tell)


def test_while_redis_is_away_it_waits() -> None:
    async def tell(site: Site) -> None:
        await site.one.start(TOPIC, 4, ())
        await site.until(Phase.OPEN)
        site.table.away = True
        await asyncio.sleep(5)
        assert site.phase is Phase.OPEN
        assert site.one.running[TOPIC].error == "Redis: away"
        site.table.away = False
        await site.until(Phase.FINISHED)

    story(tell)


def test_a_node_that_starts_goes_on_with_what_is_there() -> None:
    before = Site()

    async def begin(site: Site) -> None:
        await site.one.start(TOPIC, 4, ())
        await site.until(Phase.OPEN)

    async def go_on(site: Site) -> None:
        started_ms = now_ms()
        assert site.view.shown == 4
        await site.until(Phase.FINISHED)
        waited_ms = site.table.rows[TOPIC].raised_ms - started_ms
        assert waited_ms >= PACE.late_ms, "who could not send while no node was there may now"

    story(begin, site=before)
    opened = before.table.rows[TOPIC]
    before.table.rows[TOPIC] = replace(opened, opened_ms=opened.opened_ms - 10 * PACE.late_ms)
    after = Site()
    after.kafka, after.table = before.kafka, before.table
    again = Site()
    again.table.rows = before.table.rows
    again.kafka.partitions = before.kafka.partitions
    story(go_on, site=again)


def test_no_more_than_so_many_at_a_time() -> None:
    async def tell(site: Site) -> None:
        site.one.running.update({f"t{at}": cast(Any, None) for at in range(RUNNING_MAX)})
        plan = await site.one.plan(TOPIC, 4, ())
        site.one.running.clear()
        assert "no more at a time" in plan.refusals[0]

    story(tell)


def test_of_two_nodes_the_first_takes_the_steps_and_both_act_by_them() -> None:
    async def tell(site: Site) -> None:
        await site.all[1].start(TOPIC, 4, ())
        await site.until(Phase.OPEN)
        assert site.all[1].running[TOPIC].reasons == ("node a takes the steps",)
        await site.until(Phase.FINISHED)
        await asyncio.sleep(2)
        assert [each.records[TOPIC].phase for each in site.all] == [Phase.FINISHED] * 2
        assert [view.hides for view in site.views] == [None, None]

    story(tell, "a", "b")


def test_nothing_is_created_before_every_live_node_hides_it() -> None:
    async def tell(site: Site) -> None:
        site.alive.add("zz")  # it has told nothing
        await site.one.start(TOPIC, 4, ())
        await asyncio.sleep(5)
        assert (site.phase, site.kafka.partitions) == (Phase.MARKED, 2)
        assert site.one.running[TOPIC].reasons == ("node zz does not act by it yet",)
        assert [view.shown for view in site.views] == [2, 2]
        site.alive.discard("zz")  # it died
        await site.until(Phase.FINISHED)

    story(tell, "a", "b")


@pytest.mark.parametrize("kept", [None, Phase.MARKED])
def test_a_record_that_redis_lost_is_written_again(kept: Phase | None) -> None:
    """Also where its file was an older one: partitions that clients have seen are not hidden."""

    async def tell(site: Site) -> None:
        await site.one.start(TOPIC, 4, ())
        marked = site.table.rows[TOPIC]
        assert marked.phase is Phase.MARKED
        await site.until(Phase.OPEN)
        await asyncio.sleep(1.5)
        site.table.rows.clear()
        if kept is not None:
            site.table.rows[TOPIC] = marked
        for _ in range(7):
            await asyncio.sleep(0.05)
            assert [view.shown for view in site.views] == [4, 4]
        await site.until(Phase.FINISHED)

    story(tell, "a", "b")
