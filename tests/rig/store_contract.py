"""The duties of every window store; the tests of a store derive from `StoreContract`.

Nothing here runs on its own: a subclass has the fixtures `stores`, a function that opens one more
client of the same, at first empty store, and `flush`, a function that empties it.
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable, Coroutine
from typing import Any, ParamSpec

import pytest

from dispatcher.core.model import LeaseId, MemberId, Reason, SessionId
from dispatcher.core.steps import (
    AsideSet,
    BitsSet,
    Change,
    CursorMoved,
    EpochsMoved,
    LeaseEnded,
    LeaseExtended,
    LeaseState,
    LeaseTaken,
    RetriesForgotten,
    RetryNoted,
    RetryState,
    Snapshot,
)
from dispatcher.core.stored.snapshot import apply_changes
from dispatcher.store.base import (
    Counts,
    Fence,
    FencedError,
    StoreError,
    WindowGone,
    WindowKey,
    WindowStore,
    Write,
)
from tests.rig.patience import patient_s

P = ParamSpec("P")

KEY = WindowKey("group", "AAAAAAAAAAAAAAAAAAAAAA", 0)
M1, S1 = MemberId("m1"), SessionId("s1")
FULL = Snapshot(
    65_000,
    [(65_002, 65_002), (65_400, 65_700), (131_072, 131_080)],
    [
        LeaseState(LeaseId(3), M1, S1, 9_000, [65_000, 65_001]),
        LeaseState(LeaseId(4), M1, S1, 8, []),
    ],
    [RetryNoted(65_003, 2, 700, RetryState.PARKED, Reason.REJECTED, M1)],
    front=65_000,
    epochs=((1, -1), (3, 64_000)),
)
STEP: list[Change] = [
    LeaseTaken(LeaseId(5), M1, SessionId("s2"), 10_000, [65_010, 65_020]),
    LeaseExtended(LeaseId(3), 12_000),
    LeaseEnded(LeaseId(4)),
    BitsSet(0, 8_125, b"\x05"),
    RetryNoted(65_001, 1, 800, RetryState.WAITING, Reason.RELEASED, M1),
    RetriesForgotten([65_003]),
    CursorMoved(65_001, 65_002),
    AsideSet(126, bytes(61) + b"\2"),  # 65,001
    EpochsMoved(((3, 64_000), (7, 65_020))),
]


class Stores:
    """Opens clients of one store and closes them at the end of the test."""

    def __init__(self, new: Callable[[], WindowStore]) -> None:
        self._new = new
        self._opened: list[WindowStore] = []

    def __call__(self) -> WindowStore:
        self._opened.append(self._new())
        return self._opened[-1]

    async def close(self) -> None:
        for store in self._opened:
            await store.close()


def in_loop(test: Callable[P, Coroutine[Any, Any, None]]) -> Callable[P, None]:
    """Runs an async test in an event loop of its own, in which its `Stores` are closed too."""

    async def whole(*args: P.args, **kwargs: P.kwargs) -> None:
        try:
            async with asyncio.timeout(patient_s(60)):
                await test(*args, **kwargs)
        finally:
            for value in kwargs.values():
                if isinstance(value, Stores):
                    await value.close()

    @functools.wraps(test)
    def run(*args: P.args, **kwargs: P.kwargs) -> None:
        asyncio.run(whole(*args, **kwargs))

    return run


async def opened(store: WindowStore, key: WindowKey = KEY, owner: str = "one") -> Fence:
    """Claims a new window and creates it as FULL."""
    claimed = await store.claim(key, owner)
    assert claimed.snapshot is None
    await store.create(key, claimed.fence, FULL)
    return claimed.fence


class StoreContract:
    @in_loop
    async def test_an_unknown_window_is_claimed_without_a_snapshot(self, stores: Stores) -> None:
        claimed = await stores().claim(KEY, "one")
        assert claimed.snapshot is None

    @in_loop
    async def test_a_claim_that_is_given_up_leaves_nothing(self, stores: Stores) -> None:
        one, two = stores(), stores()
        fence = (await one.claim(KEY, "one")).fence
        await one.release(KEY, fence)
        with pytest.raises(WindowGone):
            await one.create(KEY, fence, FULL)
        earlier = (await one.claim(KEY, "one")).fence
        fence = (await two.claim(KEY, "two")).fence
        await one.release(KEY, earlier)
        await two.create(KEY, fence, FULL)
        await two.release(KEY, fence)
        assert (await two.claim(KEY, "two")).snapshot == FULL

    @in_loop
    async def test_what_was_created_is_read_by_the_next_claim(self, stores: Stores) -> None:
        store = stores()
        await opened(store)
        assert (await store.claim(KEY, "one")).snapshot == FULL

    @in_loop
    async def test_create_replaces_everything(self, stores: Stores) -> None:
        store = stores()
        fence = await opened(store)
        await store.apply([Write(KEY, fence, STEP)])
        await store.create(KEY, fence, Snapshot(7, [(9, 9)]))
        assert (await store.claim(KEY, "one")).snapshot == Snapshot(7, [(9, 9)])

    @in_loop
    async def test_the_origin_is_the_fence_of_the_last_create(self, stores: Stores) -> None:
        store = stores()
        fence = await opened(store)
        await store.apply([Write(KEY, fence, STEP)])
        claimed = await store.claim(KEY, "one")
        assert claimed.origin == fence
        assert (await store.claim(KEY, "one")).origin == fence
        later = await store.claim(KEY, "two")
        await store.create(KEY, later.fence, FULL)
        assert (await store.claim(KEY, "two")).origin == later.fence > fence
        ahead = later.fence + 10**12
        claimed = await store.claim(KEY, "two")
        await store.create(KEY, claimed.fence, FULL, origin=ahead)
        claimed = await store.claim(KEY, "two")
        assert claimed.origin == ahead > claimed.fence, "of a commit whose clock is ahead"
        assert claimed.next_origin == ahead + 1
        await store.create(KEY, claimed.fence, FULL, origin=later.fence)
        assert (await store.claim(KEY, "two")).origin == claimed.fence, "the later of the two"
        await store.delete(KEY)
        assert (await store.claim(KEY, "one")).origin == 0

    @in_loop
    async def test_a_step_adds_up_as_the_pure_function_says(self, stores: Stores) -> None:
        store = stores()
        fence = await opened(store)
        assert await store.apply([Write(KEY, fence, STEP)]) == [None]
        assert (await store.claim(KEY, "one")).snapshot == apply_changes(FULL, STEP)

    @in_loop
    async def test_steps_of_one_call_are_applied_in_order(self, stores: Stores) -> None:
        store = stores()
        fence = await opened(store)
        steps: list[list[Change]] = [
            STEP,
            [BitsSet(0, 8_125, b"\xff"), LeaseEnded(LeaseId(5))],
            [BitsSet(0, 8_125, b"\x0f"), LeaseTaken(LeaseId(6), M1, S1, 1, [65_011])],
            [CursorMoved(65_006, 65_006)],
        ]
        results = await store.apply([Write(KEY, fence, step) for step in steps])
        assert results == [None] * 4
        expected = FULL
        for step in steps:
            expected = apply_changes(expected, step)
        assert (await store.claim(KEY, "one")).snapshot == expected

    @in_loop
    async def test_writing_a_step_again_changes_nothing(self, stores: Stores) -> None:
        store = stores()
        fence = await opened(store)
        for _ in range(3):
            assert await store.apply([Write(KEY, fence, STEP)]) == [None]
        assert (await store.claim(KEY, "one")).snapshot == apply_changes(FULL, STEP)

    @in_loop
    async def test_nothing_to_write_is_nothing_written(self, stores: Stores) -> None:
        store = stores()
        fence = await opened(store)
        assert await store.apply([]) == []
        assert await store.apply([Write(KEY, fence, [])]) == [None]
        assert (await store.claim(KEY, "one")).snapshot == FULL

    @in_loop
    async def test_windows_know_nothing_of_each_other(self, stores: Stores) -> None:
        store = stores()
        keys = [
            KEY,
            WindowKey("group", KEY.topic_id, 1),
            WindowKey("group", "BAAAAAAAAAAAAAAAAAAAAA", 0),
            WindowKey("group|AAAAAAAAAAAAAAAAAAAAAA", KEY.topic_id, 0),
            WindowKey("}{ gruppe: ü * %7D", KEY.topic_id, 0),
            WindowKey("}{ gruppe: ü * }", KEY.topic_id, 0),
        ]
        fences = [await opened(store, key) for key in keys]
        writes = [Write(key, fence, STEP) for key, fence in zip(keys, fences, strict=True)]
        assert await store.apply(writes[::2]) == [None] * 3
        after = apply_changes(FULL, STEP)
        for at, key in enumerate(keys):
            assert (await store.claim(key, "one")).snapshot == (FULL if at % 2 else after), key

    @in_loop
    async def test_a_new_owner_ends_the_old_one(self, stores: Stores) -> None:
        one, two = stores(), stores()
        old = await opened(one)
        claimed = await two.claim(KEY, "two")
        assert claimed.snapshot == FULL
        assert claimed.fence > old

        assert isinstance((await one.apply([Write(KEY, old, STEP)]))[0], FencedError)
        with pytest.raises(FencedError):
            await one.create(KEY, old, Snapshot(0))
        assert await two.apply([Write(KEY, claimed.fence, [CursorMoved(65_001, 65_001)])]) == [None]
        snapshot = (await two.claim(KEY, "two")).snapshot
        assert snapshot == apply_changes(FULL, [CursorMoved(65_001, 65_001)])

    @in_loop
    async def test_who_knows_older_owners_than_the_last_claimer_gets_nothing(
        self, stores: Stores
    ) -> None:
        one, two = stores(), stores()
        fence = (await one.claim(KEY, "one", 7)).fence
        await one.create(KEY, fence, FULL)
        with pytest.raises(FencedError):
            await two.claim(KEY, "two", 6)
        assert await one.apply([Write(KEY, fence, STEP)]) == [None], "the refused claim is nothing"
        assert (await two.claim(KEY, "two", 7)).fence > fence
        assert (await two.claim(KEY, "two", 8)).snapshot == apply_changes(FULL, STEP)
        with pytest.raises(FencedError):
            await one.claim(KEY, "one", 7)
        assert (await one.claim(KEY, "alone")).snapshot is not None, "a node that stands alone"

    @in_loop
    async def test_the_same_owner_is_fenced_by_its_own_later_claim(self, stores: Stores) -> None:
        store = stores()
        old = await opened(store)
        new = (await store.claim(KEY, "one")).fence
        results = await store.apply([Write(KEY, old, STEP), Write(KEY, new, STEP)])
        assert isinstance(results[0], FencedError)
        assert results[1] is None

    @in_loop
    async def test_one_refused_window_stops_no_other(self, stores: Stores) -> None:
        store = stores()
        other = WindowKey("group", KEY.topic_id, 1)
        fence, other_fence = await opened(store), await opened(store, other)
        await stores().claim(KEY, "two")
        results = await store.apply(
            [Write(KEY, fence, STEP), Write(other, other_fence, STEP), Write(KEY, fence, STEP)]
        )
        assert [type(result) for result in results] == [FencedError, type(None), FencedError]

    @in_loop
    async def test_a_window_that_was_only_claimed_takes_no_steps(self, stores: Stores) -> None:
        store = stores()
        fence = (await store.claim(KEY, "one")).fence
        assert isinstance((await store.apply([Write(KEY, fence, STEP)]))[0], WindowGone)
        assert (await store.claim(KEY, "one")).snapshot is None

    @in_loop
    async def test_a_deleted_window_is_gone(self, stores: Stores) -> None:
        store = stores()
        fence = await opened(store)
        await store.delete(KEY)
        await store.delete(KEY)
        assert isinstance((await store.apply([Write(KEY, fence, STEP)]))[0], WindowGone)
        claimed = await store.claim(KEY, "one")
        assert claimed.snapshot is None
        assert claimed.fence > fence

    @in_loop
    async def test_a_flushed_window_is_gone_until_it_is_rebuilt(
        self, stores: Stores, flush: Callable[[], None]
    ) -> None:
        store = stores()
        fence = await opened(store)
        flush()
        assert isinstance((await store.apply([Write(KEY, fence, STEP)]))[0], WindowGone)
        with pytest.raises(WindowGone):
            await store.create(KEY, fence, FULL)
        again = await opened(store)
        assert again > fence
        assert await store.apply([Write(KEY, again, STEP)]) == [None]

    @in_loop
    async def test_a_fence_of_before_a_flush_is_worth_nothing_after_it(
        self, stores: Stores, flush: Callable[[], None]
    ) -> None:
        one, two = stores(), stores()
        old = await opened(one)
        flush()
        await opened(two, owner="two")
        assert isinstance((await one.apply([Write(KEY, old, STEP)]))[0], StoreError)
        assert (await two.claim(KEY, "two")).snapshot == FULL

    @in_loop
    async def test_parked_records_are_counted_without_a_claim(self, stores: Stores) -> None:
        """FULL has one; one that waits, or is settled, is none."""
        store, other = stores(), WindowKey("group", KEY.topic_id, 7)
        fence = await opened(store)
        second = WindowKey("group", KEY.topic_id, 1)
        await opened(store, second)
        counts = await stores().counts([KEY, other, second])
        assert [count.parked for count in counts] == [1, 0, 1]
        more: list[Change] = [
            RetryNoted(65_020 + at, at, at, state, Reason.REJECTED, M1)
            for at, state in enumerate([*RetryState, RetryState.PARKED, RetryState.PARKED])
        ]
        assert await store.apply([Write(KEY, fence, more)]) == [None]
        assert [count.parked for count in await stores().counts([KEY])] == [4]
        assert await store.apply([Write(KEY, fence, [RetriesForgotten([65_003])])]) == [None]
        assert [count.parked for count in await stores().counts([KEY])] == [3]
        assert await store.counts([]) == []

    @in_loop
    async def test_settled_offsets_are_counted_without_a_claim(self, stores: Stores) -> None:
        """Those between cursor and front, and those from the front on in three chunks."""
        store = stores()
        fence = (await store.claim(KEY, "one")).fence
        settled = [(8, 99_999), (100_002, 100_005), (100_007, 100_018), (131_070, 196_700)]
        snapshot = Snapshot(7, [*settled, (196_702, 196_702)], front=100_003)
        count = 99_992 + 4 + 12 + 65_631 + 1
        await store.create(KEY, fence, snapshot)
        assert await stores().counts([KEY]) == [Counts(7, 0, count)]
        step: list[Change] = [AsideSet(0, b""), CursorMoved(100_000, 100_003, 2)]
        assert await store.apply([Write(KEY, fence, step)]) == [None]
        assert await stores().counts([KEY]) == [Counts(100_000, 0, count - 99_992)]

    @in_loop
    async def test_positions_are_those_of_one_group_and_take_nothing_over(
        self, stores: Stores
    ) -> None:
        store = stores()
        names = ["group", "group|AAAAAAAAAAAAAAAAAAAAAA", "gr*p", "}{ [g] ü %7D", "grou?"]
        keys = [
            WindowKey(name, topic_id, partition)
            for name in names
            for topic_id in (KEY.topic_id, "BAAAAAAAAAAAAAAAAAAAA_")
            for partition in (0, 11)
        ]
        fences = [await opened(store, key) for key in keys]
        await store.claim(WindowKey("group", KEY.topic_id, 5), "claimed, never created")
        assert await store.apply([Write(keys[0], fences[0], [CursorMoved(65_400, 65_400)])]) == [
            None
        ]
        for name in names:
            cursors = {key: 65_000 for key in keys if key.group == name}
            if name == "group":
                cursors[keys[0]] = 65_400
            assert await stores().positions(name) == cursors
        assert await store.positions("nobody's") == {}
        assert set(await store.positions(None)) == set(keys)
        assert await store.apply([Write(keys[0], fences[0], STEP)]) == [None], "still the owner"
