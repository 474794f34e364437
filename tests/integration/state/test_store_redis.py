"""The window store on a real Redis: the contract, and the faults of a real server."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import statistics
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import redis
from hypothesis import given, settings

from dispatcher.core.model import LeaseId, MemberId, Reason, SessionId
from dispatcher.core.steps import (
    BitsSet,
    Change,
    CursorMoved,
    LeaseEnded,
    LeaseTaken,
    RetryNoted,
    RetryState,
    Snapshot,
)
from dispatcher.core.stored.snapshot import StoredWindow, apply_changes
from dispatcher.store.base import Fence, StoreError, StoreRefuses, WindowGone, WindowKey, Write
from dispatcher.store.claims import FENCED
from dispatcher.store.redis import RedisStore
from gateway.embedded.process import free_ports
from gateway.embedded.redis import EmbeddedRedis
from tests.rig.patience import patient_s
from tests.rig.store_contract import (
    FULL,
    KEY,
    STEP,
    StoreContract,
    Stores,
    in_loop,
    opened,
)
from tests.rig.window_changes import histories

pytestmark = pytest.mark.integration
KILLED_AFTER = 100  # of 20,000 confirmed steps
M1, S1 = MemberId("m1"), SessionId("s1")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedRedis]:
    with EmbeddedRedis(tmp_path_factory.mktemp("redis"), port=free_ports()) as running:
        yield running


@pytest.fixture(autouse=True)
def admin(server: EmbeddedRedis) -> Iterator[redis.Redis]:
    """A client of an empty server, to look at it and to do things to it."""
    client = redis.Redis(unix_socket_path=str(server.socket_path))
    client.flushall()
    yield client
    client.close()


@pytest.fixture
def stores(server: EmbeddedRedis) -> Stores:
    return Stores(lambda: RedisStore(server.url))


def steps_of(count: int) -> list[list[Change]]:
    """A settled offset and a lease at every step, the cursor one behind."""
    return [
        [
            BitsSet(0, at // 8, bytes([(1 << (at % 8 + 1)) - 1])),
            LeaseTaken(LeaseId(at + 1), M1, S1, at, [at + 1, at + 2]),
            LeaseEnded(LeaseId(at)),
            RetryNoted(at + 2, 1, at, RetryState.IN_FLIGHT, Reason.RELEASED, M1),
        ]
        for at in range(count)
    ]


class TestRedisStore(StoreContract):
    @pytest.fixture
    def flush(self, admin: redis.Redis) -> Callable[[], None]:
        def flush() -> None:
            admin.flushall()

        return flush

    @in_loop
    async def test_a_tcp_url_does_as_well(self, server: EmbeddedRedis) -> None:
        store = RedisStore(server.tcp_url)
        health = [store.healthy]
        await store.ping()
        health.append(store.healthy)
        assert health == [False, True]
        await opened(store)
        assert (await store.claim(KEY, "one")).snapshot == FULL
        await store.close()

    @in_loop
    async def test_calls_at_once_get_their_own_answers(
        self, stores: Stores, admin: redis.Redis
    ) -> None:
        store = stores()
        keys = [WindowKey("group", KEY.topic_id, partition) for partition in range(20)]

        async def positioned(key: WindowKey) -> None:
            fence = (await store.claim(key, "one")).fence
            await store.create(key, fence, Snapshot(key.partition))
            assert await store.apply([Write(key, fence, [])]) == [None]

        for _ in range(2):  # The second time on the connections of the first.
            await asyncio.gather(*(positioned(key) for key in keys))
            claimed = await asyncio.gather(*(store.claim(key, "two") for key in keys))
            cursors = [found.snapshot.cursor for found in claimed if found.snapshot is not None]
            assert cursors == list(range(20))
        connections = admin.info("clients")["connected_clients"]
        await store.close()
        deadline = time.monotonic() + patient_s(30)
        while admin.info("clients")["connected_clients"] >= connections - 15:
            assert time.monotonic() < deadline, "its connections are still open"
            await asyncio.sleep(0.01)

    @in_loop
    async def test_a_deleted_window_leaves_nothing_behind(
        self, stores: Stores, admin: redis.Redis
    ) -> None:
        store = stores()
        await opened(store)
        assert admin.dbsize() == 7  # the window, leases, retries, chunks 0, 1 and 2, the index
        await store.delete(KEY)
        assert admin.dbsize() == 0

    @in_loop
    async def test_chunks_below_the_cursor_are_deleted(
        self, stores: Stores, admin: redis.Redis
    ) -> None:
        store = stores()
        fence = await opened(store)
        await store.apply(
            [Write(KEY, fence, [CursorMoved(131_072, 131_072), BitsSet(1, 0, b"\xff")])]
        )
        assert len(list(admin.scan_iter("*:bits:*"))) == 1
        await store.apply([Write(KEY, fence, [CursorMoved(10**15, 10**15)])])
        assert list(admin.scan_iter("*:bits:*")) == []
        assert (await store.claim(KEY, "one")).snapshot == apply_changes(
            FULL, [CursorMoved(10**15, 10**15)]
        )

    @in_loop
    async def test_all_keys_of_a_window_share_its_hash_tag(
        self, stores: Stores, admin: redis.Redis
    ) -> None:
        await opened(stores(), WindowKey("}{ x|y", KEY.topic_id, 3))
        names = [name.decode() for name in admin.scan_iter("keyway:{*")]
        assert len(names) == 6
        tags = {name.split("{")[1].split("}")[0] for name in names}
        assert tags == {f"%7D%7B%20x%7Cy|{KEY.topic_id}|3"}

    @in_loop
    async def test_a_thousand_retries_at_once(self, stores: Stores) -> None:
        store = stores()
        fence = await opened(store)
        changes: list[Change] = [
            RetryNoted(at, 1, at, RetryState.WAITING, Reason.LOCK_TIMEOUT, M1)
            for at in range(66_000, 70_321)
        ]
        assert await store.apply([Write(KEY, fence, changes)]) == [None]
        snapshot = (await store.claim(KEY, "one")).snapshot
        assert snapshot is not None
        assert snapshot.retries[1:] == changes

    @in_loop
    async def test_scripts_that_were_flushed_are_loaded_again(
        self, stores: Stores, admin: redis.Redis
    ) -> None:
        store = stores()
        fence = await opened(store)
        admin.script_flush()
        writes = [Write(KEY, fence, step) for step in (STEP, [CursorMoved(65_100, 65_100)])]
        assert await store.apply(writes) == [None, None]
        expected = apply_changes(FULL, [*STEP, CursorMoved(65_100, 65_100)])
        assert (await store.claim(KEY, "one")).snapshot == expected

    @in_loop
    async def test_a_window_set_back_to_an_older_state_is_gone(
        self, stores: Stores, admin: redis.Redis
    ) -> None:
        store = stores()
        fence = await opened(store)
        before = {name: admin.dump(name) or b"" for name in admin.scan_iter()}
        assert await store.apply([Write(KEY, fence, STEP)]) == [None]
        admin.flushall()  # A lagging replica took over: the same window, a step ago.
        for name, data in before.items():
            admin.restore(name, 0, data)
        for _ in range(2):
            assert isinstance((await store.apply([Write(KEY, fence, STEP)]))[0], WindowGone)
        claimed = await store.claim(KEY, "one")
        assert claimed.snapshot == FULL
        assert await store.apply([Write(KEY, claimed.fence, STEP)]) == [None]

    @in_loop
    async def test_a_window_set_back_to_before_it_was_rebuilt_is_gone(
        self, stores: Stores, admin: redis.Redis
    ) -> None:
        store = stores()
        fence = await opened(store)
        assert await store.apply([Write(KEY, fence, STEP)] * 5) == [None] * 5
        before = {name: admin.dump(name) or b"" for name in admin.scan_iter()}
        await store.create(KEY, fence, Snapshot(70_000))
        admin.flushall()
        for name, data in before.items():
            admin.restore(name, 0, data)
        assert isinstance((await store.apply([Write(KEY, fence, STEP)]))[0], WindowGone)

    @in_loop
    async def test_a_fence_grows_also_when_the_clock_was_set_back(
        self, stores: Stores, admin: redis.Redis
    ) -> None:
        store = stores()
        fence = await opened(store)
        (window,) = [name for name in admin.scan_iter() if name.endswith(b"}")]
        later = fence + 86_400_000_000
        admin.hset(window, "fence", str(later))
        assert (await store.claim(KEY, "one")).fence == later + 1

    @in_loop
    async def test_a_write_is_not_applied_over_a_gap(
        self, stores: Stores, admin: redis.Redis
    ) -> None:
        store = stores()
        fence = await opened(store)
        (window,) = [name for name in admin.scan_iter() if name.endswith(b"}")]
        admin.rename(window + b":leases", b"aside")
        admin.set(window + b":leases", "not a hash")  # The first write will fail, the second not.
        steps = [LeaseEnded(LeaseId(3))], [CursorMoved(70_000, 70_000)]
        results = await store.apply([Write(KEY, fence, step) for step in steps])
        assert [type(result) for result in results] == [StoreRefuses, WindowGone]
        admin.rename(b"aside", window + b":leases")
        assert (await store.claim(KEY, "one")).snapshot == FULL

    @in_loop
    async def test_a_late_copy_of_an_old_step_changes_nothing(self, stores: Stores) -> None:
        """Nobody waits for its answer any more; the network brings it all the same."""
        one, two = stores(), stores()
        fence = await opened(one)
        assert isinstance(one, RedisStore)
        names, steps, _ = one._claims.steps([Write(KEY, fence, STEP)])
        newer: list[Change] = [
            BitsSet(0, 8_125, b"\xff"),
            LeaseEnded(LeaseId(5)),
            CursorMoved(65_006, 65_006),
        ]
        for step in (STEP, newer):
            assert await one.apply([Write(KEY, fence, step)]) == [None]
        assert await one._applied(names, steps) == [FENCED]
        assert await one.apply([Write(KEY, fence, [])]) == [None], "still the owner"
        claimed = await two.claim(KEY, "two")
        assert claimed.snapshot == apply_changes(FULL, [*STEP, *newer])
        assert await two.apply([Write(KEY, claimed.fence, [])]) == [None], "a claim counts anew"

    @in_loop
    async def test_a_full_redis_refuses_a_step_as_a_whole(
        self, stores: Stores, admin: redis.Redis
    ) -> None:
        store = stores()
        fence = await opened(store)
        admin.config_set("maxmemory", "1")
        try:
            (error,) = await store.apply([Write(KEY, fence, STEP)])
        finally:
            admin.config_set("maxmemory", "0")
        assert type(error) is StoreRefuses
        assert "maxmemory" in str(error)
        assert (await store.claim(KEY, "one")).snapshot == FULL

    @in_loop
    @pytest.mark.parametrize("damage", ["lease", "retry", "format"])
    async def test_an_unreadable_window_is_as_good_as_lost(
        self, stores: Stores, admin: redis.Redis, damage: str
    ) -> None:
        store = stores()
        await opened(store)
        (window,) = [name for name in admin.scan_iter() if name.endswith(b"}")]
        if damage == "format":
            admin.hset(window, "format", "99")
        else:
            admin.hset(window + (b":leases" if damage == "lease" else b":retries"), "7", b"?")
        await opened(store)
        assert (await store.claim(KEY, "one")).snapshot == FULL

    @settings(max_examples=150)
    @given(histories)
    def test_any_history_reads_as_the_pure_function_says(
        self, server: EmbeddedRedis, steps: list[list[Change]]
    ) -> None:
        async def run() -> None:
            store = RedisStore(server.url)
            await store.delete(KEY)
            fence = (await store.claim(KEY, "one")).fence
            await store.create(KEY, fence, Snapshot(0))
            state = StoredWindow(0)
            for at in range(0, len(steps), 2):
                pair = steps[at : at + 2]
                results = await store.apply([Write(KEY, fence, step) for step in pair])
                assert results == [None] * len(pair)
                for step in pair:
                    state.apply(step)
                claimed = await store.claim(KEY, "one")
                fence = claimed.fence
                assert claimed.snapshot == state.snapshot()
            await store.close()

        asyncio.run(run())


class TestFailures:
    """Every test has a server of its own: they stop, freeze and kill it."""

    @pytest.fixture
    def own(self, tmp_path: Path) -> Iterator[EmbeddedRedis]:
        with EmbeddedRedis(tmp_path / "redis", port=free_ports()) as running:
            yield running

    @in_loop
    async def test_a_redis_killed_in_mid_flight_has_all_it_confirmed_and_no_half_step(
        self, own: EmbeddedRedis
    ) -> None:
        store = RedisStore(own.url)
        fence = (await store.claim(KEY, "one")).fence
        await store.create(KEY, fence, Snapshot(0))
        steps = steps_of(20_000)
        confirmed, error = 0, None
        async with asyncio.TaskGroup() as tasks:
            while error is None and confirmed < len(steps):
                (error,) = await store.apply([Write(KEY, fence, steps[confirmed])])
                confirmed += error is None
                if error is None and confirmed == KILLED_AFTER:  # once
                    tasks.create_task(asyncio.to_thread(own.kill))
        assert type(error) is StoreError, "the server was killed too late for this test"
        assert confirmed >= KILLED_AFTER
        assert not store.healthy

        own.start()
        snapshot = (await store.claim(KEY, "one")).snapshot
        state = StoredWindow(0)
        for step in steps[:confirmed]:
            state.apply(step)
        possible = [state.snapshot()]
        state.apply(steps[confirmed])  # Applied perhaps, but never confirmed.
        possible.append(state.snapshot())
        assert snapshot in possible
        await store.close()

    @in_loop
    async def test_a_restart_of_redis_is_one_failed_call_at_most(self, own: EmbeddedRedis) -> None:
        store = RedisStore(own.tcp_url)
        fence = await opened(store)
        own.stop()
        assert type((await store.apply([Write(KEY, fence, STEP)]))[0]) is StoreError
        own.start()
        assert await store.apply([Write(KEY, fence, STEP)]) == [None]  # The same fence still holds.
        own.kill()
        own.start()
        results = [(await store.apply([Write(KEY, fence, STEP)]))[0] for _ in range(2)]
        assert type(results[0]) in (type(None), StoreError)  # the dead connection, noticed or not
        assert results[1] is None
        assert (await store.claim(KEY, "one")).snapshot == apply_changes(FULL, STEP)
        await store.close()

    @in_loop
    async def test_an_unreachable_redis_is_said_at_once(self, tmp_path: Path) -> None:
        for url in (f"redis://127.0.0.1:{free_ports()}/0", f"unix://{tmp_path}/none.sock"):
            store = RedisStore(url, timeout_s=3_600)  # longer than a test may take
            for call in (store.claim(KEY, "one"), store.ping(), store.delete(KEY)):
                with pytest.raises(StoreError, match=r"127\.0\.0\.1|none\.sock"):
                    await call
            results = await store.apply([Write(KEY, Fence(1), STEP)] * 3)
            assert [type(result) for result in results] == [StoreError] * 3
            await store.close()

    @in_loop
    async def test_a_frozen_redis_is_given_up_and_no_answer_is_taken_for_another(
        self, own: EmbeddedRedis
    ) -> None:
        store = RedisStore(own.url, timeout_s=4.0)
        fence = await opened(store)
        assert own.pid is not None
        os.kill(own.pid, signal.SIGSTOP)
        try:
            begin = time.monotonic()
            (error,) = await store.apply([Write(KEY, fence, STEP)])
            assert time.monotonic() - begin > 3.9
            assert type(error) is StoreError
            assert "no answer within 4 s" in str(error)
            with pytest.raises(TimeoutError):  # The caller gives up before the store does.
                async with asyncio.timeout(0.1):
                    await store.apply([Write(KEY, fence, STEP)])
        finally:
            os.kill(own.pid, signal.SIGCONT)
        # The late answers of the two calls above must not be read as those of these.
        new = (await store.claim(KEY, "one")).fence
        assert new > fence
        results = await store.apply([Write(KEY, new, []), Write(KEY, fence, [])])
        assert results[0] is None
        assert isinstance(results[1], StoreError)
        await store.close()

    @in_loop
    async def test_an_answer_that_never_ends_is_given_up(self, tmp_path: Path) -> None:
        ended = asyncio.Event()

        async def drip(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            with contextlib.suppress(OSError):
                while True:
                    writer.write(b"+")  # Bytes keep coming: no single read takes too long.
                    await writer.drain()
                    await asyncio.sleep(0.05)
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()
            ended.set()

        async with await asyncio.start_unix_server(drip, tmp_path / "drip") as server:
            store = RedisStore(f"unix://{tmp_path}/drip", timeout_s=0.3)
            with pytest.raises(StoreError, match=r"no answer within 0\.3 s"):
                await store.ping()
            await store.close()
            await ended.wait()
            server.close()

    @in_loop
    @pytest.mark.parametrize("user", ["", "ada"])
    async def test_passwords_are_never_shown(self, own: EmbeddedRedis, user: str) -> None:
        secret = "s3cr3t/+p@ss"
        admin = redis.Redis(unix_socket_path=str(own.socket_path))
        admin.acl_setuser("default", enabled=True, passwords=[f"+{secret}-not"])
        for place in (f"127.0.0.1:{own.port}/0", "127.0.0.1:1/0"):
            url = f"redis://{user}:s3cr3t%2F%2Bp%40ss@{place}"
            store = RedisStore(url)
            with pytest.raises(StoreError) as caught:
                await store.ping()
            assert caught.value.__cause__ is None
            assert caught.value.__suppress_context__
            assert "s3cr3t" not in f"{caught.value!r} {store!r}"
            await store.close()
        admin.close()

    def test_an_error_that_repeats_the_password_is_cleaned(self) -> None:
        store = RedisStore("redis://:s3cr3t@127.0.0.1:1/0")
        told = redis.ResponseError("unknown command 'AUTH', with args beginning with: 's3cr3t'")
        assert str(store._failure(told)).endswith("with args beginning with: '***'")

    @pytest.mark.parametrize(
        "url", ["", "localhost:6379", "http://u:s3cr3t@h", "redis://:s3cr3t@h:x"]
    )
    def test_a_url_that_is_none_is_refused_without_showing_it(self, url: str) -> None:
        with pytest.raises(ValueError, match=r"^no .+ URL$") as caught:
            RedisStore(url)
        assert "s3cr3t" not in repr(caught.value)
        assert caught.value.__suppress_context__


@in_loop
async def test_a_step_of_four_windows_is_one_call(server: EmbeddedRedis) -> None:
    """Four windows, each taking a lease of 250 offsets, settling 250 and moving on: together
    in less time than one after the other. Other work of the machine meets both alike.
    """
    store = RedisStore(server.url)
    keys = [WindowKey("group", KEY.topic_id, partition) for partition in range(4)]
    fences = [(await store.claim(key, "one")).fence for key in keys]
    for key, fence in zip(keys, fences, strict=True):
        await store.create(key, fence, Snapshot(0))
    together: list[float] = []
    in_turn: list[float] = []
    for nth in range(100):
        first = 10**9 + 1_000 * nth
        offsets = list(range(first, first + 1_000, 4))
        changes: list[Change] = [
            LeaseTaken(LeaseId(nth + 1), MemberId("m" * 22), SessionId("s" * 22), 0, offsets),
            BitsSet(first // 65_536, first % 65_536 // 8, b"\x55" * 32),
            CursorMoved(first, first),
            LeaseEnded(LeaseId(nth)),
        ]
        writes = [Write(key, fence, changes) for key, fence in zip(keys, fences, strict=True)]
        begin = time.perf_counter()
        if nth % 2:
            assert await store.apply(writes) == [None] * 4
        else:
            for write in writes:
                assert await store.apply([write]) == [None]
        (together if nth % 2 else in_turn).append(time.perf_counter() - begin)
    assert statistics.median(together) < statistics.median(in_turn), "one round trip, not four"
    await store.close()
