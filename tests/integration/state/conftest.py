"""A real Redis for each test, a client that looks into it, and stores on it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import redis

from dispatcher.store.redis import RedisStore
from gateway.embedded.process import free_ports
from gateway.embedded.redis import EmbeddedRedis
from tests.rig.store_contract import Stores


@pytest.fixture
def server(tmp_path: Path) -> Iterator[EmbeddedRedis]:
    with EmbeddedRedis(tmp_path, port=free_ports()) as running:
        yield running


@pytest.fixture
def admin(server: EmbeddedRedis) -> Iterator[redis.Redis]:
    client = redis.Redis(unix_socket_path=str(server.socket_path))
    yield client
    client.close()


@pytest.fixture
def stores(server: EmbeddedRedis) -> Stores:
    return Stores(lambda: RedisStore(server.url))
