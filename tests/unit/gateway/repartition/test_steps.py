"""Where groups start in partitions that are new to them, over a scripted Kafka."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, cast

import pytest

from gateway.core.repartition.record import Pace, Phase, Repartition
from gateway.core.wire.apis import ApiKey
from gateway.core.wire.schema import Message
from gateway.members.begun_topics import BegunTopics
from gateway.operations.errors import StateUnavailable
from gateway.repartition.limits import REBALANCING_MS_MAX
from gateway.repartition.steps import Steps
from gateway.repartition.survey import GroupsOf
from gateway.upstream.commits import Commit, Committed
from gateway.windows.window_keys import topic_id_text
from tests.rig.node_parts import GROUP, TOPIC, TOPIC_ID
from tests.rig.scripted_hashes import ScriptedHashes
from tests.rig.virtual_time import run

INTO, INTO_ID = "orders-2", b"into" * 4
MOVES = Repartition(
    topic=TOPIC,
    topic_id=TOPIC_ID.hex(),
    before=2,
    after=5,
    partitioner=None,
    pace=Pace(adoption_ms=1, settle_ms=1, late_ms=1),
    phase=Phase.OPEN,
    into=INTO,
    into_id=INTO_ID.hex(),
)
GROWS = Repartition(
    topic=TOPIC,
    topic_id=TOPIC_ID.hex(),
    before=2,
    after=3,
    partitioner=None,
    pace=MOVES.pace,
    phase=Phase.CREATED,
)
NEW = [(INTO, at) for at in range(3)]


@dataclass
class Kafka:
    """Upstream, commits, the survey, and GroupOffsets as far as they are asked."""

    hashes: ScriptedHashes = field(default_factory=ScriptedHashes)
    committed: dict[str, dict[tuple[str, int], Committed]] = field(default_factory=dict)
    requests: list[tuple[str, list[tuple[str, int]]]] = field(default_factory=list)
    with_members: set[str] = field(default_factory=set)
    rebalancing: list[str] = field(default_factory=list)
    reading: set[str] = field(default_factory=set)  # the new topic
    late: list[str] = field(default_factory=list)  # subscribe when others are being committed

    @property
    def begun_topics(self) -> BegunTopics:
        return BegunTopics(cast(Any, self.hashes))

    async def call(self, api_key: int, body: Message, **_: Any) -> Message:
        assert api_key == ApiKey.METADATA
        topic_id = TOPIC_ID if body["Topics"][0]["Name"] == TOPIC else INTO_ID
        rows = [{"PartitionIndex": at, "LeaderId": 1} for at in range(3)]
        return {"Topics": [{"ErrorCode": 0, "TopicId": topic_id, "Partitions": rows}]}

    async def groups(self, topic: str, before: int) -> GroupsOf:
        assert (topic, before) == (TOPIC, 2)
        late = tuple(self.late) if self.requests else ()
        return GroupsOf((GROUP,), (), ("billing", "audit"), ("new", *late), tuple(self.rebalancing))

    async def begins(self, group: str, topic: str) -> bool:
        assert topic == INTO
        return group in self.reading

    async def fetch_all(self, group: str) -> dict[tuple[str, int], Committed]:
        return dict(self.committed.get(group, {}))

    async def commit(self, group: str, commits: Sequence[Commit]) -> list[int]:
        if group in self.with_members:
            return [25] * len(commits)
        places = [(commit.tp.topic, commit.tp.partition) for commit in commits]
        self.requests.append((group, places))
        found = self.committed.setdefault(group, {})
        found |= {place: Committed(0, -1, "") for place in places}
        return [0] * len(commits)

    async def commit_for_members(self, group: str, commits: list[Commit]) -> None:
        self.with_members.discard(group)
        await self.commit(group, commits)

    @property
    def steps(self) -> Steps:
        every = cast(Any, self)
        return Steps(every, every, every, every, self.commit_for_members)


def test_the_starts_of_groups_that_have_not_begun_are_committed_again() -> None:
    async def work() -> None:
        kafka = Kafka()
        old, first = {(TOPIC, 0): Committed(7, -1, "")}, Committed(0, -1, "")
        kafka.committed = {
            GROUP: old | dict.fromkeys(NEW, first),
            "billing": old | dict.fromkeys(NEW, first),
            "audit": old | dict.fromkeys(NEW, first) | {NEW[1]: Committed(1, -1, "")},
        }
        kafka.with_members = {"billing"}  # of the old topic
        await kafka.steps.keep_starts(MOVES)
        assert kafka.requests == [(GROUP, NEW), ("billing", NEW)], "audit has begun"
        kafka.requests.clear()
        kafka.committed[GROUP] |= dict.fromkeys(NEW, Committed(0, -1, "of a window"))
        kafka.committed["billing"] = old  # deleted by somebody
        kafka.committed["new"] = dict.fromkeys(NEW, first)
        kafka.reading = {"new"}  # its own commit may be on its way
        await kafka.steps.keep_starts(MOVES)
        assert kafka.requests == []

    run(work())


@pytest.mark.parametrize(
    ("record", "topic_id", "before"), [(GROWS, TOPIC_ID, 2), (MOVES, INTO_ID, 0)]
)
def test_windows_know_that_partitions_are_new_though_kafka_forgets_the_start(
    record: Repartition, topic_id: bytes, before: int
) -> None:
    async def work() -> None:
        kafka = Kafka()
        await kafka.steps._before_shown(record, 0)
        assert {group for group, _ in kafka.requests} == {GROUP, "billing", "audit", "new"}
        begun = kafka.begun_topics
        assert await begun.partitions_of(GROUP, topic_id_text(topic_id), 9) == before
        assert kafka.hashes.rows.keys() == {f"keyway:begun:{GROUP}"}
        kafka.rebalancing = ["moves"]
        with pytest.raises(StateUnavailable, match="groups that rebalance"):
            await kafka.steps._before_shown(record, 0)
        kafka.rebalancing = []
        kafka.hashes.down = True
        with pytest.raises(StateUnavailable, match="Redis"):
            await kafka.steps._before_shown(record, 0)

    run(work())


def test_groups_that_rebalance_are_not_waited_for_for_ever() -> None:
    """One whose members crash again and again, perhaps of another topic."""

    async def work() -> None:
        kafka = Kafka(rebalancing=["crashes"])
        with pytest.raises(StateUnavailable, match="groups that rebalance"):
            await kafka.steps._before_shown(GROWS, GROWS.began_ms + REBALANCING_MS_MAX - 1)
        await kafka.steps._before_shown(GROWS, GROWS.began_ms + REBALANCING_MS_MAX)
        assert {group for group, _ in kafka.requests} == {GROUP, "billing", "audit", "new"}

    run(work())


def test_a_group_that_comes_while_others_are_begun_begins_too() -> None:
    """By `latest` it would miss what comes before its members see the new partitions."""

    async def work() -> None:
        kafka = Kafka(late=["late"])
        assert (await kafka.steps._before_shown(GROWS, 0)).starting == ("new", "late")
        assert sorted(group for group, _ in kafka.requests) == sorted(
            [GROUP, "audit", "billing", "late", "new"]
        )

    run(work())
