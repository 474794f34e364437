"""Each alert of the lag of groups is silent while all is well, and fires when it should."""

from __future__ import annotations

import asyncio

import pytest

from gateway.core.cluster.topology import TopicPartition
from gateway.core.share.membership import ShareGroup
from gateway.operations.lag import Held, Lag
from gateway.operations.metrics import LagCollector
from tests.rig.alerts import Stories, Watch, rules
from tests.rig.virtual_time import run

RULES = rules()
PLACE = TopicPartition("orders", b"t" * 16, 3)
STORIES = Stories()


@STORIES.of("KeywayLagGrows")
async def a_group_falls_behind(watch: Watch) -> None:
    cursor, end = 0, 50_000
    watch.register(
        LagCollector(lambda _: [Lag("g", PLACE, cursor, end, end - cursor)], list, frozenset)
    )

    async def before() -> None:
        nonlocal cursor, end
        cursor, end = cursor + 1_000, end + produced

    produced, watch.before = 900, before
    await watch.calm()  # much behind, and catching up
    produced = 1_100
    await watch.amiss()


@STORIES.of("KeywayGroupsLeftOut")
async def jobs_leave_their_groups_behind(watch: Watch) -> None:
    left_out = frozenset[str]()
    watch.register(LagCollector(lambda _: [], list, lambda: left_out))
    await watch.calm()
    left_out = frozenset({"job-1"})
    await watch.amiss(12)


@STORIES.of("KeywayGroupStopped")
async def a_group_has_no_members(watch: Watch) -> None:
    """On a quiet topic that is nobody's concern."""
    end, produced = 50, 0
    group = ShareGroup("g", 1, 1, 1, 1)
    watch.register(
        LagCollector(lambda _: [Lag("g", PLACE, 0, end, end)], lambda: [group], frozenset)
    )

    async def before() -> None:
        nonlocal end
        end += produced

    watch.before = before
    await watch.calm()
    produced = 1
    await watch.amiss(15)


@STORIES.of("KeywayGroupLate")
async def the_oldest_record_waits(watch: Watch) -> None:
    stopped_at: float | None = None

    def lags(_: frozenset[str]) -> list[Lag]:
        age = 2.0 if stopped_at is None else asyncio.get_running_loop().time() - stopped_at
        return [Lag("g", PLACE, 5, 9, 4, age)]

    watch.register(LagCollector(lags, list, frozenset))
    await watch.calm()
    stopped_at = asyncio.get_running_loop().time()
    await watch.amiss(12)


@STORIES.of("KeywayGroupStands")
async def a_group_stands(watch: Watch) -> None:
    """In one of its partitions; the others go on."""
    cursor, end, read = 0, 10, 5
    busy = TopicPartition("orders", b"t" * 16, 4)

    def lags(_: frozenset[str]) -> list[Lag]:
        return [Lag("g", PLACE, cursor, end, end - cursor), Lag("g", busy, end - 1, end, 1)]

    watch.register(LagCollector(lags, list, frozenset))

    async def before() -> None:
        nonlocal cursor, end
        cursor, end = cursor + read, end + 5

    watch.before = before
    await watch.calm()
    read = 0
    await watch.amiss()


@STORIES.of("KeywayTransactionHangs")
async def a_transaction_is_never_ended(watch: Watch) -> None:
    begun_s: float | None = None

    def lags(_: frozenset[str]) -> list[Lag]:
        held = None if begun_s is None else Held(5, asyncio.get_running_loop().time() - begun_s)
        return [Lag("g", PLACE, 5, 9, 4, 1.0, held=held)]

    watch.register(LagCollector(lags, list, frozenset))
    await watch.calm()
    begun_s = asyncio.get_running_loop().time()
    await watch.amiss(6)


@pytest.mark.parametrize("alert", STORIES)
def test_an_alert_fires_when_its_condition_happens_and_not_before(alert: str) -> None:
    run(STORIES[alert](Watch(RULES[alert])))
