"""A Redis that does not know HELLO, as before 6.0, and as some proxies: it is not asked for it."""

from __future__ import annotations

import asyncio
import subprocess
from pathlib import Path

import pytest
from redis.asyncio import Redis

from dispatcher.store.address import read_address
from dispatcher.store.base import WindowKey
from dispatcher.store.redis import RedisStore
from gateway.embedded.process import free_ports
from gateway.embedded.redis import redis_server
from gateway.node.redis_state import redis_troubles

pytestmark = pytest.mark.integration
READY = "Ready to accept connections"


def test_it_serves_like_any_other(tmp_path: Path) -> None:
    port = free_ports(1)
    config = tmp_path / "redis.conf"
    config.write_text(f'port {port}\nbind 127.0.0.1\nsave ""\nrename-command HELLO ""\n')
    with subprocess.Popen([redis_server(), str(config)], stdout=subprocess.PIPE, text=True) as old:
        try:
            assert old.stdout is not None
            assert any(READY in line for line in old.stdout)
            asyncio.run(_ask(f"redis://127.0.0.1:{port}/0"))
        finally:
            old.kill()


async def _ask(url: str) -> None:
    client = Redis.from_pool(read_address(url).pool())
    assert await redis_troubles(client) == []
    await client.aclose()
    store = RedisStore(url)
    await store.claim(WindowKey("g", "t", 0), "owner")
    await store.close()
