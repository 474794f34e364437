"""Nodes that take part in repartitions, with one Redis and one Kafka, on the virtual clock."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Coroutine, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

from gateway.core.cluster.topology import Topology
from gateway.core.repartition.consumers import Client, ClientOf
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
from gateway.listen.authoriser import Authoriser
from gateway.listen.counters import Counters
from gateway.listen.looks import Looks
from gateway.listen.server import Server
from gateway.operations.errors import StateUnavailable
from gateway.operations.group_offsets import GroupOffsets
from gateway.repartition.company import Company
from gateway.repartition.repartitions import Repartitions
from gateway.repartition.screened_requests import ScreenedRequests
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


@dataclass
class Table:
    """One Redis, of all nodes."""

    rows: dict[str, Repartition] = field(default_factory=dict)
    clients: set[ClientOf] = field(default_factory=set)
    served: set[Client] = field(default_factory=set)
    away: bool = False
    ahead_ms: int = 0  # its clock, of the nodes'
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

    async def share_clients(self, mine: Collection[ClientOf]) -> set[ClientOf]:
        self._answer()
        self.clients |= set(mine)
        return set(self.clients)

    async def share_served(
        self, _record: Repartition, mine: Collection[Client], asked: Collection[Client]
    ) -> set[Client]:
        self._answer()
        self.served |= set(mine)
        return self.served & set(asked)

    async def now_ms(self) -> int:
        self._answer()
        return now_ms() + self.ahead_ms

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
    assigned: list[str] = field(default_factory=list)  # KIP-848 groups

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

    async def facts(self, topic: str, _before: int | None, named: Partitioner | None) -> TopicFacts:
        return TopicFacts(
            name=topic,
            topic_id=self.topic_id or TOPIC_ID,
            partitions=self.partitions,
            compacted=False,
            shown=ShownKeys(named or Partitioner.MURMUR2, 9),
            ordered_groups=(),
            unreliable_groups=(),
            other_groups=self.others,
        )

    async def assigned_by_kafka(self, _topic: str, _before: int) -> list[str]:
        return self.assigned

    async def groups(self, topic: str, _before: int) -> GroupsOf:
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
        self.looks = Looks()
        self.screening = Screening()
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
        screening = view.screening
        view.looks.add(screening, ScreenedRequests(screening, Authoriser(now_ms)).answer)
        return Repartitions(
            cast(RepartitionTable, self.table),
            upstream,
            cast(Server, view),
            windows,
            Holds(),
            screening,
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
