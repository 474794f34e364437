"""The Redis that all nodes share, and each node's way to it: requests that are late, get no answer,
or arrive after their sender has given up.

`routing.lua`, `topics.lua` and `members.lua` are modelled here; window.lua is `MemoryStore`
(tests/rig/store_contract.py compares it with the real one).
"""

from __future__ import annotations

import asyncio
import json
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from random import Random
from typing import Any, TypeVar

from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import TimeoutError as RedisTimeoutError

from dispatcher.core.steps import Snapshot
from dispatcher.store.base import (
    Claimed,
    Counts,
    Fence,
    FencedError,
    StoreError,
    WindowKey,
    Write,
)
from dispatcher.store.memory import MemoryStore
from gateway.routing import lone
from tests.sim.nodes.timeline import Timeline

T = TypeVar("T")
TAKEN, STALE = -1, -2
REFUSED = -1
ANSWER_S_MAX = 5.0  # as the clients of gateway/node/redis_state.py
QUICK_MS = 1.0
LOST_IN_SILENCE = 0.3  # of the requests that were sent into a silent network

KEPT = 10  # states of the last second

_Rows = dict[bytes, bytes]
_Shares = tuple[dict[str, _Rows], dict[str, list[tuple[bytes, _Rows]]]]
Observer = Callable[
    [str, WindowKey, int, bool], None
]  # node, window, generation, whether it was taken


class SharedRedis:
    def __init__(self, timeline: Timeline, rng: Random) -> None:
        self.timeline = timeline
        self.rng = rng
        self.store = MemoryStore()
        self.hashes: dict[str, dict[bytes, bytes]] = {}
        self.streams: dict[str, list[tuple[bytes, dict[bytes, bytes]]]] = {}
        self.down = False
        self.frozen = False
        self.held: list[Callable[[], None]] = []  # requests that wait for it to go on
        self.skew_us = 0
        self._entries = 0  # of all streams
        self._earlier: deque[tuple[int, _Shares]] = deque(maxlen=KEPT)
        self._keep()

    def _keep(self) -> None:
        """As a replica has it that lags behind."""
        rows = {name: dict(rows) for name, rows in self.hashes.items() if "share_" in name}
        logs = {name: list(log) for name, log in self.streams.items()}
        self._earlier.append((self.timeline.now_ms, (rows, logs)))
        self.timeline.after(1_000 / KEPT, self._keep)

    def lose_members(self, ms: int) -> None:
        """A fail-over to a replica that lacks the last so many milliseconds of what nodes say of
        their groups. All of it, if it lacks more than is kept.
        """
        for name in [name for name in self.hashes if "share_" in name]:
            del self.hashes[name]
        self.streams.clear()
        known = [shares for at_ms, shares in self._earlier if at_ms <= self.timeline.now_ms - ms]
        if known:
            rows, logs = known[-1]
            self.hashes |= {name: dict(of) for name, of in rows.items()}
            self.streams |= {name: list(log) for name, log in logs.items()}

    def thaw(self) -> None:
        self.frozen = False
        held, self.held = self.held, []
        for arrive in held:
            arrive()

    @property
    def now_us(self) -> int:
        return round(self.timeline.now_s * 1_000_000) + self.skew_us

    # ------------------------------------------------------------------------ gateway/routing.lua

    def routing(self, key: str, verb: str, node: str, incarnation: str, *more: str) -> Any:
        rows = self.hashes.setdefault(key, {})
        field = b"node:" + node.encode()
        row = rows.get(field)
        holder, alive_until = (b"", 0) if row is None else _parts(row)
        if verb == "beat":
            if row is not None and holder != incarnation.encode() and alive_until > self.now_us:
                return [TAKEN, alive_until - self.now_us]
            session_us, gone_us, description = more
            lives = self.now_us + int(session_us)
            rows[field] = f"{incarnation} {lives} {description}".encode()
            return self._view(rows, int(gone_us))
        if holder != incarnation.encode():
            return TAKEN
        expected, content = more
        generation = int(rows.get(b"generation", b"0"))
        if generation != int(expected):
            return STALE
        generation = max(generation + 1, self.now_us)
        rows[b"generation"], rows[b"owners"] = str(generation).encode(), content.encode()
        if verb == "leave":
            del rows[field]
        return str(generation).encode()

    def topics(self, key: str, topics_key: str, *seen: str) -> int:
        """gateway/routing/topics.lua"""
        rows = self.hashes.setdefault(topics_key, {})
        changes = 0
        for topic, partitions in zip(seen[::2], seen[1::2], strict=True):
            version, known = rows.get(topic.encode(), b"0 0").split()
            if int(partitions) > int(known):
                rows[topic.encode()] = b"%d %s" % (int(version) + 1, partitions.encode())
                changes += 1
        if changes:
            routing = self.hashes.setdefault(key, {})
            generation = max(int(routing.get(b"generation", b"0")) + 1, self.now_us)
            routing[b"generation"] = str(generation).encode()
        return changes

    def members(
        self,
        key: str,
        members_key: str,
        groups_key: str,
        log_key: str,
        node: str,
        incarnation: str,
        broker: str,
        change: str,
        kept: str,
        *changes: str,
    ) -> int | bytes:
        """gateway/members/members.lua"""
        routing = self.hashes.get(key, {})
        row = routing.get(b"node:" + node.encode())
        owners = json.loads(routing.get(b"owners", b'{"owners": {}}'))["owners"]
        if row is None or _parts(row)[0] != incarnation.encode() or owners.get(broker) != node:
            return REFUSED
        for table, verb, field, text in zip(*[iter(changes)] * 4, strict=True):
            rows = self.hashes.setdefault(members_key if table == "members" else groups_key, {})
            if verb == "set":
                rows[field.encode()] = text.encode()
            else:
                rows.pop(field.encode(), None)
        log = self.streams.get(log_key, [])
        before = log[-1][0] if log else b""
        self.add(log_key, {b"before": before, b"change": change.encode()}, int(kept))
        return self.streams[log_key][-1][0]

    def add(self, key: str, fields: dict[bytes, bytes], kept: int) -> None:
        log = self.streams.setdefault(key, [])
        self._entries += 1  # the real ids are a clock's: none comes twice
        log.append((b"0-%d" % self._entries, fields))
        del log[:-kept]

    def _view(self, rows: dict[bytes, bytes], gone_us: int) -> list[Any]:
        nodes: list[bytes] = []
        for field in [name for name in rows if name.startswith(b"node:")]:
            if _parts(rows[field])[1] + gone_us < self.now_us:
                del rows[field]
            else:
                nodes += [field, rows[field]]
        said = (rows.get(b"generation", b"0"), rows.get(b"owners", b""))
        return [str(self.now_us).encode(), *said, nodes]


def _parts(row: bytes) -> tuple[bytes, int]:
    who, until, _ = row.split(b" ", 2)
    return who, int(until)


class Link:
    """One process's connections to Redis: what it uses of redis.asyncio.Redis."""

    def __init__(self, redis: SharedRedis) -> None:
        self.redis = redis
        self.silent = False
        self.late_ms = 0.0  # of a request, at most
        self.over = False  # the process is gone: nobody hears answers
        self.disturbed = 0  # calls without an answer
        self._held: list[Callable[[], None]] = []

    def speak(self) -> None:
        """The network works again."""
        self.silent = False
        held, self._held = self._held, []
        for arrive in held:
            if self.redis.rng.random() >= LOST_IN_SILENCE:
                arrive()

    async def ask(self, work: Callable[[], T]) -> T:
        """Raises RedisError; then `work` may be done, or come to be done later."""
        answer: asyncio.Future[tuple[bool, T | None]] = asyncio.get_running_loop().create_future()
        self.redis.timeline.after(self._delay_ms(), lambda: self._arrives(work, answer))
        done, _ = await asyncio.wait([answer], timeout=ANSWER_S_MAX)
        if not done:
            self.disturbed += 1
            raise RedisTimeoutError("Timeout reading from Redis")
        taken, result = answer.result()
        if not taken:
            self.disturbed += 1
            raise RedisConnectionError("Connection refused")
        return result  # type: ignore[return-value]

    def _delay_ms(self) -> float:
        rng = self.redis.rng
        return rng.random() * (self.late_ms if rng.random() < 0.5 else QUICK_MS)

    def _arrives(
        self, work: Callable[[], T], answer: asyncio.Future[tuple[bool, T | None]]
    ) -> None:
        redis = self.redis

        def again() -> None:
            self._arrives(work, answer)

        if self.silent:
            self._held.append(again)
        elif redis.frozen:
            redis.held.append(again)
        else:
            taken = not redis.down
            result = work() if taken else None
            redis.timeline.after(self._delay_ms(), lambda: self._answered(answer, taken, result))

    def _answered(
        self, answer: asyncio.Future[tuple[bool, T | None]], taken: bool, result: T | None
    ) -> None:
        if self.silent:
            return  # lost, and the next request will tell
        if not self.over and not answer.done():
            answer.set_result((taken, result))

    # ------------------------------------------------------------------------------------- commands

    async def eval(self, script: str, keys: int, key: str, *arguments: str) -> Any:
        if keys == 2:
            assert "HGET" in script, "topics.lua"
            return await self.ask(lambda: self.redis.topics(key, *arguments))
        if keys == 4:
            assert "REFUSED" in script, "members.lua"
            return await self.ask(lambda: self.redis.members(key, *arguments))
        assert "publish" in script, "routing.lua"
        return await self.ask(lambda: self.redis.routing(key, *arguments))

    async def get(self, key: str) -> bytes | None:
        assert key == lone.KEY, "of a node that stands alone: none does here"
        return await self.ask(lambda: None)

    async def xrevrange(self, key: str, count: int) -> list[tuple[bytes, dict[bytes, bytes]]]:
        return await self.ask(lambda: self.redis.streams.get(key, [])[::-1][:count])

    async def xrange(
        self,
        key: str,
        min: str,  # noqa: A002 - as redis-py names it
        count: int,
    ) -> list[tuple[bytes, dict[bytes, bytes]]]:
        def work() -> list[tuple[bytes, dict[bytes, bytes]]]:
            log = self.redis.streams.get(key, [])
            first = 0 if min == "-" else int(min.split("-")[1]) + 1
            return [entry for entry in log if int(entry[0].split(b"-")[1]) >= first][:count]

        return await self.ask(work)

    async def hmget(self, key: str, names: Sequence[str]) -> list[bytes | None]:
        def work() -> list[bytes | None]:
            rows = self.redis.hashes.get(key, {})
            return [rows.get(name.encode()) for name in names]

        return await self.ask(work)

    async def hgetall(self, key: str) -> dict[bytes, bytes]:
        return await self.ask(lambda: dict(self.redis.hashes.get(key, {})))

    async def hget(self, key: str, name: str) -> bytes | None:
        return await self.ask(lambda: self.redis.hashes.get(key, {}).get(name.encode()))

    async def hsetnx(self, key: str, name: str, text: str) -> int:
        def work() -> int:
            rows = self.redis.hashes.setdefault(key, {})
            there = name.encode() in rows
            rows.setdefault(name.encode(), text.encode())
            return int(not there)

        return await self.ask(work)

    async def hset(self, key: str, mapping: Mapping[str, str]) -> None:
        def work() -> None:
            rows = self.redis.hashes.setdefault(key, {})
            rows.update({name.encode(): text.encode() for name, text in mapping.items()})

        await self.ask(work)

    async def hdel(self, key: str, *names: str) -> None:
        def work() -> None:
            rows = self.redis.hashes.get(key, {})
            for name in names:
                rows.pop(name.encode(), None)

        await self.ask(work)

    async def delete(self, key: str) -> None:
        await self.ask(lambda: self.redis.hashes.pop(key, None))


class StoreLink:
    """A node's `WindowStore`. `told` hears of each claim."""

    def __init__(
        self, link: Link, node: str, told: Observer, fenced: Callable[[str], None]
    ) -> None:
        self._link = link
        self._store = link.redis.store
        self._node = node
        self._told = told
        self._fenced = fenced

    async def _ask(self, work: Callable[[], T | StoreError]) -> T:
        try:
            result = await self._link.ask(work)
        except (RedisConnectionError, RedisTimeoutError) as error:
            raise StoreError(str(error)) from error
        if isinstance(result, StoreError):
            raise result
        return result

    async def claim(self, key: WindowKey, owner: str, generation: int = 0) -> Claimed:
        def work() -> Claimed | StoreError:
            try:
                claimed = self._store.claim_now(key, owner, generation)
            except StoreError as error:
                self._told(self._node, key, generation, False)
                return error
            self._told(self._node, key, generation, True)
            return claimed

        return await self._ask(work)

    async def create(
        self, key: WindowKey, fence: Fence, snapshot: Snapshot, *, origin: int = 0
    ) -> None:
        def work() -> StoreError | None:
            try:
                self._store.create_now(key, fence, snapshot, origin=origin)
            except StoreError as error:
                return error
            return None

        await self._ask(work)

    async def apply(self, writes: Sequence[Write]) -> list[StoreError | None]:
        try:
            results = await self._link.ask(lambda: self._store.apply_now(writes))
        except (RedisConnectionError, RedisTimeoutError) as error:
            return [StoreError(str(error))] * len(writes)
        for result in results:
            if isinstance(result, FencedError):
                self._fenced(self._node)
        return results

    async def release(self, key: WindowKey, fence: Fence) -> None:
        raise AssertionError(f"{key} {fence}: no operator here")

    def forget(self, key: WindowKey) -> None:
        self._store.forget(key)

    async def delete(self, key: WindowKey) -> None:
        raise AssertionError(f"{key}: no operator here")

    async def positions(self, group: str | None) -> dict[WindowKey, int]:
        raise AssertionError(f"{group}: no operator here")

    async def counts(self, keys: Sequence[WindowKey]) -> list[Counts]:
        return [self._store._counts(key) for key in keys]

    async def close(self) -> None: ...
