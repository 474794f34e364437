"""The window store on a primary that Sentinels name: fail-overs of real servers."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest
from redis.asyncio import Redis
from redis.exceptions import ConnectionError as ConnectionLost

from dispatcher.core.steps import CursorMoved
from dispatcher.store.address import read_address
from dispatcher.store.base import Fence, StoreError, Write
from dispatcher.store.redis import RedisStore
from tests.rig.patience import patient_s
from tests.rig.sentinels import PASSWORD, SENTINEL_PASSWORD, SentinelSite
from tests.rig.store_contract import KEY, STEP, Stores, in_loop, opened

pytestmark = pytest.mark.integration


@pytest.fixture
def site(tmp_path: Path) -> Iterator[SentinelSite]:
    with SentinelSite(tmp_path) as running:
        yield running


@pytest.fixture
def stores(site: SentinelSite) -> Stores:
    return Stores(lambda: RedisStore(site.url))


async def applied(store: RedisStore, fence: Fence) -> StoreError | None:
    """One step."""
    return (await store.apply([Write(KEY, fence, [CursorMoved(65_001, 65_002)])]))[0]


async def applied_at_last(store: RedisStore, fence: Fence) -> list[StoreError]:
    """Again and again, as the persister does it. The failures before."""
    failures: list[StoreError] = []
    async with asyncio.timeout(patient_s(60)):
        while (failure := await applied(store, fence)) is not None:
            failures.append(failure)
            await asyncio.sleep(0.1)
    return failures


def test_a_planned_fail_over_is_followed(site: SentinelSite, stores: Stores) -> None:
    @in_loop
    async def run(stores: Stores) -> None:
        store = stores()
        assert isinstance(store, RedisStore)
        fence = await opened(store)
        assert await store.apply([Write(KEY, fence, STEP)]) == [None]
        before = await asyncio.to_thread(site.primary)
        with site.connected(before) as old:
            old.wait(1, 5_000)  # all there is has reached the replica
        await asyncio.to_thread(site.order_fail_over)
        now = await asyncio.to_thread(site.wait_for_another, before)
        assert await store.look_at_primary()  # The former one takes writes for seconds.
        assert not await store.look_at_primary()
        failures = await applied_at_last(store, fence)
        with site.connected(now) as new:
            assert new.info("replication")["role"] == "master"
        for failure in failures:
            assert PASSWORD not in str(failure)
            assert SENTINEL_PASSWORD not in str(failure)
        assert (await store.claim(KEY, "one")).snapshot is not None
        assert (await store.positions("group")) == {KEY: 65_001}

    run(stores=stores)


def test_a_primary_that_was_made_a_replica_is_left(site: SentinelSite, stores: Stores) -> None:
    """Its connections live on; each one ends with the first refusal, and asks the Sentinels."""

    @in_loop
    async def run(stores: Stores) -> None:
        store = stores()
        assert isinstance(store, RedisStore)
        fence = await opened(store)
        assert await applied(store, fence) is None
        client = Redis.from_pool(read_address(site.url).pool())
        await client.set("some", "thing")
        port = await asyncio.to_thread(site.primary)
        other = next(known for known in site.servers if known != port)
        with site.connected(port) as server:
            server.replicaof("127.0.0.1", str(other))
            failure = await applied(store, fence)
            assert "READONLY" in str(failure)
            line = store._line
            assert line is not None
            assert not line.is_open
            with pytest.raises(ConnectionLost, match="previous master is now a slave"):
                await client.set("some", "thing")
            with pytest.raises(ConnectionLost, match="not the primary any more: "):
                await client.eval("redis.call('SET', 'some', 'thing')", 0)
            server.replicaof("NO", "ONE")
        await applied_at_last(store, fence)
        await client.set("some", "thing")
        await client.aclose()

    run(stores=stores)


def test_without_a_sentinel_nothing_of_the_passwords_is_said(tmp_path: Path) -> None:
    async def run() -> None:
        url = SentinelSite(tmp_path).url  # nothing runs
        store = RedisStore(url)
        with pytest.raises(StoreError) as raised:
            await store.ping()
        await store.close()
        said = str(raised.value)
        assert "No master found for 'keyway-state'" in said
        assert "of:redis" not in said
        assert SENTINEL_PASSWORD not in said
        assert SENTINEL_PASSWORD not in repr(store)

    asyncio.run(run())


def test_a_killed_primary(site: SentinelSite, stores: Stores) -> None:
    @in_loop
    async def run(stores: Stores) -> None:
        store = stores()
        assert isinstance(store, RedisStore)
        fence = await opened(store)
        assert await applied(store, fence) is None
        killed = await asyncio.to_thread(site.primary)
        with site.connected(killed) as old:
            old.wait(1, 5_000)
        site.kill_primary()
        failure = await applied(store, fence)
        assert isinstance(failure, StoreError)
        await asyncio.to_thread(site.wait_for_another, killed)
        await applied_at_last(store, fence)
        assert (await store.claim(KEY, "one")).snapshot is not None

    run(stores=stores)
