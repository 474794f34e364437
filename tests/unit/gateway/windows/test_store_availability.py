"""A store that is away is said once, and once when it is back."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass
from typing import Any

import pytest
import structlog

from dispatcher.core.steps import CursorMoved, Snapshot
from dispatcher.store.base import (
    Fence,
    FencedError,
    StoreError,
    StoreRefuses,
    WindowGone,
    WindowKey,
    Write,
)
from dispatcher.store.memory import MemoryStore
from gateway.windows.metrics import RoundTripCollector
from gateway.windows.store_availability import MonitoredStore, away

KEY = WindowKey("g", "t", 0)


@dataclass
class Clock:
    now_ms: int = 1_000

    def __call__(self) -> int:
        return self.now_ms


def story(
    tell: Callable[[MonitoredStore, MemoryStore, Clock], Coroutine[Any, Any, None]],
) -> list[str]:
    store, clock = MemoryStore(), Clock()
    with structlog.testing.capture_logs() as logs:
        asyncio.run(tell(MonitoredStore(store, clock), store, clock))
    return [line["event"] for line in logs]


async def failing(watch: MonitoredStore) -> None:
    with pytest.raises(StoreError):
        await watch.claim(KEY, "me")
    with pytest.raises(StoreError):
        await watch.create(KEY, Fence(1), Snapshot(0))
    (error,) = await watch.apply([Write(KEY, Fence(1), [])])
    assert isinstance(error, StoreError)


def test_away_and_back_once_each() -> None:
    async def tell(watch: MonitoredStore, store: MemoryStore, _clock: Clock) -> None:
        for _ in range(2):
            store.down = True
            for _ in range(3):
                await failing(watch)
            store.down = False
            claimed = await watch.claim(KEY, "me")
            await watch.create(KEY, claimed.fence, Snapshot(0))
            assert await watch.apply([Write(KEY, claimed.fence, [CursorMoved(4, 4)])]) == [None]

    assert story(tell) == ["store_away", "store_back"] * 2


class FullStore(MemoryStore):
    """One without room for steps, that hands windows out all the same."""

    full = True

    async def apply(self, writes: Sequence[Write]) -> list[StoreError | None]:
        if self.full:
            return [StoreRefuses("OOM")] * len(writes)
        return await super().apply(writes)


def test_a_full_store_is_not_back_because_windows_are_loaded() -> None:
    async def tell() -> None:
        store = FullStore()
        watch = MonitoredStore(store, Clock())
        for _ in range(3):
            claimed = await watch.claim(KEY, "me")
            await watch.apply([Write(KEY, claimed.fence, [])])
        store.full = False
        await watch.create(KEY, claimed.fence, Snapshot(0))

    with structlog.testing.capture_logs() as logs:
        asyncio.run(tell())
    assert [line["event"] for line in logs] == ["store_away", "store_back"]


def test_fences_and_lost_windows_are_no_outage() -> None:
    async def tell(watch: MonitoredStore, store: MemoryStore, _clock: Clock) -> None:
        first = await watch.claim(KEY, "me")
        await watch.create(KEY, first.fence, Snapshot(0))
        await watch.claim(KEY, "other")
        (error,) = await watch.apply([Write(KEY, first.fence, [])])
        assert isinstance(error, FencedError)
        with pytest.raises(FencedError):
            await watch.create(KEY, first.fence, Snapshot(0))
        store.flush()
        (error,) = await watch.apply([Write(KEY, first.fence, [])])
        assert isinstance(error, WindowGone)
        assert await watch.positions("g") == {}
        await watch.delete(KEY)

    assert story(tell) == []


def test_how_long_it_was_away() -> None:
    async def tell(watch: MonitoredStore, store: MemoryStore, clock: Clock) -> None:
        store.down = True
        await failing(watch)
        clock.now_ms += 4_000
        store.down = False
        with structlog.testing.capture_logs() as logs:
            await watch.claim(KEY, "me")
        assert logs[0]["after_ms"] == 4_000

    story(tell)


def test_what_counts_as_away() -> None:
    assert away(StoreError("no answer"))
    assert not away(FencedError("other"))
    assert not away(WindowGone("flushed"))
    assert not away(None)


def test_each_round_trip_is_measured() -> None:
    times_ms = iter([10_000, 10_020, 20_000, 23_000])
    watch = MonitoredStore(MemoryStore(), Clock(), clock_ns=lambda: next(times_ms) * 1_000_000)

    async def work() -> None:
        await watch.apply([])
        await watch.apply([])

    asyncio.run(work())
    (family,) = RoundTripCollector(watch.round_trips).collect()
    values = {
        (
            sample.name.removeprefix("keyway_store_round_trip_seconds"),
            sample.labels.get("le"),
        ): sample.value
        for sample in family.samples
    }
    assert values["_count", None] == 2
    assert values["_sum", None] == pytest.approx(3.02)
    assert [values["_bucket", le] for le in ("0.01", "0.025", "2.5", "5.0")] == [0, 1, 1, 2]
