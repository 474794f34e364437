"""The lag of groups at rest: it is not computed again, and is the same as if it were."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, replace
from random import Random
from typing import Any

import pytest

from dispatcher.core.model import Acknowledge, Acquire
from gateway.core.reading.cache import Source
from gateway.core.share.membership import Heartbeat
from gateway.operations.lag import Lag, Lags
from gateway.operations.lag_sums import GroupLag
from gateway.reading.record_times import Seen
from gateway.windows.window import Window
from tests.rig.admin_parts import M1, S1, Admin, worked
from tests.rig.node_parts import GROUP, TOPIC
from tests.rig.virtual_time import now_ms, run, settle

STEPS = 120


class Story:
    """One group of two partitions in which anything may happen, drawn from a seed."""

    def __init__(self, admin: Admin, seed: int) -> None:
        self.admin, self.node, self.rng = admin, admin.node, Random(seed)
        self.held: list[tuple[int, int]] = []  # partition, offset
        self.epoch = 0

    async def step(self) -> None:
        rng, node = self.rng, self.node
        partition = rng.randrange(2)
        match rng.randrange(8):
            case 0:
                node.log.produce(
                    *[b"%d" % rng.randrange(5)] * rng.randint(1, 3), partition=partition
                )
            case 1:
                self.epoch = node.beat("m1", 0)
            case 2 if self.epoch:
                self.epoch = 0
                node.beat("m1", -1)
            case 3 | 4 if window := self.window(partition):
                acquired = window.acquire(Acquire(M1, S1, rng.randint(1, 4), now_ms()))
                self.held += [(partition, at) for at in acquired.offsets] if acquired else []
            case 5 | 6 if self.held:
                place, offset = self.held.pop(rng.randrange(len(self.held)))
                kind = bytes([rng.choice((1, 1, 2, 3))])
                if window := self.window(place):
                    window.post(Acknowledge(M1, S1, [(offset, offset, kind)], now_ms()))
            case 7:
                await asyncio.sleep(rng.choice((0.1, 1, 40)))
                if self.epoch:
                    self.epoch = node.beat("m1", 0)
            case _:
                pass  # nothing to leave, to take or to acknowledge
        await settle()

    def window(self, partition: int) -> Window | None:
        found = [
            window
            for window in self.node.windows.table.all()
            if window.partition.partition == partition
        ]
        return found[0] if found and found[0].dispatcher is not None else None


def rows(lags: Lags) -> list[Lag]:
    return list(lags.of_group(GROUP))


async def check_sums(lags: Lags) -> None:
    expected = GroupLag()
    for lag in rows(lags):
        expected.add(lag)
        if None not in (lag.records, lag.seconds):
            assert (lag.records == 0) is (lag.seconds == 0), "a lag of 0 beside an age"
    found = (await lags.by_group()).get(GROUP, GroupLag())
    assert found == expected


@pytest.mark.parametrize("seed", range(12))
def test_figures_are_those_of_somebody_who_looks_for_the_first_time(seed: int) -> None:
    async def work() -> None:
        admin = Admin()
        async with admin.node:
            admin.times.made_ms = now_ms() - 10_000
            await worked(admin)
            lags, story = admin.lags(), Story(admin, seed)
            for at in range(STEPS):
                await story.step()
                await check_sums(lags)
                if story.rng.random() < 0.5:
                    await lags.refresh(stored=at % 6 == 0)
                    await check_sums(lags)
                    first = admin.lags()
                    await first.refresh(stored=True)
                    in_memory = {window.key.partition for window in admin.node.windows.table.all()}
                    assert [shown(row, in_memory) for row in rows(lags)] == [
                        shown(row, in_memory) for row in rows(first)
                    ]

    run(work())


def shown(lag: Lag, in_memory: set[int]) -> Lag:
    """Of a window that has left memory the first look knows the cursor alone."""
    if lag.tp.partition in in_memory:
        return lag
    return replace(lag, records=None, settled=0)


def test_a_group_at_rest_is_looked_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    looked: list[str] = []
    unsettled, summed = Lags._unsettled, Lags._sum

    def noted(name: str, method: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any) -> Any:
            looked.append(name)
            return method(*arguments)

        return call

    monkeypatch.setattr(Lags, "_unsettled", noted("times", unsettled))
    monkeypatch.setattr(Lags, "_sum", noted("sum", summed))

    async def work() -> None:
        admin = Admin()
        async with admin.node:
            await worked(admin)
            await asyncio.sleep(1)
            lags = admin.lags()
            await lags.refresh(stored=True)
            await lags.by_group()
            assert looked == ["times", "sum"]
            await lags.by_group()
            assert looked == ["times", "sum"]
            await lags.refresh(stored=False)
            await lags.by_group()
            assert looked == ["times", "sum"]
            admin.node.log.produce(b"k")
            await lags.refresh(stored=False)
            assert looked == ["times", "sum", "times"], "the log has grown"
            await lags.refresh(stored=True)
            assert looked[-1] == "times", "retention may have taken the oldest records"

    run(work())


def test_the_end_of_a_log_that_one_group_was_told_of_counts_for_the_others() -> None:
    async def work() -> None:
        admin = Admin()
        async with admin.node:
            admin.times.made_ms = now_ms() - 10_000
            await worked(admin)
            node = admin.node
            node.groups.ensure("other")
            node.windows.table.open("other", node.topology.topics[TOPIC], 1)
            await settle()
            await node.windows.committer.commit()
            await asyncio.sleep(1)
            lags = admin.lags()
            await lags.refresh(stored=True)
            assert [lag.seconds for lag in lags.of_group("other")] == [0.0]
            node.log.produce(b"k", partition=1)
            await lags.refresh_group(GROUP)
            await lags.refresh(stored=False)
            assert [lag.records for lag in lags.of_group("other")] == [1]
            assert None not in [lag.seconds for lag in lags.of_group("other")]

    run(work())


def test_other_work_goes_on_while_many_small_groups_are_looked_at() -> None:
    """Each group has fewer partitions than are looked at before other work goes on."""

    async def work() -> None:
        admin = Admin()
        async with admin.node as node:
            node.log.produce(b"k", b"l")
            node.log.produce(b"k", b"l", partition=1)
            joins = Heartbeat("m1", 0, None, (TOPIC,), "client", "host", 1)
            for group in range(50):
                node.groups.heartbeat(f"g{group}", joins, node.topology.topics.get, now_ms())
                node.fetch(group=f"g{group}")
            await asyncio.sleep(2)  # they rest
            lags = admin.lags()
            looks, together = 0, []
            before = admin.times.in_cache

            def in_cache(source: Source, position: int) -> Seen | None:
                nonlocal looks
                looks += 1
                return before(source, position)

            async def other_work() -> None:
                nonlocal looks
                while True:
                    together.append(looks)
                    looks = 0
                    await asyncio.sleep(0)

            lags.oldest.times = Looks(in_cache, admin.times.look)
            other = asyncio.get_running_loop().create_task(other_work())
            await lags.refresh(stored=True)
            other.cancel()
            assert sum(together) >= 100
            assert max(together) <= 4, "one group's"

    run(work())


@dataclass(frozen=True, slots=True)
class Looks:
    in_cache: Callable[[Source, int], Seen | None]
    look: Callable[[Source, int], Coroutine[Any, Any, Seen]]
