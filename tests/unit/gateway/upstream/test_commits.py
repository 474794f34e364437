"""Committed offsets of many windows are asked for together; limits are those of the brokers."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, cast

import pytest

from gateway.core.cluster.topology import Broker, TopicPartition, Topology
from gateway.core.wire.apis import ApiKey
from gateway.core.wire.errors import ErrorCode
from gateway.core.wire.schema import Message
from gateway.upstream.cluster import Upstream
from gateway.upstream.commits import Commits, Committed
from gateway.upstream.errors import Refused, Unreachable
from tests.rig.virtual_time import run, settle

ANSWER_S = 0.1
UNKNOWN = int(ErrorCode.UNKNOWN_TOPIC_ID)


def place(partition: int, topic: str = "orders") -> TopicPartition:
    return TopicPartition(topic, topic.encode().ljust(16, b"."), partition)


class Coordinator:
    """Answers each request after a while; every partition's offset is its own number, and odd ones
    have none.
    """

    def __init__(self) -> None:
        self.asked: list[tuple[str, list[tuple[str, list[int]]]]] = []
        self.away = False
        self.unknown: set[str] = set()  # topics

    async def coordinator(self, group: str) -> int:  # noqa: ARG002
        return 1

    async def call(
        self,
        api_key: int,  # noqa: ARG002
        body: Message,
        *,
        broker_id: int,  # noqa: ARG002
        version: int | None,  # noqa: ARG002
    ) -> Message:
        (group,) = body["Groups"]
        topics = group["Topics"]
        self.asked.append(
            (group["GroupId"], [(topic["Name"], topic["PartitionIndexes"]) for topic in topics])
        )
        away = self.away
        await asyncio.sleep(ANSWER_S)
        if away:
            raise Unreachable("away")
        rows = [{**topic, "Partitions": self._rows(topic)} for topic in topics]
        return {"Groups": [{"ErrorCode": 0, "Topics": rows}]}

    def _rows(self, topic: Message) -> list[dict[str, Any]]:
        return [
            {
                "PartitionIndex": index,
                "CommittedOffset": -1 if index % 2 else index,
                "CommittedLeaderEpoch": -1,
                "Metadata": "",
                "ErrorCode": UNKNOWN if topic["Name"] in self.unknown else 0,
            }
            for index in topic["PartitionIndexes"]
        ]


def commits_of(coordinator: Coordinator) -> Commits:
    return Commits(cast("Upstream", coordinator))


def test_who_asks_meanwhile_goes_along_with_the_next_request() -> None:
    async def work() -> None:
        coordinator = Coordinator()
        commits = commits_of(coordinator)
        places = [*(place(number) for number in range(6)), place(0, "bills"), place(2)]
        found = await asyncio.gather(*(commits.fetch("g", partitions) for partitions in places))
        assert [None if commit is None else commit.offset for commit in found] == [
            0,
            None,
            2,
            None,
            4,
            None,
            0,
            2,
        ]
        assert coordinator.asked == [
            ("g", [("orders", [0])]),
            ("g", [("orders", [1, 2, 3, 4, 5]), ("bills", [0])]),
        ]
        assert await commits.fetch("g", place(8)) == Committed(8, -1, "")

    run(work())


def test_one_request_at_a_time_for_a_group_and_groups_do_not_wait_for_each_other() -> None:
    async def work() -> None:
        coordinator = Coordinator()
        commits = commits_of(coordinator)
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(commits.fetch("g", place(0)))
            await settle()
            for number in (1, 2, 3):
                tasks.create_task(commits.fetch("g", place(number)))
            tasks.create_task(commits.fetch("h", place(0)))
            await settle()
            assert [group for group, _ in coordinator.asked] == ["g", "h"]
        assert coordinator.asked[2:] == [("g", [("orders", [1, 2, 3])])]

    run(work())


def test_a_failure_is_everybodys_who_asked_and_nobodys_afterwards() -> None:
    async def work() -> None:
        coordinator = Coordinator()
        commits = commits_of(coordinator)
        coordinator.away = True
        asking = [asyncio.ensure_future(commits.fetch("g", place(number))) for number in (0, 2, 4)]
        await asyncio.wait(asking)
        assert [type(task.exception()) for task in asking] == [Unreachable] * 3
        assert len(coordinator.asked) == 2
        coordinator.away = False
        assert await commits.fetch("g", place(2)) == Committed(2, -1, "")

    run(work())


def test_what_kafka_refuses_of_one_topic_is_no_failure_of_the_others() -> None:
    async def work() -> None:
        coordinator = Coordinator()
        coordinator.unknown = {"bills"}
        commits = commits_of(coordinator)
        places = [place(0), place(0, "bills"), place(2)]
        asking = [asyncio.ensure_future(commits.fetch("g", each)) for each in places]
        await asyncio.wait(asking)
        refused = asking[1].exception()
        assert isinstance(refused, Refused)
        assert refused.error_code == UNKNOWN
        assert [asking[at].result() for at in (0, 2)] == [Committed(at, -1, "") for at in (0, 2)]
        found = await commits.fetch_some("g", places)
        assert [type(found[each]) for each in places] == [Committed, Refused, Committed]

    run(work())


def test_who_gives_up_takes_nobodys_answer_along() -> None:
    async def work() -> None:
        commits = commits_of(Coordinator())
        hasty = asyncio.ensure_future(commits.fetch("g", place(0)))
        patient = asyncio.ensure_future(commits.fetch("g", place(2)))
        await settle()
        hasty.cancel()
        assert await patient == Committed(2, -1, "")
        with pytest.raises(asyncio.CancelledError):
            await hasty

    run(work())


# -------------------------------------------------------------------------------- limits of brokers


@dataclass
class Brokers:
    """An upstream that is asked for its brokers' configs. None: it refuses."""

    configs: dict[int, dict[str, str] | None]

    @property
    def topology(self) -> Topology:
        return Topology(
            "c", {at: Broker(at, "upstream", 9_000 + at) for at in self.configs}, {}, {}
        )

    async def call(self, api_key: int, body: Message, *, broker_id: int) -> Message:
        assert api_key == ApiKey.DESCRIBE_CONFIGS
        said = self.configs[broker_id]
        if said is None:
            return {"Results": [{"ErrorCode": int(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)}]}
        names = body["Resources"][0]["ConfigurationKeys"]
        entries = [{"Name": name, "Value": said.get(name)} for name in names]
        return {"Results": [{"ErrorCode": 0, "Configs": entries}]}


SIZE, KEPT = "offset.metadata.max.bytes", "offsets.retention.minutes"


@pytest.mark.parametrize(
    ("configs", "chars", "repeat_s"),
    [
        ({1: {SIZE: "4096", KEPT: "10080"}}, 4_096, 3_600),
        ({1: {SIZE: "4096", KEPT: "10080"}, 2: {SIZE: "1000", KEPT: "1"}}, 1_000, 15),
        ({1: {SIZE: "4096", KEPT: "240"}, 2: {SIZE: "8192", KEPT: "60"}}, 4_096, 900),
        ({1: {SIZE: "5000"}}, 5_000, 3_600),
        ({1: {SIZE: "5000", KEPT: "-1"}}, 5_000, 3_600),
        ({1: None}, 4_096, 3_600),
    ],
)
def test_the_strictest_broker_counts(
    configs: dict[int, dict[str, str] | None], chars: int, repeat_s: int
) -> None:
    async def work() -> None:
        commits = Commits(cast(Upstream, Brokers(configs)))
        await commits.probe_limits()
        assert (commits.metadata_chars_max, commits.repeat_ms) == (chars, repeat_s * 1_000)

    run(work())


class Finding:
    """Kafka names the coordinators in `named`."""

    def __init__(self) -> None:
        self.known = {"a": 1}
        self.named = {"b": 2}
        self.asked: list[Sequence[str]] = []

    def known_coordinator(self, group: str) -> int | None:
        return self.known.get(group)

    async def look_for_coordinators(self, groups: Sequence[str]) -> None:
        self.asked.append(groups)
        self.known |= {group: self.named[group] for group in groups if group in self.named}


def test_coordinators_that_are_not_known_are_looked_for_in_one_request() -> None:
    async def work() -> None:
        finding = Finding()
        commits = Commits(cast("Upstream", finding))
        assert await commits.coordinators(["a", "b", "c"]) == {"a": 1, "b": 2, "c": None}
        assert finding.asked == [["b", "c"]]

    run(work())
