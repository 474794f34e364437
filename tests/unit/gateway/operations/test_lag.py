"""The lag of groups: also of those that stopped, and of partitions that nobody answers for."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest
import structlog

from dispatcher.store.base import StoreError, WindowKey
from gateway.config import GroupSection
from gateway.core.wire.errors import ErrorCode
from gateway.operations.lag import Lag, Lags
from gateway.operations.limits import LAG_ANSWER_S_MAX, LAG_MS, LAG_REFRESH_S_MAX
from tests.rig.admin_parts import Admin, AdminStore, worked
from tests.rig.node_parts import GROUP, TOPIC, topology
from tests.rig.virtual_time import now_ms, run

Figures = dict[int, tuple[int, int | None, int | None]]  # cursor, log end, lag by partition


def figures(lags: Lags) -> Figures:
    def one(lag: Lag) -> tuple[int, int | None, int | None]:
        assert (lag.group, lag.tp.topic) == (GROUP, TOPIC)
        return lag.cursor, lag.log_end, lag.records

    return {lag.tp.partition: one(lag) for lag in lags.all()}


def story(
    tell: Callable[[Admin, Lags], Awaitable[None]], section: GroupSection | None = None
) -> None:
    """Runs `tell` where a group has settled 0 to 3 and 5 of 6 records, and nobody is there."""

    async def work() -> None:
        admin = Admin(section=section)
        async with admin.node:
            await worked(admin)
            await tell(admin, Lags(admin.offsets))

    run(work())


def test_what_is_settled_behind_the_cursor_is_no_lag() -> None:
    async def tell(admin: Admin, lags: Lags) -> None:
        assert figures(lags) == {}, "nothing was looked at yet"
        await lags.refresh(stored=True)
        assert figures(lags) == {0: (4, 6, 1), 1: (0, 0, 0)}
        ((leader, asked),) = admin.view.asked
        assert (leader, asked["IsolationLevel"]) == (1, 1)

    story(tell)


def test_a_group_that_stopped_falls_behind() -> None:
    """Its windows leave memory, the log goes on; also after a restart, when only the store knows
    where it stands, without the records settled behind.
    """

    async def tell(admin: Admin, lags: Lags) -> None:
        await lags.refresh(stored=True)
        for window in admin.node.windows.all():
            admin.node.windows.drop(window.key)
        admin.node.log.produce(b"k", b"k", partition=0)
        admin.node.log.produce(b"k", partition=1)
        await lags.refresh(stored=False)
        assert figures(lags) == {0: (4, 8, 3), 1: (0, 1, 1)}
        await lags.refresh(stored=True)
        assert figures(lags) == {0: (4, 8, 3), 1: (0, 1, 1)}
        restarted = Lags(admin.offsets)
        await restarted.refresh_group(GROUP)
        assert figures(restarted) == {0: (4, 8, 4), 1: (0, 1, 1)}

    story(tell)


def test_a_partition_that_nobody_answers_for_keeps_its_own_row_behind() -> None:
    async def tell(admin: Admin, lags: Lags) -> None:
        admin.view.errors[1] = ErrorCode.NOT_LEADER_OR_FOLLOWER
        await lags.refresh(stored=True)
        assert figures(lags) == {0: (4, 6, 1), 1: (0, None, None)}
        admin.view.silent.add(1)
        admin.node.log.produce(b"k", partition=0)
        await lags.refresh(stored=False)
        assert figures(lags) == {0: (4, 6, 1), 1: (0, None, None)}, "as it was seen last"
        assert admin.view.asked

    story(tell)


def test_a_broker_that_hangs_is_not_waited_for() -> None:
    async def tell(admin: Admin, lags: Lags) -> None:
        await lags.refresh(stored=True)
        admin.view.gate = asyncio.Event()
        admin.node.log.produce(b"k", partition=0)
        began = now_ms()
        await lags.refresh(stored=False)
        assert now_ms() - began == LAG_ANSWER_S_MAX * 1000
        began = now_ms()
        await lags.refresh_group(GROUP)
        assert now_ms() - began == LAG_REFRESH_S_MAX * 1000
        assert figures(lags) == {0: (4, 6, 1), 1: (0, 0, 0)}, "as it was seen last"

    story(tell)


def test_a_position_set_or_deleted_by_hand_is_seen_by_who_asks() -> None:
    async def tell(admin: Admin, lags: Lags) -> None:
        await lags.refresh(stored=True)
        tps = {lag.tp.partition: lag.tp for lag in lags.all()}
        await admin.offsets.set_positions(GROUP, {tps[0]: 2})
        await admin.offsets.forget_windows(GROUP, lambda key: key.partition == 1)
        admin.node.windows.drop(admin.key(1))
        await lags.refresh_group(GROUP)
        assert figures(lags) == {0: (2, 6, 4)}

    story(tell)


def test_groups_and_topics_that_are_gone_have_no_lag() -> None:
    async def tell(admin: Admin, lags: Lags) -> None:
        await lags.refresh(stored=True)
        assert admin.node.windows.asked_for == {TOPIC}
        admin.node.groups.forget(GROUP)
        assert figures(lags) == {}
        admin.node.groups.ensure(GROUP)
        assert len(figures(lags)) == 2
        admin.node.change_topology(topology(2, topic_id=b"another".ljust(16)))
        admin.view.asked.clear()
        await lags.refresh(stored=True)
        assert figures(lags) == {}
        assert not admin.view.asked

    story(tell)


def test_a_group_of_which_nothing_is_stored() -> None:
    """Unreliable: where it was seen last, as long as the node knows it."""

    async def tell(admin: Admin, lags: Lags) -> None:
        await lags.refresh(stored=True)
        before = figures(lags)
        assert before[0][1] == 6
        for window in admin.node.windows.all():
            admin.node.windows.drop(window.key)
        await lags.refresh(stored=True)
        assert figures(lags) == before
        admin.node.groups.forget(GROUP)
        await lags.refresh(stored=True)
        admin.node.groups.ensure(GROUP)
        assert figures(lags) == {}

    story(tell, GroupSection(auto_offset_reset="earliest", reliable=False))


class Away(AdminStore):
    """Does not tell positions at first."""

    def __init__(self, *refusals: Exception) -> None:
        super().__init__()
        self.refusals = list(refusals)

    async def positions(self, group: str | None) -> dict[WindowKey, int]:
        if self.refusals:
            raise self.refusals.pop(0)
        return await super().positions(group)


@pytest.mark.parametrize(
    ("refusal", "event"),
    [(StoreError("away"), "lag_not_known"), (KeyError("a bug"), "lag_not_looked_at")],
)
def test_looks_go_on(refusal: Exception, event: str) -> None:
    async def work() -> None:
        admin = Admin(store=Away(refusal, refusal))
        lags = Lags(admin.offsets)
        async with admin.node, asyncio.TaskGroup() as tasks:
            with structlog.testing.capture_logs() as logs:
                looking = tasks.create_task(lags.refresh_forever())
                await worked(admin)
                await asyncio.sleep(1.5 * LAG_MS / 1000)
                assert figures(lags) == {}
                await lags.refresh_group(GROUP)
            said = [line["event"] for line in logs if line["event"].startswith("lag")]
            expected = 1 if isinstance(refusal, StoreError) else 2
            assert said == [event] * expected, "an outage is said once, a bug whenever it shows"
            assert figures(lags)[0] == (4, 6, 1), "the caller is answered"
            admin.node.log.produce(b"k", partition=0)
            await asyncio.sleep(LAG_MS / 1000)
            assert figures(lags)[0] == (4, 7, 2)
            looking.cancel()

    run(work())
