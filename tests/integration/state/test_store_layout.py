"""Windows in a real Redis: one call for many of them, what an evicting Redis deletes, and the
layout of before.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import redis

from dispatcher.core.model import LeaseId
from dispatcher.core.steps import AsideSet, Change, CursorMoved, EpochsMoved, LeaseEnded
from dispatcher.store.base import Counts, WindowKey, Write
from dispatcher.store.script_calls import WINDOWS_PER_CALL
from tests.rig.store_contract import FULL, KEY, Stores, in_loop, opened

pytestmark = pytest.mark.integration


def _key(admin: redis.Redis, end: bytes) -> bytes:
    """The only key that ends so."""
    (name,) = [name for name in admin.scan_iter() if name.endswith(end)]
    return bytes(name)


@in_loop
async def test_a_step_that_fails_is_its_own_windows(stores: Stores, admin: redis.Redis) -> None:
    """Of more windows than one call of the script takes."""
    store = stores()
    keys = [WindowKey("group", KEY.topic_id, at) for at in range(2 * WINDOWS_PER_CALL + 1)]
    fences = [await opened(store, key) for key in keys]
    broken = {0, WINDOWS_PER_CALL - 1, WINDOWS_PER_CALL + 1}
    for at in broken:
        window = f"keyway:{{group|{KEY.topic_id}|{at}}}"
        admin.delete(f"{window}:leases")
        admin.set(f"{window}:leases", "not a hash")
    writes = [
        Write(key, fence, [LeaseEnded(LeaseId(3)), CursorMoved(70_000, 70_000)])
        for key, fence in zip(keys, fences, strict=True)
    ]
    results = await store.apply(writes)
    assert {at for at, result in enumerate(results) if result is not None} == broken
    assert all("WRONGTYPE" in str(results[at]) for at in broken)
    cursors = await store.positions("group")
    assert [cursors[key] for key in keys] == [
        65_000 if at in broken else 70_000 for at in range(len(keys))
    ]


@in_loop
async def test_records_aside_that_redis_has_evicted_do_not_count_as_settled(
    stores: Stores, admin: redis.Redis
) -> None:
    """All between cursor and front is settled but for them: it is rebuilt from Kafka."""
    store = stores()
    fence = await opened(store)
    aside: list[Change] = [CursorMoved(65_001, 65_400, 2), AsideSet(126, bytes(61) + b"\6")]
    assert await store.apply([Write(KEY, fence, aside)]) == [None]
    assert (await store.claim(KEY, "one")).snapshot is not None
    admin.delete(_key(admin, b":aside"))  # as allkeys-lru does it
    assert (await store.claim(KEY, "one")).snapshot is None


@in_loop
async def test_a_state_without_an_epoch(stores: Stores, admin: redis.Redis) -> None:
    """As a node of 0.2 writes it, also after one of later. Its own script takes ours."""
    store = stores()
    await opened(store)
    window = _key(admin, b"}")
    state = admin.hget(window, "state")
    assert isinstance(state, bytes)
    words, epochs = state.split()[:7], state.split()[7:]
    assert epochs == [b"3", b"64000", b"1", b"-1"]
    admin.hset(window, "state", b" ".join(words))
    claimed = await store.claim(KEY, "one")
    assert claimed.snapshot == replace(FULL, epochs=())
    assert await store.apply([Write(KEY, claimed.fence, [EpochsMoved(((5, 7),))])]) == [None]
    assert (await store.claim(KEY, "one")).snapshot == replace(FULL, epochs=((5, 7),))
    assert await store.positions("group") == {KEY: 65_000}


@in_loop
async def test_a_window_whose_state_is_in_fields_of_their_own(
    stores: Stores, admin: redis.Redis
) -> None:
    """As nodes wrote it before the state became one field; also if they write it again."""
    store = stores()
    fence = await opened(store)
    window = _key(admin, b"}")
    names = ("seq", "sent", "cursor", "front", "chunk", "high", "aside")
    for _ in range(2):
        state = admin.hget(window, "state")
        assert isinstance(state, bytes)
        fields: Any = dict(zip(names, state.split()[:7], strict=True))
        admin.hset(window, mapping=fields)
        admin.hset(window, "state", "1 0 1 1 0 0 0")  # older
        assert await store.positions("group") == {KEY: 65_000}
        claimed = await store.claim(KEY, "one")
        assert claimed.snapshot == replace(FULL, epochs=())
        assert claimed.fence > fence
        assert admin.hmget(window, *names) == [None] * len(names)
        assert await store.apply([Write(KEY, claimed.fence, [])]) == [None]
    admin.hset(window, mapping=fields)
    admin.hdel(window, "state")
    assert await store.counts([KEY]) == [Counts(65_000, 1, 311)]
