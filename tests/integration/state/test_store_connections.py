"""Calls of the window store take turns at its connections."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from dispatcher.core.steps import Snapshot
from dispatcher.store.base import WindowKey
from dispatcher.store.redis import RedisStore
from gateway.embedded.process import free_ports
from gateway.embedded.redis import EmbeddedRedis

pytestmark = pytest.mark.integration


def test_calls_wait_for_a_connection_and_none_fails(tmp_path: Path) -> None:
    """Many times more calls at once than connections, of every kind."""

    async def work(url: str) -> None:
        store = RedisStore(url)
        keys = [WindowKey(f"busy-{at}", "topic", 0) for at in range(1_000)]

        async def load(key: WindowKey) -> None:
            claimed = await store.claim(key, "node")
            await store.create(key, claimed.fence, Snapshot(0))
            assert await store.positions(key.group) == {key: 0}
            await store.delete(key)

        await asyncio.gather(*[load(key) for key in keys])
        await store.close()

    with EmbeddedRedis(tmp_path, port=free_ports()) as server:
        asyncio.run(work(server.url))
