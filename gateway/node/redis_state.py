"""The node's Redis as a part: the configured one, or an embedded one while the node runs."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Protocol

import structlog
from redis.asyncio import Redis
from redis.exceptions import RedisError, ResponseError

from dispatcher.store.address import RedisAddress, primary_of, read_address
from dispatcher.store.base import StoreError
from dispatcher.store.redis import RedisStore
from gateway.config.file import ConfigError
from gateway.config.state import StateSection
from gateway.embedded.redis import EmbeddedRedis
from gateway.embedded.redis_watch import RedisWatch
from gateway.node.diagnosis import evicts
from gateway.node.limits import EVICTION_LOOK_S, HEALTH_STORE_S_MAX, PRIMARY_LOOK_S
from gateway.part import Part, Trouble

log = structlog.get_logger("keyway.redis")

REDIS_S_MAX = 5  # to connect, and to answer
NO_KEY = "keyway:none"


@dataclass(frozen=True, slots=True)
class RunningRedis:
    url: str
    watch: RedisWatch | None  # of an embedded one


@dataclass(frozen=True, slots=True)
class RedisRoom:
    client: Redis
    store: RedisStore


class Writable(Protocol):
    """redis.asyncio.Redis"""

    def set(self, name: str, value: str, *, xx: bool) -> Awaitable[object]: ...


class Eviction:
    """Whether Redis deletes keys on its own where it needs room. A node goes on all the same: what
    is deleted comes again, or is rebuilt from Kafka, but nobody is told.
    """

    def __init__(self, redis: Redis) -> None:
        self._redis = redis
        self.policy = ""  # empty: it does not, or does not tell

    def warnings(self) -> list[str]:
        if not self.policy:
            return []
        return [f"Redis may delete state (maxmemory-policy is {self.policy}): set it to noeviction"]

    async def look_forever(self) -> None:
        while True:
            try:
                await self.look()
            except (RedisError, OSError) as error:  # away, or INFO is closed to the node's user
                log.debug("redis_eviction_unknown", reason=str(error))
            await asyncio.sleep(EVICTION_LOOK_S)

    async def look(self) -> None:
        """Raises RedisError, OSError."""
        told = await self._redis.info("memory")
        policy = str(told.get("maxmemory_policy", "noeviction"))
        before, self.policy = self.policy, ""
        if evicts(int(told.get("maxmemory", 0)), policy):
            self.policy = policy
            if policy != before:
                log.warning("redis_evicts", policy=policy)


@contextmanager
def running_redis(state: StateSection) -> Iterator[RunningRedis]:
    """Starts the embedded Redis if none is configured. Raises SetupError, ConfigError."""
    if (url := url_of(state)) is not None:
        yield RunningRedis(url, None)
        return
    with RedisWatch(EmbeddedRedis(state.directory)) as watch:
        yield RunningRedis(watch.redis.url, watch)


def url_of(state: StateSection) -> str | None:
    """None: the Redis is embedded. Raises ConfigError."""
    try:
        return state.url()
    except ConfigError as error:
        raise ConfigError(f"state.redis_url_file: {error}") from error


def configured(url: str) -> RedisAddress:
    """The Redis of state.redis_url. Raises ConfigError for a URL that cannot be used."""
    try:
        return read_address(url)
    except ValueError as error:
        raise ConfigError(
            f"state.redis_url: {error} (a password's special characters are written as %XX)"
        ) from None


def build(running: RunningRedis) -> Part[RedisRoom]:
    """Raises ConfigError if the URL is not one of a Redis."""
    address = configured(running.url)
    store = RedisStore(running.url)
    client = Redis.from_pool(
        address.pool(socket_timeout=REDIS_S_MAX, socket_connect_timeout=REDIS_S_MAX)
    )

    eviction = Eviction(client)

    async def troubles() -> Sequence[Trouble]:
        found = await redis_troubles(client)
        if running.watch is not None and running.watch.trouble:
            found.append(Trouble(running.watch.trouble))
        return found

    async def follow_primary() -> None:
        """A former primary takes writes until it is told; those would be lost."""
        while True:
            await asyncio.sleep(PRIMARY_LOOK_S)
            try:
                if await store.look_at_primary():
                    log.warning("redis_primary_changed")
                await primary_of(client.connection_pool)  # leaves a former one
            except (StoreError, RedisError, OSError) as error:
                log.debug("redis_primary_unknown", reason=str(error))

    async def close() -> None:
        await client.aclose()

    return Part(
        name="redis",
        room=RedisRoom(client, store),
        troubles=troubles,
        warnings=eviction.warnings,
        background=(
            *((eviction.look_forever,) if running.watch is None else (running.watch.run,)),
            *((follow_primary,) if store.has_sentinels else ()),
        ),
        close=close,
    )


async def try_to_write(redis: Writable) -> None:
    """Asks for a write that changes nothing, as there is no such key. A Redis that is full, that
    cannot save or is a replica answers everything else. Raises RedisError, OSError; ResponseError
    if Redis refuses.
    """
    await redis.set(NO_KEY, "", xx=True)


async def redis_troubles(redis: Writable) -> list[Trouble]:
    try:
        async with asyncio.timeout(HEALTH_STORE_S_MAX):
            await try_to_write(redis)
    except ResponseError as error:
        return [Trouble(f"Redis refuses to write: {error}", serving=False)]
    except (RedisError, OSError, TimeoutError) as error:
        reason = str(error) or "in time"
        return [Trouble(f"Redis does not answer: {reason}", serving=False)]
    return []
