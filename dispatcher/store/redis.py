"""Windows in Redis (5 or newer, also the embedded one): one round trip per step of many windows.

The layout of a window and the effect of a step are in window.lua. Redis runs it as one script, for
many windows in one call: each step whole or not at all, and only under the newest fence. Steps have
a connection of their own (line.py); no other call is ahead of them.

All keys of a window share a hash tag. The client speaks to a single Redis (a primary with replicas
is one, also where Sentinels name it): the names of windows would spread over a Redis Cluster, but
the client does not follow redirections.

A Redis that was restarted from an append-only file without its last second (a crash of the
machine), or whose lagging replica took over, has an older state than it confirmed. Every step
therefore carries the number of the last step that was confirmed; if Redis has not come that far,
the window is gone. The same goes for a window that was deleted and comes back that way, as long as
the process lives that deleted it.

A step that was given up may still be on its way: the network can bring it after later ones. Every
send of a step therefore has a number, also that of a second try, and a step that comes behind a
later one of the same owner is refused.

Beside the windows is an index: for each group the set of its windows. A window is in it before it
is created and until it is deleted; an entry without a window has no meaning. The first question
builds the index of all groups (a Redis from before the index is scanned once).
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Iterator, Sequence
from functools import partial
from importlib.resources import files
from typing import Any, TypeVar
from urllib.parse import quote, unquote

import structlog
from redis.asyncio import Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import NoScriptError, RedisError, ResponseError

from dispatcher.core.model import LeaseId
from dispatcher.core.steps import Snapshot
from dispatcher.core.stored.packing import (
    PARKED_CODE,
    RETRY_STATE_AT,
    Unreadable,
    unpack_lease,
    unpack_retry,
)
from dispatcher.core.stored.snapshot import StoredWindow, changes_of
from dispatcher.store.address import is_no_primary, primary_of, read_address
from dispatcher.store.base import (
    Claimed,
    Counts,
    Fence,
    FencedError,
    StoreError,
    StoreRefuses,
    WindowGone,
    WindowKey,
    Write,
)
from dispatcher.store.claims import FENCED, GONE, Claim, Claims
from dispatcher.store.line import Line
from dispatcher.store.operations import Argument, Kept, kept_of, new_kept, operations
from dispatcher.store.script_calls import apply_calls

TIMEOUT_S = 5.0  # of a whole call, connecting included
PREFIX = "keyway:"
CONNECTIONS_MAX = 32  # calls at a time; the others wait for their turn
SCAN_KEYS = 1_000  # looked at per round trip of a scan
KEYS_AT_ONCE = 250  # windows asked about before other work goes on: a few ms
DELETED_KEPT_MAX = 10_000  # deleted windows that an older file of Redis may bring back, 200 B each
FORMAT = b"2"  # of the data that window.lua and dispatcher.core.stored.packing write

SCRIPT = files("dispatcher.store").joinpath("window.lua").read_text()

T = TypeVar("T")
log = structlog.get_logger("keyway.store")


# Long: the verbs of WindowStore, and the one connection and script under them.
class RedisStore:
    """A `WindowStore` at an address (address.py); it connects when called, again if need be.

    `healthy`: did the last call reach a Redis that did its work? False before the first.
    """

    def __init__(self, url: str, *, timeout_s: float = TIMEOUT_S) -> None:
        """Raises ValueError for a URL that is none (without showing it: it may hold a password)."""
        self._address = read_address(url)
        pool = self._address.pool(
            socket_timeout=None,  # `_ask` bounds whole calls; redis-py's costs a task each
            socket_connect_timeout=timeout_s,
            retry=Retry(NoBackoff(), 0),  # bounded retries are the caller's
            decode_responses=False,
            protocol=2,  # which its line reads, whatever the URL says
            # No call takes more than one connection, so with a turn it never waits for one.
            max_connections=CONNECTIONS_MAX,
        )
        self._redis: Redis = Redis.from_pool(pool)
        self._turns = asyncio.Semaphore(CONNECTIONS_MAX)  # of calls
        self._line: Line | None = None  # of the steps
        self._line_to: tuple[str, int] | None = None  # the server, if Sentinels have named it
        self._opening = asyncio.Lock()
        self._indexing = asyncio.Lock()
        self._timeout_s = timeout_s
        self._sha = ""  # known once the script is loaded
        self._claims = Claims(self._name)
        self._deleted: dict[WindowKey, Fence] = {}  # until when; the latest last
        self.healthy = False

    def __repr__(self) -> str:
        return f"RedisStore({self._address.where}, {'healthy' if self.healthy else 'not healthy'})"

    async def claim(self, key: WindowKey, owner: str, generation: int = 0) -> Claimed:
        claim = (b"claim", owner.encode(), generation)
        answer = await self._ask(lambda: self._evaluate(key, *claim))
        if answer == FENCED:
            raise FencedError(f"{key}: a node that knows newer owners has claimed it")
        assert isinstance(answer, list)
        fence = Fence(int(answer[0]))
        self._claims.by_key[key] = Claim(fence, *_read_state(answer[2]), self._name(key))
        origin = int(answer[7] or 0)
        if fence <= self._deleted.get(key, 0):
            del self._deleted[key]  # Redis's clock was put back: it says nothing any more
        if self._was_deleted(key, origin):
            return Claimed(fence, None)
        return Claimed(fence, _read_snapshot(key, answer), origin=origin)

    async def create(
        self, key: WindowKey, fence: Fence, snapshot: Snapshot, *, origin: int = 0
    ) -> None:
        steps, kept = operations(changes_of(snapshot), new_kept())
        arguments = (fence, FORMAT, max(fence, origin), kept.words(), *steps)
        await self._ask(lambda: self._redis.sadd(self._index(key.group), _in_index(key)))
        answer = await self._ask(lambda: self._evaluate(key, b"create", *arguments))
        if not self._claims.confirmed(Write(key, fence, ()), answer, kept):
            raise self._refused(key, fence, answer)

    async def apply(self, writes: Sequence[Write]) -> list[StoreError | None]:
        if not writes:
            return []
        names, steps, kept = self._claims.steps(writes)
        try:
            answers = await self._applied(names, steps)
        except (RedisError, OSError, EOFError) as error:
            return [self._failure(error)] * len(writes)
        self.healthy = True
        confirmed = self._claims.confirmed
        return [
            None
            if confirmed(write, answer, after)
            else self._refused(write.key, write.fence, answer)
            for write, answer, after in zip(writes, answers, kept, strict=True)
        ]

    async def delete(self, key: WindowKey) -> None:
        deleted = await self._ask(lambda: self._evaluate(key, b"delete"))
        assert isinstance(deleted, bytes)
        await self._ask(lambda: self._redis.srem(self._index(key.group), _in_index(key)))
        self._claims.by_key.pop(key, None)
        self._deleted.pop(key, None)
        self._deleted[key] = Fence(int(deleted))
        if len(self._deleted) > DELETED_KEPT_MAX:
            del self._deleted[next(iter(self._deleted))]

    async def release(self, key: WindowKey, fence: Fence) -> None:
        await self._ask(lambda: self._evaluate(key, b"release", fence))

    def forget(self, key: WindowKey) -> None:
        self._claims.by_key.pop(key, None)

    def _was_deleted(self, key: WindowKey, origin: int) -> bool:
        """Redis has a window again that was deleted since it was created."""
        return origin < self._deleted.get(key, 0)

    async def positions(self, group: str | None) -> dict[WindowKey, int]:
        """In many calls: each has its own time, and there may be any number of windows."""
        found: dict[WindowKey, int] = {}
        for keys in _portions(await (self._scanned() if group is None else self._indexed(group))):
            found |= await self._ask(partial(self._positions, keys))
        return found

    async def counts(self, keys: Sequence[WindowKey]) -> list[Counts]:
        found: list[Counts] = []
        for some in _portions(keys):
            answers = await self._ask(partial(self._scripted, partial(self._count, some)))
            found += [Counts(*map(int, answer)) for answer in answers]
        return found

    def _count(self, keys: Sequence[WindowKey], sha: str) -> Awaitable[list[Any]]:
        pipeline = self._redis.pipeline(transaction=False)
        for key in keys:
            pipeline.evalsha(sha, 1, self._name(key), b"count", RETRY_STATE_AT, PARKED_CODE)
        return pipeline.execute()

    async def _positions(self, keys: Sequence[WindowKey]) -> dict[WindowKey, int]:
        pipeline = self._redis.pipeline(transaction=False)
        for key in keys:
            pipeline.hmget(self._name(key), "state", "cursor", "origin")
        rows: list[Any] = await pipeline.execute()
        return {
            key: int(state.split()[2] if old is None else old)  # as window.lua's old_state
            for key, (state, old, origin) in zip(keys, rows, strict=True)
            # None: claimed, and never created; or only in the index
            if (state or old) is not None and not self._was_deleted(key, int(origin or 0))
        }

    async def _indexed(self, group: str) -> list[WindowKey]:
        """O(windows of the group): anybody may ask for any name."""
        index = self._index(group)
        pipeline = self._redis.pipeline(transaction=False)
        pipeline.get(PREFIX + "indexed")
        pipeline.smembers(index)
        complete, members = await self._ask(pipeline.execute)
        if complete is None:
            await self._complete_index()
            members = await self._ask(lambda: self._redis.smembers(index))
        places = sorted(member.decode().rsplit("|", 1) for member in members)
        return [WindowKey(group, topic_id, int(partition)) for topic_id, partition in places]

    async def _complete_index(self) -> None:
        """One scan for all who ask at a time: a Redis that lost its data has no index at all."""
        async with self._indexing:
            if await self._ask(lambda: self._redis.get(PREFIX + "indexed")) is None:
                await self._index_all()

    async def _index_all(self) -> None:
        for keys in _portions(await self._scanned()):
            pipeline = self._redis.pipeline(transaction=False)
            for key in keys:
                pipeline.sadd(self._index(key.group), _in_index(key))
            await self._ask(pipeline.execute)
        await self._ask(lambda: self._redis.set(PREFIX + "indexed", 1))

    async def _scanned(self) -> list[WindowKey]:
        """All windows in Redis: scans the whole Redis."""
        start = PREFIX + "{"
        pattern = re.sub(r"([\\*?\[\]])", r"\\\1", start) + "*}"
        found: set[WindowKey] = set()
        cursor = 0
        while True:
            scan = partial(self._redis.scan, cursor, pattern, SCAN_KEYS)
            answer: Any = await self._ask(scan)
            cursor, names = answer
            for name in names:
                quoted, topic_id, partition = name.decode()[:-1].rsplit("|", 2)
                group = unquote(quoted.removeprefix(start))
                found.add(WindowKey(group, topic_id, int(partition)))
            if cursor == 0:
                return list(found)

    def _index(self, group: str) -> str:
        return f"{PREFIX}index:{quote(group, safe='')}"

    async def ping(self) -> None:
        """Raises StoreError."""
        await self._ask(lambda: self._redis.ping())

    @property
    def has_sentinels(self) -> bool:
        return bool(self._address.sentinels)

    async def look_at_primary(self) -> bool:
        """Leaves a server that is not the primary any more, as its Sentinels have it; False: it
        stays. Raises StoreError.
        """
        primary = await self._ask(lambda: primary_of(self._redis.connection_pool))
        if self._line is None or not self._line.is_open or primary in (None, self._line_to):
            return False
        self._line.end(RedisError("another server is the primary now"))
        return True

    async def close(self) -> None:
        if self._line is not None:
            self._line.end(RedisError("the store is closed"))
        await self._redis.aclose()

    async def _applied(
        self, names: list[bytes], steps: list[list[Argument]], *, again: bool = True
    ) -> list[Any]:
        """Applies the steps. There is one answer per step: a RedisError if Redis refused the step.
        Raises RedisError, OSError, EOFError.
        """
        line = self._line
        if line is None or not line.is_open or not self._sha:
            line = await self._opened()
        data, counts = apply_calls(self._sha.encode(), names, steps)
        answers: list[Any] = []
        for count, answer in zip(counts, await line.call(data, len(counts)), strict=True):
            answers += answer if isinstance(answer, list) else [answer] * count
        if any(isinstance(reply, RedisError) and is_no_primary(str(reply)) for reply in answers):
            line.end(RedisError("it is not the primary any more"))
        unknown = [at for at, answer in enumerate(answers) if isinstance(answer, NoScriptError)]
        if unknown and again:  # Redis was restarted or its scripts flushed; they did nothing.
            self._sha = ""
            left = [names[at] for at in unknown], [steps[at] for at in unknown]
            for at, answer in zip(unknown, await self._applied(*left, again=False), strict=True):
                answers[at] = answer
        return answers

    async def _opened(self) -> Line:
        """The line of the steps, and the script loaded."""
        async with self._opening, asyncio.timeout(self._timeout_s):
            if not self._sha:
                self._sha = await self._redis.script_load(SCRIPT)
            if self._line is None or not self._line.is_open:
                pool = self._redis.connection_pool
                connection = pool.connection_class(**pool.connection_kwargs)
                self._line = await Line.opened(connection, self._timeout_s)
                self._line_to = getattr(connection, "host", ""), getattr(connection, "port", 0)
            return self._line

    async def _evaluate(self, key: WindowKey, *arguments: Argument) -> object:
        return await self._scripted(
            lambda sha: self._redis.evalsha(sha, 1, self._name(key), *arguments)
        )

    async def _scripted(self, call: Callable[[str], Awaitable[T]]) -> T:
        """A call of the script by its digest; again if Redis does not know the script: then it did
        nothing.
        """
        if not self._sha:
            self._sha = await self._redis.script_load(SCRIPT)
        try:
            return await call(self._sha)
        except NoScriptError:
            self._sha = await self._redis.script_load(SCRIPT)
            return await call(self._sha)

    async def _ask(self, call: Callable[[], Awaitable[T]]) -> T:
        """Asks Redis. This is the border: every failure of the world becomes a StoreError without
        secrets in it.

        Its time begins with its turn: nothing fails because others have the connections.
        """
        try:
            async with self._turns, asyncio.timeout(self._timeout_s):
                answer = await call()
        except (RedisError, OSError, EOFError) as error:
            raise self._failure(error) from None
        self.healthy = True
        return answer

    def _failure(self, error: Exception) -> StoreError:
        # The cause is left out on purpose: a server may repeat the arguments of AUTH in its error.
        self.healthy = False
        text = str(error) or f"no answer within {self._timeout_s:g} s"
        for secret in self._address.secrets:
            text = text.replace(secret, "***")
        kind = StoreRefuses if isinstance(error, ResponseError) else StoreError
        return kind(f"Redis at {self._address.where}: {type(error).__name__}: {text}")

    def _refused(self, key: WindowKey, fence: Fence, answer: object) -> StoreError:
        if isinstance(answer, RedisError):
            return self._failure(answer)
        if answer == GONE:
            return WindowGone(f"{key}: flushed or set back to an older state")
        assert answer == FENCED, answer
        claim = self._claims.by_key.get(key)
        if claim is not None and claim.fence == fence:  # else: an owner before ours, still writing
            del self._claims.by_key[key]
        return FencedError(f"{key}: claimed by another owner after fence {fence}")

    def _name(self, key: WindowKey) -> bytes:
        claim = self._claims.by_key.get(key)
        if claim is not None:
            return claim.name
        # Quoted: no "}" or "|" of a group's name may end the hash tag or make two windows one.
        group = quote(key.group, safe="")
        return f"{PREFIX}{{{group}|{key.topic_id}|{key.partition}}}".encode()


def _portions(keys: Sequence[WindowKey]) -> Iterator[Sequence[WindowKey]]:
    for at in range(0, len(keys), KEYS_AT_ONCE):
        yield keys[at : at + KEYS_AT_ONCE]


def _in_index(key: WindowKey) -> str:
    return f"{key.topic_id}|{key.partition}"


def _read_state(words: bytes | None) -> tuple[int, Kept]:
    """The sequence number and the rest of the state; those of an empty window if there is none, or
    an unreadable one.
    """
    try:
        seq, _sent, *kept = (words or b"").split()
        return int(seq), kept_of(kept)
    except ValueError:
        return 0, new_kept()


def _read_snapshot(key: WindowKey, answer: list[Any]) -> Snapshot | None:
    _fence, layout, words, chunks, aside, leases, retries, _origin = answer
    if words is None:
        return None
    try:
        if layout != FORMAT:
            raise Unreadable(f"format {layout!r}")
        kept = kept_of(words.split()[2:])
        state = StoredWindow(kept.cursor, kept.front)
        state.epochs = kept.epochs
        for stretch, data in zip(aside[::2], aside[1::2], strict=True):
            state.aside[int(stretch)] = data
        found = sum(int.from_bytes(data, "little").bit_count() for data in state.aside.values())
        if found < kept.aside:
            # Redis has evicted them. The records between cursor and front would count as settled.
            raise Unreadable("of the records aside some are missing")
        for number, data in zip(chunks[::2], chunks[1::2], strict=True):
            state.chunks[int(number)] = bytearray(data)
        for lease_id, data in zip(leases[::2], leases[1::2], strict=True):
            lease = unpack_lease(LeaseId(int(lease_id)), data)
            state.leases[lease.lease_id] = lease
        for offset, data in zip(retries[::2], retries[1::2], strict=True):
            state.retries[int(offset)] = unpack_retry(int(offset), data)
    except (Unreadable, ValueError) as error:
        # As good as lost, and losing Redis loses no record: the caller rebuilds it from Kafka.
        log.warning("window_unreadable", window=str(key), error=str(error))
        return None
    return state.snapshot()
