"""The node's Redis as a part: the configured one, or an embedded one while the node runs."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Protocol

from redis.asyncio import Redis
from redis.exceptions import RedisError

from dispatcher.store.redis import RedisStore
from gateway.config.file import ConfigError
from gateway.config.state import StateSection
from gateway.embedded.redis import EmbeddedRedis
from gateway.embedded.redis_watch import RedisWatch
from gateway.node.limits import HEALTH_STORE_S_MAX
from gateway.part import Part, Trouble

REDIS_S_MAX = 5  # to connect, and to answer


@dataclass(frozen=True, slots=True)
class RedisAddress:
    url: str
    watch: RedisWatch | None  # of an embedded one


@dataclass(frozen=True, slots=True)
class RedisRoom:
    client: Redis
    store: RedisStore


class Pinged(Protocol):
    """redis.asyncio.Redis"""

    def ping(self) -> Awaitable[object]: ...


@contextmanager
def running_redis(state: StateSection) -> Iterator[RedisAddress]:
    """Starts the embedded Redis if none is configured. Raises SetupError."""
    if state.redis_url is not None:
        yield RedisAddress(state.redis_url.get_secret_value(), None)
        return
    with RedisWatch(EmbeddedRedis(state.directory)) as watch:
        yield RedisAddress(watch.redis.url, watch)


def build(address: RedisAddress) -> Part[RedisRoom]:
    """Raises ConfigError for a URL that is none."""
    try:
        store = RedisStore(address.url)
    except ValueError:
        # Not the library's words: of a password with a slash they show a part.
        raise ConfigError(
            "state.redis_url: no redis://, rediss:// or unix:// URL"
            " (a password's special characters are written as %XX)"
        ) from None
    client = Redis.from_url(
        address.url, socket_timeout=REDIS_S_MAX, socket_connect_timeout=REDIS_S_MAX
    )

    async def troubles() -> Sequence[Trouble]:
        found = await redis_troubles(client)
        if address.watch is not None and address.watch.trouble:
            found.append(Trouble(address.watch.trouble))
        return found

    async def close() -> None:
        await client.aclose()

    return Part(
        name="redis",
        room=RedisRoom(client, store),
        troubles=troubles,
        background=() if address.watch is None else (address.watch.run,),
        close=close,
    )


async def redis_troubles(redis: Pinged) -> list[Trouble]:
    try:
        async with asyncio.timeout(HEALTH_STORE_S_MAX):
            await redis.ping()
    except (RedisError, OSError, TimeoutError) as error:
        reason = str(error) or "in time"
        return [Trouble(f"Redis does not answer: {reason}", serving=False)]
    return []
