"""The ends of logs, and open transactions that hold them up."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from gateway.core.cluster.topology import TopicPartition
from gateway.core.reading.cache import Source
from gateway.core.wire.errors import ErrorCode
from gateway.operations.lag import Held
from gateway.operations.limits import TRANSACTION_TOLD_MS, TRANSACTIONS_NAMED
from gateway.operations.log_ends import LogEnds, OpenTransaction
from tests.rig.admin_parts import Admin, worked
from tests.rig.node_parts import GROUP, TOPIC, TOPIC_ID, topology
from tests.rig.virtual_time import now_ms, run

COMMITTED = Source(TopicPartition(TOPIC, TOPIC_ID, 0), 1)
WHOLE = Source(COMMITTED.tp, 0)
BOTH = (COMMITTED, WHOLE)
TOLD_S = TRANSACTION_TOLD_MS / 1000


def story(tell: Callable[[Admin, LogEnds], Awaitable[None]]) -> None:
    """Four records are in the log, and a transaction has begun with the second."""

    async def work() -> None:
        admin = Admin()
        async with admin.node as node:
            node.log.produce(b"a", b"b", b"c", b"d")
            admin.view.stable[0] = 1
            await tell(admin, LogEnds(admin.view, now_ms))

    run(work())


def test_a_transaction_that_lasts_holds_up_the_readers_of_committed_records() -> None:
    async def tell(admin: Admin, ends: LogEnds) -> None:
        await ends.look(BOTH, transactions=True)
        began_ms = now_ms()
        assert (ends.of(COMMITTED), ends.of(WHOLE)) == (1, 4)
        assert ends.take_moved() == {COMMITTED, WHOLE}
        await asyncio.sleep(TOLD_S - 1)
        await ends.look(BOTH)
        assert (ends.held(COMMITTED), ends.of(COMMITTED), ends.take_moved()) == (None, 1, set())
        await asyncio.sleep(1)
        admin.node.log.produce(b"e")
        await ends.look(BOTH)
        assert ends.held(COMMITTED) == OpenTransaction(1, began_ms, 5)
        assert (ends.held(WHOLE), ends.of(COMMITTED)) == (None, 5), "it falls behind"
        assert COMMITTED in ends.take_moved()
        del admin.view.stable[0]
        await ends.look(BOTH)
        assert (ends.held(COMMITTED), ends.of(COMMITTED)) == (None, 5)
        assert ends.take_moved() == {COMMITTED}, "members may read on"

    story(tell)


def test_one_transaction_after_the_other_holds_nobody_up() -> None:
    async def tell(admin: Admin, ends: LogEnds) -> None:
        for begins in (1, 2, 3):
            admin.view.stable[0] = begins
            await ends.look(BOTH, transactions=True)
            await asyncio.sleep(TOLD_S)
            assert ends.held(COMMITTED) is None

    story(tell)


def test_the_high_watermark_is_asked_for_where_it_matters() -> None:
    async def tell(admin: Admin, ends: LogEnds) -> None:
        def asked() -> list[int]:
            found = [body["IsolationLevel"] for _, body in admin.view.asked]
            admin.view.asked.clear()
            return found

        await ends.look([COMMITTED])
        assert asked() == [1], "nobody has looked for a transaction"
        await ends.look([COMMITTED], transactions=True)
        assert asked() == [1, 0]
        await ends.look([COMMITTED])
        assert asked() == [1, 0], "one is open"
        del admin.view.stable[0]
        await ends.look([COMMITTED])
        assert asked() == [1], "none is"
        await ends.look([WHOLE], transactions=True)
        assert asked() == [0]

    story(tell)


@pytest.mark.parametrize("known", [False, True])
def test_of_a_log_that_nobody_tells_of_nothing_new_is_said(*, known: bool) -> None:
    async def tell(admin: Admin, ends: LogEnds) -> None:
        await ends.look(BOTH, transactions=True)
        await asyncio.sleep(TOLD_S)
        if known:
            await ends.look(BOTH)
        admin.view.errors[0] = ErrorCode.NOT_LEADER_OR_FOLLOWER
        await ends.look(BOTH, transactions=True)
        assert (ends.held(COMMITTED) is not None) is known
        await ends.look((), all_there_are=True)
        assert (ends.held(COMMITTED), ends.of(COMMITTED)) == (None, None), "nobody reads it"

    story(tell)


def test_a_group_that_is_held_up_falls_behind_and_says_so() -> None:
    async def work() -> None:
        admin = Admin()
        async with admin.node as node:
            await worked(admin)
            lags = admin.lags()
            for window in node.windows.table.all():
                node.windows.table.drop(window.key)
            admin.view.stable[1] = 0
            admin.times.made_ms = now_ms() - 10_000
            node.log.produce(b"k", b"k", partition=1)

            def second() -> tuple[int | None, float | None, Held | None]:
                _, lag = lags.all()
                return lag.records, lag.seconds, lag.held

            await lags.refresh(stored=True)
            assert (second(), lags.warnings()) == ((0, 0.0, None), [])
            await asyncio.sleep(TOLD_S)
            await lags.refresh(stored=False)
            assert second() == (2, 70.0, Held(0, 60.0))
            assert (await lags.by_group())[GROUP].held == 1
            assert lags.warnings() == [
                "orders-1 waits for an open transaction at offset 0, for 60 s or longer: 2 offsets"
                " are behind it"
            ]
            del admin.view.stable[1]
            await lags.refresh(stored=False)
            assert (second()[::2], lags.warnings()) == ((2, None), [])

    run(work())


def test_of_many_logs_that_transactions_hold_up_some_are_named() -> None:
    async def work() -> None:
        admin = Admin()
        partitions = TRANSACTIONS_NAMED + 3
        async with admin.node as node:
            node.change_topology(topology(partitions))
            node.groups.ensure(GROUP)
            for partition in range(partitions):
                admin.view.stable[partition] = 0
                node.log.produce(b"k", partition=partition)
                tp = TopicPartition(TOPIC, TOPIC_ID, partition)
                await admin.offsets.set_positions(GROUP, {tp: 0})
            lags = admin.lags()
            await lags.refresh(stored=True)
            await asyncio.sleep(TOLD_S)
            await lags.refresh(stored=False)
            *named, more = lags.warnings()
            assert (len(named), more) == (TRANSACTIONS_NAMED, "so do 3 more partitions")

    run(work())
