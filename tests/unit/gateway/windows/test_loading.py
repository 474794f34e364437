"""The state of a loaded window when store and commit differ."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, replace

import pytest

from dispatcher.core.epochs import NOT_KNOWN
from dispatcher.core.model import Acknowledge, AckType, Acquire, PoisonPolicy
from dispatcher.core.steps import RetryState, Snapshot
from dispatcher.store.base import StoreError
from gateway.config.groups import GroupSection
from gateway.core.cluster.topology import TopicPartition
from gateway.core.wire.errors import ErrorCode
from gateway.upstream.commits import Committed
from gateway.upstream.errors import Unreachable
from gateway.windows.limits import COMMIT_WAIT_S_MAX
from keyway.commit_metadata.core.metadata import encode as encode_commit
from keyway.commit_metadata.core.metadata import read
from tests.rig.node_parts import GROUP, Node, ScriptedCommits
from tests.rig.virtual_time import now_ms, run, settle, until
from tests.unit.gateway.windows.test_window import M1, S1, accept, acquire, story

KEYS = [b"key-%d" % at for at in range(8)]
BACKOFF_S = 20  # within the lock: the member counts as at work


async def reloaded(node: Node) -> None:
    window = node.window()
    window.fail(StoreError("away for a moment"))
    await until(lambda: window.dispatcher is not None)
    await settle()


async def worked(node: Node, *offsets: int) -> None:
    """A member has acquired all there is and accepted these."""
    await acquire(node.window()).persisted
    await node.window().ask(accept(*offsets))


def origin_committed(commits: ScriptedCommits) -> int:
    committed = commits.committed[GROUP, 0]
    return read(committed.offset, committed.metadata)[1]


def test_a_node_whose_clock_was_ahead_has_held_up_no_key_for_as_long() -> None:
    async def tell(node: Node) -> None:
        await worked(node, *range(1, 8))
        await node.window().ask(accept(0, kind=AckType.RELEASE))
        stored = node.store.windows[node.window().key]
        stored.retries[0] = replace(stored.retries[0], due_ms=now_ms() + 3_600_000)
        await reloaded(node)
        assert node.window().acquire(Acquire(M1, S1, 100, now_ms())) is None, "it still waits"
        await asyncio.sleep(BACKOFF_S + 1)
        assert acquire(node.window()).offsets == [0]

    story(tell, GroupSection(auto_offset_reset="earliest", backoff_max_ms=BACKOFF_S * 1000), *KEYS)


def test_a_store_that_fell_behind_learns_from_the_commit_what_is_settled() -> None:
    async def tell(node: Node) -> None:
        await worked(node, 0)
        before = node.store.dump()
        await node.window().ask(accept(1, 4, 5))
        await node.windows.committer.commit()
        await node.window().ask(accept(3))
        node.store.set_back(before)
        await reloaded(node)
        key = node.window().key
        stored = node.store.windows[key].snapshot()
        assert (stored.cursor, stored.settled) == (2, [(4, 5)]), "3 was in no commit"
        assert [lease.offsets for lease in stored.leases] == [[2, 3, 6, 7]], "still leased"
        assert node.store.origins[key] > before.origins[key], "a life of its own"
        await node.window().ask(accept(2, 3, 6, 7))
        assert node.stored[key] == 8

    story(tell, None, *KEYS)


def test_a_store_that_is_ahead_is_left_as_it_is() -> None:
    async def tell(node: Node) -> None:
        await worked(node, 0, 2)
        await node.windows.committer.commit()
        await node.window().ask(accept(1, 4))
        before, life = node.store.windows[node.window().key], dict(node.store.origins)
        await reloaded(node)
        assert node.store.windows[node.window().key] is before
        assert node.store.origins == life

    story(tell, None, *KEYS)


def test_records_lost_from_the_log_are_not_brought_back_by_an_old_commit() -> None:
    """The log ends below the window's position, and nothing was committed since."""

    async def tell(node: Node) -> None:
        await worked(node, *range(8))
        await node.windows.committer.commit()
        node.log.refuse(ErrorCode.OFFSET_OUT_OF_RANGE, log_end=3)
        await until(lambda: node.window().dispatcher is not None)
        for _ in range(2):
            assert node.stored[node.window().key] == 3
            await reloaded(node)
        assert node.commits.committed[GROUP, 0].offset == 8
        await node.windows.committer.commit()
        assert node.commits.committed[GROUP, 0].offset == 3
        assert origin_committed(node.commits) == node.store.origins[node.window().key]

    story(tell, None, *KEYS)


@pytest.mark.parametrize("reset", ["earliest", "latest", "by_duration:PT1H"])
@pytest.mark.parametrize("store_lost", [False, True])
def test_records_that_the_log_has_kept_are_as_they_were(reset: str, *, store_lost: bool) -> None:
    """Before the end of the log, wherever the group's first record was: one is in flight, one is
    parked, the others are settled.
    """

    async def tell(node: Node) -> None:
        node.beat()
        await settle()
        window = node.window()
        node.log.produce(*KEYS)
        await settle()
        await worked(node, *range(3, 8))
        await window.ask(Acknowledge(M1, S1, [(1, 1, bytes([AckType.REJECT]))], now_ms()))
        await window.ask(accept(0))
        await node.windows.committer.commit()
        if store_lost:
            node.store.flush()
        del node.log.records[0][6:]
        node.log.refuse(ErrorCode.OFFSET_OUT_OF_RANGE, log_end=6)
        await until(lambda: window.dispatcher is not None)
        await settle()
        stored = node.store.windows[window.key].snapshot()
        assert (stored.cursor, stored.settled) == (1, [(3, 5)])
        if not store_lost:
            assert [lease.offsets for lease in stored.leases] == [[2]]
            assert [retry.state for retry in stored.retries] == [RetryState.PARKED]
        node.log.produce(b"new")
        await settle()
        assert acquire(window).offsets == ([1, 2, 6] if store_lost else [6])

    async def work() -> None:
        async with Node(GroupSection(auto_offset_reset=reset, rejected=PoisonPolicy.BLOCK)) as node:
            await tell(node)

    run(work())


@pytest.mark.parametrize("lost", ["nothing", "store", "process"])
def test_other_records_that_took_the_offsets_of_lost_ones_are_new(lost: str) -> None:
    """The log has lost 3 and later, and grew behind the window's position before it read on."""

    async def tell(node: Node) -> None:
        await worked(node, 0, 1, 3, 4, 5)
        await node.windows.committer.commit()
        assert node.commits.committed[GROUP, 0].leader_epoch == 0
        node.log.elect(3)
        node.log.records[0] += [b"new-%d" % at for at in range(3, 12)]
        if lost == "store":
            node.store.flush()
        if lost != "nothing":
            node.window().fail(StoreError("away for a moment"))
        node.log.serve()
        await settle()
        key = node.window().key
        await until(
            lambda: key in node.store.windows and node.store.windows[key].snapshot().epoch == 1
        )
        await settle()
        stored = node.store.windows[key].snapshot()
        assert (stored.cursor, stored.settled, stored.epoch) == (2, [], 1)
        assert acquire(node.window()).offsets == [*([2] if lost == "store" else []), *range(3, 12)]

    story(tell, None, *KEYS)


def test_a_position_that_was_set_since_is_not_cut() -> None:
    """Whoever set it knows the log as it is now."""

    async def tell(node: Node) -> None:
        await worked(node, *range(8))
        await node.windows.committer.commit()
        node.store.down = True
        node.log.refuse(ErrorCode.OFFSET_OUT_OF_RANGE, log_end=3)
        node.log.elect(3)
        node.log.records[0] += [b"new-%d" % at for at in range(3, 12)]
        origin = node.store.origins[node.window().key] + 1
        node.commits.committed[GROUP, 0] = Committed(9, -1, encode_commit(9, [], origin=origin))
        node.store.down = False
        await until(lambda: node.window().dispatcher is not None)
        assert node.stored[node.window().key] == 9

    story(tell, None, *KEYS)


def test_another_leader_that_has_every_record_changes_nothing() -> None:
    async def tell(node: Node) -> None:
        await worked(node, 0, 1, 3)
        origins = dict(node.store.origins)
        node.log.elect(8)
        node.log.produce(b"late")
        await settle()
        assert acquire(node.window()).offsets == [8]
        await reloaded(node)
        stored = node.store.windows[node.window().key].snapshot()
        assert (stored.cursor, stored.settled, stored.epoch) == (2, [(3, 3)], 1)
        assert node.store.origins == origins

    story(tell, None, *KEYS)


def test_an_epoch_is_that_of_a_record_that_was_read() -> None:
    """Never the leader's of now: it may be that of before a change that lost nothing, or of after
    one that did. What is given up has none.
    """

    async def tell(node: Node) -> None:
        stored = node.store.windows[node.window().key]
        assert stored.epochs == ((0, 0),)
        stored.epochs = ()  # as a former version left it
        await reloaded(node)
        node.log.elect(8)
        node.log.produce(b"late")
        await settle()
        assert acquire(node.window()).offsets == [*range(9)]
        await node.window().give_up(10)
        assert stored.snapshot().epochs == ((0, 0), (1, 8))
        assert stored.cursor == 0

    story(tell, None, *KEYS)


@pytest.mark.parametrize("of_before", [False, True])
def test_a_commit_tells_where_each_leader_epoch_began(*, of_before: bool) -> None:
    """It is all that a lost store leaves. An earlier version named the last epoch alone."""

    async def tell(node: Node) -> None:
        node.log.elect(8)
        node.log.produce(b"late")
        await settle()
        await worked(node, *range(9))
        await node.windows.committer.commit()
        committed = node.commits.committed[GROUP, 0]
        assert (committed.offset, committed.leader_epoch) == (9, 1)
        if of_before:
            text = encode_commit(9, [], origin=origin_committed(node.commits), settled_ms=1)
            node.commits.committed[GROUP, 0] = Committed(9, 1, text)
        node.store.flush()
        await reloaded(node)
        kept = ((1, NOT_KNOWN),) if of_before else ((0, 0), (1, 8))
        assert node.store.windows[node.window().key].snapshot().epochs == kept

    story(tell, None, *KEYS)


@pytest.mark.parametrize("metadata", ["", "of somebody else", encode_commit(7, [])])
def test_a_commit_that_is_not_of_this_window_adds_nothing(metadata: str) -> None:
    async def tell(node: Node) -> None:
        await worked(node, 0)
        node.commits.committed[GROUP, 0] = Committed(7, -1, metadata)
        await reloaded(node)
        assert node.stored[node.window().key] == 1

    story(tell, None, *KEYS)


@dataclass(slots=True)
class SilentCommits(ScriptedCommits):
    silent: bool = False

    async def fetch(self, group: str, tp: TopicPartition) -> Committed | None:
        if self.silent:
            await asyncio.Event().wait()
        return await ScriptedCommits.fetch(self, group, tp)


@pytest.mark.parametrize("silent", [False, True])
def test_without_a_coordinator_the_store_is_believed(*, silent: bool) -> None:
    commits = SilentCommits()

    async def tell(node: Node) -> None:
        await worked(node, 0)
        commits.silent = silent
        commits.failure = Unreachable("no coordinator")
        before = now_ms()
        await reloaded(node)
        assert now_ms() - before < COMMIT_WAIT_S_MAX * 1_000 + 500
        assert node.stored[node.window().key] == 1

    story(tell, None, *KEYS, commits=commits)


def test_what_an_unreliable_group_committed_is_later_than_what_a_store_could_not_forget() -> None:
    async def tell(node: Node) -> None:
        await acquire(node.window(), 3).persisted
        await node.windows.committer.commit()
        claimed = await node.store.claim(node.window().key, "earlier")
        await node.store.create(node.window().key, claimed.fence, Snapshot(cursor=1))
        assert origin_committed(node.commits) > claimed.fence

    story(tell, GroupSection(auto_offset_reset="earliest", reliable=False), *KEYS)
