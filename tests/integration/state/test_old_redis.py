"""A Redis that does not know HELLO, as before 6.0."""

from __future__ import annotations

import asyncio
import subprocess
from pathlib import Path

import pytest
from redis.asyncio import Redis

from dispatcher.store.address import TOO_OLD, read_address
from gateway.embedded.process import free_ports
from gateway.embedded.redis import redis_server
from gateway.node.redis_state import redis_troubles

pytestmark = pytest.mark.integration
READY = "Ready to accept connections"


def test_it_is_called_too_old_in_one_line(tmp_path: Path) -> None:
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
    (trouble,) = await redis_troubles(client)
    assert trouble.text == f"Redis does not answer: {TOO_OLD}"
    await client.aclose()
