"""The index of groups beside the windows in a real Redis, deleted windows that come back with an
older file, and what a store keeps in memory.
"""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
import redis
from redis.asyncio.client import Pipeline

from dispatcher.core.steps import Snapshot
from dispatcher.store.base import WindowGone, WindowKey, Write
from dispatcher.store.redis import KEYS_AT_ONCE, RedisStore
from gateway.embedded.redis import EmbeddedRedis
from tests.rig.store_contract import FULL, KEY, STEP, Stores, in_loop, opened

pytestmark = pytest.mark.integration


@in_loop
async def test_positions_of_a_group_are_found_without_a_scan(
    stores: Stores, admin: redis.Redis
) -> None:
    """But for the first time on a Redis of before there was an index."""
    store = stores()
    for partition in range(3):
        await opened(store, WindowKey("group", KEY.topic_id, partition))
    await opened(store, WindowKey("other", KEY.topic_id, 0))
    admin.delete(*admin.scan_iter("keyway:index:*"))
    cursors = {WindowKey("group", KEY.topic_id, p): 65_000 for p in range(3)}
    assert await store.positions("group") == cursors
    admin.config_resetstat()
    for number in range(50):
        assert await store.positions(f"made-up-{number}") == {}
    assert await stores().positions("group") == cursors
    assert "cmdstat_scan" not in admin.info("commandstats")
    assert await store.positions("other") == {WindowKey("other", KEY.topic_id, 0): 65_000}


@in_loop
async def test_all_who_ask_at_a_time_wait_for_one_scan(stores: Stores, admin: redis.Redis) -> None:
    """Redis has lost its data, or is of before there was an index, and a tool asks for all groups:
    each of a thousand questions scanned and indexed all windows, and took half a minute of a core.
    """
    store = stores()
    groups = [f"group-{number}" for number in range(40)]
    for group in groups:
        await opened(store, WindowKey(group, KEY.topic_id, 0))
    admin.delete("keyway:indexed")
    admin.config_resetstat()
    found = await asyncio.gather(*map(store.positions, groups))
    assert found == [{WindowKey(group, KEY.topic_id, 0): 65_000} for group in groups]
    assert admin.info("commandstats")["cmdstat_sadd"]["calls"] == len(groups)


@in_loop
async def test_no_call_asks_about_all_windows_there_are(
    stores: Stores, admin: redis.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    """20,000 in one call held the node up for seconds, and did not end in the time of a call."""
    store = stores()
    await opened(store)
    row: Any = admin.hgetall(f"keyway:{{group|{KEY.topic_id}|{KEY.partition}}}")
    admin.delete("keyway:indexed")
    keys = [WindowKey("wide", KEY.topic_id, partition) for partition in range(2 * KEYS_AT_ONCE + 1)]
    for key in keys:
        admin.hset(f"keyway:{{wide|{key.topic_id}|{key.partition}}}", mapping=row)
    sizes: list[int] = []
    execute = Pipeline.execute

    async def counted(pipeline: Pipeline, raise_on_error: bool = True) -> list[Any]:
        sizes.append(len(pipeline))
        return await execute(pipeline, raise_on_error)

    monkeypatch.setattr(Pipeline, "execute", counted)
    cursors = dict.fromkeys(keys, 65_000)
    assert await store.positions(None) == cursors | {KEY: 65_000}
    assert await store.positions("wide") == cursors
    assert [count.cursor for count in await store.counts(keys)] == [65_000] * len(keys)
    assert max(sizes) == KEYS_AT_ONCE
    assert sum(sizes) > 4 * len(keys), "all calls were seen"


@in_loop
async def test_a_window_that_was_deleted_does_not_come_back_with_an_older_file(
    stores: Stores, admin: redis.Redis
) -> None:
    store = stores()
    await opened(store)
    before = {name: admin.dump(name) or b"" for name in admin.scan_iter()}
    await store.delete(KEY)
    for name, data in before.items():
        admin.restore(name, 0, data)
    assert await stores().positions("group") == {KEY: 65_000}, "it is there"
    assert await store.positions("group") == {}
    claimed = await store.claim(KEY, "one")
    assert (claimed.snapshot, claimed.origin) == (None, 0)
    await store.create(KEY, claimed.fence, Snapshot(7))
    assert (await store.claim(KEY, "one")).snapshot == Snapshot(7)
    assert await store.positions("group") == {KEY: 7}


@in_loop
async def test_a_forgotten_window_takes_no_memory_and_is_claimed_again(stores: Stores) -> None:
    store = stores()
    fence = await opened(store)
    assert isinstance(store, RedisStore)
    store.forget(KEY)
    assert not store._claims.by_key
    (refused,) = await store.apply([Write(KEY, fence, STEP)])
    assert isinstance(refused, WindowGone), "nothing is written without a claim"
    claimed = await store.claim(KEY, "one")
    assert claimed.snapshot == FULL
    assert await store.apply([Write(KEY, claimed.fence, STEP)]) == [None]


@in_loop
async def test_what_is_remembered_of_deleted_windows_is_bounded(
    server: EmbeddedRedis, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dispatcher.store.redis.DELETED_KEPT_MAX", 2)
    store = RedisStore(server.url)
    for partition in (0, 1, 0, 2):
        await store.delete(WindowKey("group", KEY.topic_id, partition))
    assert [key.partition for key in store._deleted] == [0, 2]
    await store.close()
