"""Commits of windows when somebody else may have committed: as offsets that follow from another
cluster do while the group has no members here.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pytest
import structlog

from dispatcher.core.model import MemberId, SessionId
from dispatcher.store.base import StoreError
from gateway.config.groups import GroupSection
from gateway.core.cluster.topology import TopicPartition
from gateway.core.wire.errors import ErrorCode
from gateway.upstream.commits import Committed
from gateway.upstream.errors import Refused, Unreachable
from gateway.windows import committing
from gateway.windows.limits import CAPTURED_AT_ONCE, WINDOW_IDLE_MS_MAX
from keyway.commit_metadata.core.metadata import decode, encode, read_times
from tests.rig.node_parts import GROUP, Node, ScriptedCommits, topology
from tests.rig.virtual_time import now_ms, run, settle, until
from tests.unit.gateway.windows.test_window import accept, acquire, story

KEYS = [b"key-%d" % at for at in range(8)]
M1, S1 = MemberId("m1"), SessionId("s1")
BEAT_MS = COMMIT_MS = 5_000
AHEAD_MS = 3_600_000  # another machine's clock


def from_elsewhere(offset: int, *settled: tuple[int, int], ahead_ms: int = 0) -> Committed:
    """As offsets/committer.py writes it."""
    ms = now_ms()
    text = encode(offset, list(settled), origin=(ms + ahead_ms) * 1_000, settled_ms=ms - 10_000)
    return Committed(offset, -1, text)


async def worked(node: Node, *offsets: int) -> None:
    """The member has acquired all there is and accepted these; then it leaves."""
    await acquire(node.window()).persisted
    await node.window().ask(accept(*offsets))
    node.beat("m1", -1)
    await asyncio.sleep(1)


async def rest(node: Node, wait_ms: int) -> None:
    """The member stays, and nothing else happens."""
    while wait_ms > 0:
        node.beat("m1", 1, fetches=False)
        await asyncio.sleep(min(wait_ms, BEAT_MS) / 1000)
        wait_ms -= BEAT_MS


@dataclass(slots=True)
class SlowCommits(ScriptedCommits):
    gate: asyncio.Event | None = None

    async def fetch_some(
        self, group: str, partitions: Sequence[TopicPartition], *, attempts_max: int = 1
    ) -> dict[TopicPartition, Committed | Refused | None]:
        if self.gate is not None:
            await self.gate.wait()
        return await ScriptedCommits.fetch_some(self, group, partitions, attempts_max=attempts_max)


def committed(node: Node, partition: int = 0) -> Committed:
    return node.commits.committed[GROUP, partition]


def test_a_late_commit_is_not_written_over_a_position_that_was_set_meanwhile() -> None:
    """Kafka was away; the group went on elsewhere."""

    async def tell(node: Node) -> None:
        await worked(node, 0, 1, 2)
        node.commits.failure = Unreachable("Kafka was killed")
        await node.windows.committer.commit()
        assert node.windows.committer.failing() == [GROUP]
        node.commits.failure = None
        theirs = node.commits.committed[GROUP, 0] = from_elsewhere(5, (7, 7))
        with structlog.testing.capture_logs() as logs:
            await node.windows.committer.commit()
        assert committed(node) == theirs, "nothing was written"
        assert "position_set_elsewhere" in [line["event"] for line in logs]
        await until(lambda: node.window().dispatcher is not None)
        assert node.stored[node.window().key] == 5
        for _ in range(2):
            await node.windows.committer.commit()
            assert decode(5, committed(node).metadata) == [(7, 7)]
            assert (
                read_times(5, committed(node).metadata).settled_ms
                == read_times(5, theirs.metadata).settled_ms
            ), "late again, and of the same time"
        assert node.windows.committer.failing() == []

    story(tell, None, *KEYS)


def test_what_kafka_refuses_of_one_partition_holds_up_no_other() -> None:
    """Such as those of a topic on which the gateway has lost its rights."""
    denied = int(ErrorCode.TOPIC_AUTHORIZATION_FAILED)

    async def work() -> None:
        async with Node(GroupSection(auto_offset_reset="earliest"), topology=topology(2)) as node:
            node.log.produce(b"a", b"b")
            node.log.produce(b"c", b"d", partition=1)
            node.beat()
            await settle()
            node.commits.refused[0] = Refused(denied, "committed offset of orders")
            for partition in (0, 1):
                await acquire(node.window(partition)).persisted
                await node.window(partition).ask(accept(0))
            await node.windows.committer.commit()
            assert node.commits.committed.keys() == {(GROUP, 1)}
            assert committed(node, 1).offset == 1
            assert node.windows.committer.failing() == [GROUP]
            del node.commits.refused[0]
            await node.windows.committer.commit()
            assert committed(node).offset == 1
            assert node.windows.committer.failing() == []

    run(work())


def test_a_group_that_comes_back_is_not_said_to_fail_before_it_does() -> None:
    async def tell(node: Node) -> None:
        await worked(node, 0, 1, 2)
        node.commits.failure = Unreachable("Kafka was killed")
        await node.windows.committer.commit()
        assert node.windows.committer.failing() == [GROUP]
        node.windows.table.drop(node.window().key)
        assert node.windows.committer.failing() == []
        node.beat()
        assert node.windows.table.count_of(GROUP)
        assert node.windows.committer.failing() == []

    story(tell)


def test_a_window_that_was_handed_over_meanwhile_is_not_committed() -> None:
    """Kafka is asked first, and takes its time; the next owner has committed then."""
    commits = SlowCommits()

    async def tell(node: Node) -> None:
        await worked(node, 0, 1, 2)
        commits.gate = asyncio.Event()
        run_under_way = asyncio.ensure_future(node.windows.committer.commit())
        await settle()
        window = node.window()
        node.windows.table.drop(window.key)
        theirs = commits.committed[GROUP, 0] = Committed(
            8, 0, encode(8, [], origin=node.store.origins[window.key])
        )
        commits.gate.set()
        await run_under_way
        assert committed(node) == theirs

    story(tell, None, *KEYS, commits=commits)


def test_members_that_come_back_start_at_a_position_that_was_set_meanwhile() -> None:
    """Everything was committed, and the window is still in memory."""

    async def tell(node: Node) -> None:
        await worked(node, 0)
        await node.windows.committer.commit()
        node.commits.committed[GROUP, 0] = from_elsewhere(6)
        node.beat("m2")
        await until(lambda: node.window().dispatcher is not None)
        await settle()
        core = node.window().dispatcher
        assert core is not None
        assert core.cursor == 6
        assert [member.member_id for member in core.members] == ["m2"]

    story(tell, None, *KEYS)


@pytest.mark.parametrize("reliable", [True, False])
def test_a_clock_that_is_ahead_does_not_hold_the_group_up(*, reliable: bool) -> None:
    async def tell(node: Node) -> None:
        await acquire(node.window(), 1).persisted
        node.beat("m1", -1)
        await asyncio.sleep(1)
        node.commits.committed[GROUP, 0] = from_elsewhere(4, ahead_ms=AHEAD_MS)
        await node.windows.committer.commit()
        await until(lambda: node.window().dispatcher is not None)
        node.beat("m1")
        await until(lambda: node.window().dispatcher is not None)
        await settle()
        for at in (4, 5, 6):
            await acquire(node.window(), 1).persisted
            await node.window().ask(accept(at))
            await node.windows.committer.commit()
            assert committed(node).offset == at + 1
            origin = read_times(at + 1, committed(node).metadata).origin
            assert origin >= (now_ms() + AHEAD_MS - 60_000) * 1_000, "of that incarnation"

    story(tell, GroupSection(auto_offset_reset="earliest", reliable=reliable), *KEYS)


class CountingCommits(ScriptedCommits):
    looked = 0

    async def fetch_some(  # type: ignore[override]
        self, group: str, partitions: object, *, attempts_max: int = 1
    ) -> dict[object, Committed | Refused | None]:
        self.looked += 1
        return await ScriptedCommits.fetch_some(  # type: ignore[return-value]
            self,
            group,
            partitions,  # type: ignore[arg-type]
            attempts_max=attempts_max,
        )


def test_a_group_at_work_does_not_look_before_each_commit() -> None:
    commits = CountingCommits()

    async def tell(node: Node) -> None:
        await acquire(node.window()).persisted
        for at in range(4):
            await node.window().ask(accept(at))
            await node.windows.committer.commit()
        assert (committed(node).offset, commits.looked) == (4, 1), "once, after it was loaded"
        node.commits.errors = [int(ErrorCode.UNKNOWN_MEMBER_ID)]
        for at in (4, 5, 6):
            await node.window().ask(accept(at))
            await node.windows.committer.commit()
        assert (committed(node).offset, commits.looked) == (7, 2), "and after one that failed"

    story(tell, None, *KEYS, commits=commits)


@pytest.mark.parametrize("failure", [Unreachable("away"), Refused(15, "offsets")])
def test_what_cannot_be_looked_at_is_not_written(failure: Unreachable | Refused) -> None:
    async def tell(node: Node) -> None:
        await worked(node, 0)
        node.commits.failure = failure
        with structlog.testing.capture_logs() as logs:
            await node.windows.committer.commit()
            await node.windows.committer.commit()
        assert node.commits.requests == []
        (said,) = [line for line in logs if line["event"] == "commit_failed"]
        refused = isinstance(failure, Refused)
        assert said["error"] == ("COORDINATOR_NOT_AVAILABLE" if refused else "NETWORK_EXCEPTION")
        await asyncio.sleep(WINDOW_IDLE_MS_MAX / 1000 + 1)
        assert len(node.windows.table.all()) == 1, "Kafka does not know yet"
        node.commits.failure = None
        await node.windows.committer.commit()
        assert committed(node).offset == 1

    story(tell, None, *KEYS)


@pytest.mark.parametrize("theirs", [Committed(7, -1, ""), Committed(7, -1, encode(7, []))])
def test_a_commit_without_an_origin_is_written_over(theirs: Committed) -> None:
    """Positions of Key-Shared groups are set through the gateway."""

    async def tell(node: Node) -> None:
        await worked(node, 0)
        node.commits.committed[GROUP, 0] = theirs
        await node.windows.committer.commit()
        assert committed(node).offset == 1

    story(tell, None, *KEYS)


def test_offsets_that_kafka_has_forgotten_or_will_are_committed_again() -> None:
    """offsets.retention.minutes passes, or somebody deletes them, and nothing happens meanwhile."""

    async def tell(node: Node) -> None:
        await acquire(node.window(), 1).persisted
        await node.window().ask(accept(0))
        await node.windows.committer.commit()
        before, node.commits.committed = committed(node), {}
        for _ in range(3):
            await node.windows.committer.commit()
        assert node.commits.committed == {}, "not with each round"
        await rest(node, node.commits.repeat_ms // 2 + 1)
        node.commits.errors = [int(ErrorCode.COORDINATOR_NOT_AVAILABLE)]
        await node.windows.committer.commit()
        assert node.commits.committed == {}
        await node.windows.committer.commit()
        assert committed(node) == before, "the next round tries again"

    story(tell, None, *KEYS)


PARTITIONS = 400
REPEAT_MS = 100_000


def test_windows_at_rest_are_committed_again_in_turn() -> None:
    """Each in time, and never all at once."""

    async def work() -> None:
        commits = ScriptedCommits(repeat_ms=REPEAT_MS)
        async with Node(topology=topology(PARTITIONS), commits=commits) as node:
            node.beat()
            await settle()
            committer, rounds = node.windows.committer, REPEAT_MS // COMMIT_MS
            at: list[dict[int, int]] = []  # rounds by partition, in each time
            for _ in range(2):
                at.append({})
                for number in range(rounds):
                    commits.requests.clear()
                    await committer.commit()
                    some = [commit.tp.partition for group in commits.requests for commit in group]
                    at[-1] |= dict.fromkeys(some, number)
                    if len(at) > 1:
                        assert len(some) <= 2 * PARTITIONS / rounds + 1
                    await rest(node, COMMIT_MS)
            assert [len(some) for some in at] == [PARTITIONS] * 2

    run(work())


def test_a_start_is_committed_as_soon_as_the_window_is_up() -> None:
    async def work() -> None:
        async with Node(GroupSection(auto_offset_reset="latest"), topology=topology(3)) as node:
            node.log.produce(b"a", b"b")
            task = asyncio.create_task(node.windows.committer.commit_loaded_forever())  # noqa: TID251
            node.beat()
            await asyncio.sleep(1)
            assert committed(node).offset == 2
            assert [len(some) for some in node.commits.requests] == [3], "all in one request"
            task.cancel()

    run(work())


def test_a_commit_of_many_busy_windows_lets_others_have_their_turn(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each has a hundred settled ranges. A turn of the event loop captures some windows, or encodes
    one.
    """
    partitions, records = 2 * CAPTURED_AT_ONCE + 1, 200
    turn = 0
    encoded: list[int] = []  # the turn of each

    def counted(*given: Any, **named: Any) -> str:
        encoded.append(turn)
        return encode(*given, **named)

    async def count_turns() -> None:
        nonlocal turn
        while True:
            turn += 1
            await asyncio.sleep(0)

    async def work() -> None:
        async with Node(topology=topology(partitions)) as node:
            for partition in range(partitions):
                node.log.records[partition] = [b"key-%d" % at for at in range(records)]
            node.beat()
            await settle()
            for window in node.windows.table.all():
                await acquire(window, records).persisted
                await window.ask(accept(*range(1, records, 2)))
            counting = node.tasks.create_task(count_turns())
            node.store.applied.clear()
            monkeypatch.setattr(committing, "encode_commit", counted)
            await node.windows.committer.commit()
            counting.cancel()
            captured = [len(writes) for writes in node.store.applied]
            assert sum(captured) == partitions
            assert max(captured) <= CAPTURED_AT_ONCE
            assert len(node.commits.committed) == partitions

    run(work())
    assert len(set(encoded)) == len(encoded) == partitions


def test_a_commit_of_many_windows_waits_once_for_a_store_that_is_away() -> None:
    """Each write to it takes seconds to fail."""

    async def work() -> None:
        async with Node(topology=topology(10 * CAPTURED_AT_ONCE)) as node:
            for partition in range(10 * CAPTURED_AT_ONCE):
                node.log.produce(b"key", partition=partition)
            node.beat()
            await settle(200)
            assert all(window.dispatcher is not None for window in node.windows.table.all())
            node.store.applied.clear()
            node.store.failures = [StoreError("away")] * 99
            await node.windows.committer.commit()
            assert len(node.store.applied) == 4, "each portion is tried again once"
            node.store.failures.clear()

    run(work())
