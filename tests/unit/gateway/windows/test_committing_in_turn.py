"""Commits of several groups: a coordinator that is away holds up its own groups alone."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field

from gateway.core.wire.errors import ErrorCode
from gateway.upstream.commits import ATTEMPTS_MAX, Commit
from tests.rig.node_parts import TOPIC, Node, ScriptedCommits
from tests.rig.virtual_time import run, settle

NOBODY, GONE = ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.NETWORK_EXCEPTION
LOADING = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS


@dataclass(slots=True)
class Brokers(ScriptedCommits):
    of: dict[str, int | None] = field(default_factory=dict)  # the coordinator, by group
    answers: dict[str, int] = field(default_factory=dict)  # an error, by group
    asked: list[tuple[str, int]] = field(default_factory=list)  # and how often
    gate: asyncio.Event = field(default_factory=asyncio.Event)  # broker 1 answers behind it

    async def coordinators(self, groups: Sequence[str]) -> dict[str, int | None]:
        return {group: self.of[group] for group in groups}

    async def commit(
        self, group: str, commits: Sequence[Commit], *, attempts_max: int = 1
    ) -> list[int]:
        self.asked.append((group, attempts_max))
        if self.of[group] == 1:
            await self.gate.wait()
        if group in self.answers:
            return [self.answers[group]] * len(commits)
        return await ScriptedCommits.commit(self, group, commits)

    @property
    def done(self) -> list[str]:
        return sorted(group for group, _ in self.committed)


async def loaded(node: Node, commits: Brokers) -> None:
    """A window of each group, which has nothing in Kafka yet."""
    for group in commits.of:
        node.windows.table.open(group, node.topology.topics[TOPIC], 0)
    await settle()


def test_a_coordinator_that_does_not_answer_holds_up_its_own_groups_alone() -> None:
    async def work() -> None:
        commits = Brokers(of={"a": 1, "b": 1, "c": 2, "d": None, "e": 2})
        async with Node(commits=commits) as node:
            await loaded(node, commits)
            committing = node.tasks.create_task(node.windows.committer.commit())
            await settle()
            assert commits.done == ["c", "e"]
            assert node.windows.committer.failing() == ["d"], "for it nobody is waited for"
            commits.gate.set()
            await committing
            assert commits.done == ["a", "b", "c", "e"]
            commits.of["d"] = 2
            await node.windows.committer.commit()
            assert commits.done == ["a", "b", "c", "d", "e"]
            assert node.windows.committer.failing() == []

    run(work())


def test_the_groups_of_a_broker_that_is_gone_are_not_tried_one_after_the_other() -> None:
    async def work() -> None:
        commits = Brokers(of={"a": 1, "b": 1}, answers={"a": GONE})
        commits.gate.set()
        async with Node(commits=commits) as node:
            await loaded(node, commits)
            await node.windows.committer.commit()
            assert commits.asked == [("a", ATTEMPTS_MAX)]
            assert node.windows.committer.failing() == ["a", "b"]
            commits.answers.clear()
            await node.windows.committer.commit()
            assert commits.done == ["a", "b"]

    run(work())


def test_a_coordinator_that_loads_is_waited_for_once_and_at_the_end() -> None:
    async def work() -> None:
        commits = Brokers(of={"a": 1, "b": 1, "c": 1}, answers={"a": LOADING, "b": LOADING})
        commits.gate.set()
        async with Node(commits=commits) as node:
            await loaded(node, commits)
            await node.windows.committer.commit()
            assert commits.asked == [("a", ATTEMPTS_MAX), ("b", 1), ("c", 1)]
            assert commits.done == ["c"]
            commits.asked.clear()
            node.windows.committer.look_at(node.windows.table.of_group("c")[0])
            await node.windows.committer.commit()
            assert [group for group, _ in commits.asked][-2:] == ["a", "b"]

    run(work())
