"""The lag of groups: also of those that stopped, and of partitions that nobody answers for."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest
import structlog

from dispatcher.core.model import Acknowledge, Acquire
from dispatcher.store.base import StoreError, WindowKey
from gateway.config.groups import GroupSection
from gateway.core.wire.errors import ErrorCode
from gateway.operations.errors import StateUnavailable
from gateway.operations.lag import Lag, Lags
from gateway.operations.lag_sums import GroupLag
from gateway.operations.limits import (
    LAG_ANSWER_S_MAX,
    LAG_MS,
    LAG_REFRESH_S_MAX,
    LAG_TOLD_MS,
    OLDEST_LOOK_S_MAX,
)
from gateway.upstream.errors import Refused, Unreachable
from tests.rig.admin_parts import M1, S1, Admin, AdminStore, worked
from tests.rig.node_parts import GROUP, TOPIC, topology
from tests.rig.virtual_time import now_ms, run, settle

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
            await tell(admin, admin.lags())

    run(work())


def test_what_is_settled_behind_the_cursor_is_no_lag() -> None:
    async def tell(admin: Admin, lags: Lags) -> None:
        assert figures(lags) == {}, "nothing was looked at yet"
        await lags.refresh(stored=True)
        assert figures(lags) == {0: (4, 6, 1), 1: (0, 0, 0)}
        asked = [(leader, body["IsolationLevel"]) for leader, body in admin.view.asked]
        assert asked == [(1, 1), (1, 0)], "also whether a transaction is open"

    story(tell)


def test_a_group_that_stopped_falls_behind() -> None:
    """Its windows leave memory, the log goes on; also after a restart, when only the store knows
    where it stands, with the records settled behind.
    """

    async def tell(admin: Admin, lags: Lags) -> None:
        await lags.refresh(stored=True)
        for window in admin.node.windows.table.all():
            admin.node.windows.table.drop(window.key)
        admin.node.log.produce(b"k", b"k", partition=0)
        admin.node.log.produce(b"k", partition=1)
        await lags.refresh(stored=False)
        assert figures(lags) == {0: (4, 8, 3), 1: (0, 1, 1)}
        await lags.refresh(stored=True)
        assert figures(lags) == {0: (4, 8, 3), 1: (0, 1, 1)}
        restarted = admin.lags()
        await restarted.refresh_group(GROUP)
        assert figures(restarted) == {0: (4, 8, 3), 1: (0, 1, 1)}

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
        del admin.commits.committed[GROUP, 1]
        admin.node.windows.table.drop(admin.key(1))
        await lags.refresh_group(GROUP)
        assert figures(lags) == {0: (2, 6, 4)}

    story(tell)


@pytest.mark.parametrize("stored", [True, False])
def test_a_group_that_is_forgotten_while_it_is_looked_at_leaves_nothing(
    monkeypatch: pytest.MonkeyPatch, *, stored: bool
) -> None:
    async def tell(admin: Admin, lags: Lags) -> None:
        positions = admin.store.positions

        async def forgotten(group: str | None) -> dict[WindowKey, int]:
            found = await positions(group)
            admin.node.groups.forget(GROUP)
            return found if stored else {}

        monkeypatch.setattr(admin.store, "positions", forgotten)
        await lags.refresh(stored=True)
        await lags.refresh(stored=False)
        for window in admin.node.windows.table.all():
            admin.node.windows.table.drop(window.key)
        assert admin.node.windows.table.parked.of(admin.key(0), None) is None

    story(tell)


def test_groups_and_topics_that_are_gone_have_no_lag() -> None:
    async def tell(admin: Admin, lags: Lags) -> None:
        await lags.refresh(stored=True)
        assert admin.node.windows.table.topics.asked_for == {TOPIC}
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


def stop(admin: Admin) -> None:
    """No window is in memory any more, and the log goes on."""
    for window in admin.node.windows.table.all():
        admin.node.windows.table.drop(window.key)
    admin.node.log.produce(b"k", b"k", partition=0)


def test_a_stopped_group_falls_behind_also_when_the_store_has_lost_its_data() -> None:
    """Its next window starts where Kafka has it; what is parked is not known, and no 0."""

    async def tell(admin: Admin, lags: Lags) -> None:
        parked = admin.node.windows.table.parked
        stop(admin)
        await lags.refresh(stored=True)
        assert parked.of(admin.key(0), None) == 0
        admin.store.flush()
        for seen in (lags, admin.lags()):  # the second one: a node that was restarted
            await seen.refresh(stored=True)
            assert figures(seen) == {0: (4, 8, 3), 1: (0, 0, 0)}
            assert (await seen.by_group())[GROUP].records == 3
        assert parked.of(admin.key(0), None) is None
        await lags.refresh_group(GROUP)
        assert figures(lags)[0] == (4, 8, 3)

    story(tell)


def test_what_neither_the_store_nor_kafka_knows_has_no_lag_any_more() -> None:
    async def tell(admin: Admin, lags: Lags) -> None:
        stop(admin)
        await lags.refresh(stored=True)
        admin.store.flush()
        admin.commits.failure = Refused(ErrorCode.GROUP_AUTHORIZATION_FAILED, "OffsetFetch")
        await lags.refresh(stored=True)
        assert figures(lags)[0] == (4, 8, 3), "Kafka did not say that it has no commit"
        admin.commits.failure = Unreachable("away")
        with pytest.raises(StateUnavailable):
            await lags.refresh(stored=True)
        assert figures(lags)[0] == (4, 8, 3)
        admin.commits.failure = None
        admin.commits.answer_ms = int(LAG_REFRESH_S_MAX * 2_000)
        with pytest.raises(StateUnavailable):
            await lags.refresh(stored=True)
        assert figures(lags)[0] == (4, 8, 3)
        admin.commits.answer_ms = 0
        admin.commits.committed.clear()
        await lags.refresh(stored=True)
        assert figures(lags) == {}

    story(tell)


def test_an_unreliable_group_is_known_after_a_restart() -> None:
    async def tell(admin: Admin, lags: Lags) -> None:
        stop(admin)
        await lags.refresh(stored=True)
        assert figures(lags)[0] == (6, 8, 2), "Kafka has its position"
        assert admin.node.windows.table.parked.of(admin.key(0), None) == 0

    story(tell, GroupSection(auto_offset_reset="earliest", reliable=False))


def test_a_group_of_which_nothing_is_stored() -> None:
    """Unreliable: where it was seen last and has committed, as long as the node knows it."""

    async def tell(admin: Admin, lags: Lags) -> None:
        await lags.refresh(stored=True)
        before = figures(lags)
        assert before[0][1] == 6
        for window in admin.node.windows.table.all():
            admin.node.windows.table.drop(window.key)
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
        lags = admin.lags()
        async with admin.node, asyncio.TaskGroup() as tasks:
            with structlog.testing.capture_logs() as logs:
                looking = tasks.create_task(lags.refresh_forever())
                await worked(admin)
                await asyncio.sleep(1.5 * LAG_MS / 1000)
                # Windows in memory are known also without the store.
                known = {0: (4, 6, 1), 1: (0, 0, 0)} if isinstance(refusal, StoreError) else {}
                assert figures(lags) == known
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


def test_figures_that_are_old_say_so() -> None:
    async def work() -> None:
        store = Away()
        admin = Admin(store=store)
        lags = admin.lags()
        async with admin.node, asyncio.TaskGroup() as tasks:
            await worked(admin)
            assert lags.warnings() == []
            looking = tasks.create_task(lags.refresh_forever())
            await asyncio.sleep(LAG_TOLD_MS / 1000)
            assert lags.warnings() == [], "each look succeeds"
            store.refusals = [StoreError("gone")] * 1_000
            await asyncio.sleep(2 * LAG_TOLD_MS / 1000)
            (line,) = lags.warnings()
            assert line.startswith("the lag of groups may be ")
            assert line.endswith(" s old: gone")
            store.refusals.clear()
            await asyncio.sleep(2 * LAG_MS / 1000)
            assert lags.warnings() == []
            looking.cancel()

    run(work())


def test_logs_grow_while_the_store_is_away() -> None:
    async def work() -> None:
        store = Away()
        admin = Admin(store=store)
        lags = admin.lags()
        async with admin.node:
            await worked(admin)
            await lags.refresh(stored=True)
            store.refusals = [StoreError("away")] * 3
            admin.node.log.produce(*[b"k"] * 100, partition=0)
            with pytest.raises(StateUnavailable):
                await lags.refresh(stored=True)
            assert figures(lags)[0] == (4, 106, 101)
            admin.node.log.produce(*[b"k"] * 100, partition=0)
            await lags.refresh_group(GROUP)
            assert figures(lags)[0] == (4, 206, 201)

    run(work())


# ------------------------------------------------------------------------------------------ seconds


def seconds(lags: Lags) -> dict[int, float | None]:
    return {lag.tp.partition: lag.seconds for lag in lags.all()}


def test_the_lag_in_seconds_is_the_age_of_the_oldest_unsettled_record() -> None:
    """Offset 4 was made 4 s after the first one. A caught-up partition has an age of 0."""

    async def tell(admin: Admin, lags: Lags) -> None:
        admin.times.made_ms = now_ms() - 10_000
        await lags.refresh(stored=True)
        assert seconds(lags) == {0: 6.0, 1: 0.0}
        await asyncio.sleep(5)
        assert seconds(lags) == {0: 11.0, 1: 0.0}, "as of the question, not of the look"
        assert admin.times.looked == [(0, 4)]
        await lags.refresh(stored=False)
        assert admin.times.looked == [(0, 4)], "the group stands there"

    story(tell)


def test_a_record_that_retention_took_is_the_oldest_no_more() -> None:
    async def tell(admin: Admin, lags: Lags) -> None:
        admin.times.made_ms = now_ms() - 10_000
        await lags.refresh(stored=True)
        admin.times.holes = {4: 5}
        await lags.refresh(stored=False)
        assert seconds(lags)[0] == 6.0
        await lags.refresh(stored=True)
        assert seconds(lags)[0] == 5.0
        admin.times.failure = Unreachable("away")
        await lags.refresh_group(GROUP)
        assert seconds(lags)[0] == 5.0, "as it was seen last"

    story(tell)


def test_a_record_in_the_cache_is_not_read_again_also_when_it_has_left_the_cache() -> None:
    async def tell(admin: Admin, lags: Lags) -> None:
        admin.times.made_ms = now_ms() - 10_000
        admin.times.cached = {0}
        await lags.refresh(stored=True)
        admin.times.cached = set()
        assert seconds(lags)[0] == 6.0
        assert admin.times.looked == []

    story(tell)


def test_an_age_that_upstream_does_not_tell_is_not_0() -> None:
    async def tell(admin: Admin, lags: Lags) -> None:
        admin.times.failure = Unreachable("away")
        await lags.refresh(stored=True)
        assert figures(lags)[0] == (4, 6, 1)
        assert seconds(lags) == {0: None, 1: 0.0}
        admin.times.failure = None
        await lags.refresh(stored=False)
        assert seconds(lags)[0] is not None

    story(tell)


def test_the_age_of_a_group_is_not_0_while_that_of_a_partition_is_not_known() -> None:
    """Partition 1 has caught up. Of partition 0 nobody can read the oldest record."""

    async def tell(admin: Admin, lags: Lags) -> None:
        admin.times.failure = Unreachable("away")
        await lags.refresh(stored=True)
        assert seconds(lags) == {0: None, 1: 0.0}
        one = GroupLag()
        for lag in lags.all():
            one.add(lag)
        assert one == (await lags.by_group())[GROUP] == GroupLag(1, None)
        admin.node.log.produce(b"k", partition=1)
        admin.times.made_ms = now_ms() - 10_000
        admin.times.cached = {1}
        first = admin.lags()
        await first.refresh(stored=True)
        assert seconds(first) == {0: None, 1: 10.0}
        assert (await first.by_group())[GROUP].seconds == 10.0, "at least"

    story(tell)


def test_a_window_that_moves_on_has_the_age_of_its_next_record_at_once() -> None:
    async def tell(admin: Admin, lags: Lags) -> None:
        admin.times.made_ms = now_ms() - 10_000
        admin.times.cached = {0}
        await lags.refresh(stored=True)
        node = admin.node
        node.log.produce(b"k", b"k")
        epoch = node.beat()
        await settle()
        acquired = node.window().acquire(Acquire(M1, S1, 100, now_ms()))
        assert acquired is not None
        done = [(o, o, b"\1") for o in acquired.offsets if o < 7]
        await node.window().ask(Acknowledge(M1, S1, done, now_ms()))
        assert seconds(lags)[0] == 3.0, "without a look: offset 7 is in the window"
        assert admin.times.looked == []
        node.beat("m1", epoch)

    story(tell)


def test_a_lag_of_0_stands_beside_no_age() -> None:
    """The window reads and settles records between two looks."""

    async def tell(admin: Admin, lags: Lags) -> None:
        admin.times.made_ms = now_ms() - 10_000
        admin.times.cached = {0, 1}
        await lags.refresh(stored=True)
        assert (figures(lags)[1], seconds(lags)[1]) == ((0, 0, 0), 0.0)
        node = admin.node
        node.log.produce(b"k", b"l", partition=1)
        node.beat()
        await settle()
        assert (figures(lags)[1], seconds(lags)[1]) == ((0, 2, 2), 10.0)
        assert (await lags.by_group())[GROUP] == GroupLag(3, 10.0)
        assert node.window(1).acquire(Acquire(M1, S1, 100, now_ms())) is not None
        await node.window(1).ask(Acknowledge(M1, S1, [(0, 1, b"\1")], now_ms()))
        assert (figures(lags)[1], seconds(lags)[1]) == ((2, 2, 0), 0.0)

    story(tell)


def test_a_stopped_group_at_a_log_that_ends_in_markers_has_caught_up() -> None:
    async def tell(admin: Admin, lags: Lags) -> None:
        admin.times.holes = {4: 6}
        for window in admin.node.windows.table.all():
            admin.node.windows.table.drop(window.key)
        await lags.refresh(stored=True)
        assert seconds(lags)[0] == 0.0
        await lags.refresh(stored=True)
        assert admin.times.looked == [(0, 4)]
        admin.node.log.produce(b"k")
        await lags.refresh(stored=True)
        assert admin.times.looked == [(0, 4), (0, 6)], "the look goes on behind them"
        assert seconds(lags)[0] is not None

    story(tell)


def test_a_broker_that_hangs_does_not_hold_up_the_ages_for_ever() -> None:
    async def tell(admin: Admin, lags: Lags) -> None:
        admin.times.gate = asyncio.Event()
        began = now_ms()
        await lags.refresh(stored=True)
        assert now_ms() - began == OLDEST_LOOK_S_MAX * 1000
        assert seconds(lags)[0] is None

    story(tell)
