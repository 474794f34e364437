"""The window store in memory, for tests and the simulation: a model of the Redis one.

`StoredWindow` adds up the changes and knows nothing of the dispatcher: a restored window is judged
by the changes that were really written.
"""

from __future__ import annotations

from collections.abc import Sequence

from dispatcher.core.steps import RetryState, Snapshot
from dispatcher.core.stored.snapshot import StoredWindow, state_of
from dispatcher.store.base import (
    Claimed,
    Counts,
    Fence,
    FencedError,
    StoreError,
    WindowGone,
    WindowKey,
    Write,
)


class MemoryStore:
    """Implements `WindowStore`. `down` makes every call fail; `flush` is FLUSHALL."""

    def __init__(self) -> None:
        self.windows: dict[WindowKey, StoredWindow] = {}
        self.fences: dict[WindowKey, Fence] = {}
        self.origins: dict[WindowKey, int] = {}  # the fences they were created under, or later
        self.generations: dict[WindowKey, int] = {}  # of the owners that their claimers knew
        self.last_fence = 0
        self.down = False

    async def claim(self, key: WindowKey, owner: str, generation: int = 0) -> Claimed:
        return self.claim_now(key, owner, generation)

    async def create(
        self, key: WindowKey, fence: Fence, snapshot: Snapshot, *, origin: int = 0
    ) -> None:
        self.create_now(key, fence, snapshot, origin=origin)

    async def apply(self, writes: Sequence[Write]) -> list[StoreError | None]:
        return self.apply_now(writes)

    async def release(self, key: WindowKey, fence: Fence) -> None:
        self._reach()
        if self.fences.get(key) == fence and key not in self.windows:
            del self.fences[key]
            self.generations.pop(key, None)

    def forget(self, key: WindowKey) -> None:
        """Does nothing: fences say who may write."""

    async def delete(self, key: WindowKey) -> None:
        self._reach()
        self.windows.pop(key, None)
        self.fences.pop(key, None)
        self.origins.pop(key, None)
        self.generations.pop(key, None)

    async def positions(self, group: str | None) -> dict[WindowKey, int]:
        self._reach()
        return {
            key: window.snapshot().cursor
            for key, window in sorted(self.windows.items())
            if group is None or key.group == group
        }

    async def counts(self, keys: Sequence[WindowKey]) -> list[Counts]:
        self._reach()
        return [self._counts(key) for key in keys]

    def _counts(self, key: WindowKey) -> Counts:
        window = self.windows.get(key)
        if window is None:
            return Counts(0, 0, 0)
        settled = sum(high + 1 - low for low, high in window.snapshot().settled)
        parked = [retry.state for retry in window.retries.values()].count(RetryState.PARKED)
        return Counts(window.cursor, parked, settled)

    async def close(self) -> None:
        self.down = True

    def claim_now(self, key: WindowKey, owner: str, generation: int = 0) -> Claimed:
        """`claim` for callers without an event loop."""
        assert owner, "an owner has a name"
        self._reach()
        if generation > 0:
            if self.generations.get(key, 0) > generation:
                raise FencedError(f"{key}: a node that knows newer owners has claimed it")
            self.generations[key] = generation
        self.last_fence += 1
        fence = Fence(self.last_fence)
        self.fences[key] = fence
        window = self.windows.get(key)
        snapshot = None if window is None else window.snapshot()
        return Claimed(fence, snapshot, origin=self.origins.get(key, 0))

    def create_now(
        self, key: WindowKey, fence: Fence, snapshot: Snapshot, *, origin: int = 0
    ) -> None:
        """`create` for callers without an event loop."""
        self._reach()
        if key not in self.fences:
            raise WindowGone(f"{key} was flushed since the claim")
        if self.fences[key] != fence:
            raise FencedError(f"{key} has another owner")
        self.windows[key] = state_of(snapshot)
        self.origins[key] = max(fence, origin)

    def apply_now(self, writes: Sequence[Write]) -> list[StoreError | None]:
        """`apply` for callers without an event loop."""
        return [self._apply(write) for write in writes]

    def flush(self) -> None:
        """Everything is gone, fences too: as after FLUSHALL, or a Redis that lost its file."""
        self.windows.clear()
        self.fences.clear()
        self.origins.clear()

    def dump(self) -> MemoryStore:
        """A file of the present contents, for `set_back`."""
        file = MemoryStore()
        file.windows = {key: state_of(window.snapshot()) for key, window in self.windows.items()}
        file.origins = dict(self.origins)
        return file

    def set_back(self, file: MemoryStore) -> None:
        """Sets the store back to what it was when the file was written. The owner of a window has
        to claim it again, as after a step that Redis does not know.
        """
        old = file.dump()
        self.windows, self.origins = old.windows, old.origins
        self.fences.clear()

    def _apply(self, write: Write) -> StoreError | None:
        if self.down:
            return StoreError("the store is down")
        window = self.windows.get(write.key)
        if window is None or write.key not in self.fences:
            return WindowGone(f"{write.key} is not in the store")
        if self.fences[write.key] != write.fence:
            return FencedError(f"{write.key} has another owner")
        window.apply(write.changes)
        return None

    def _reach(self) -> None:
        if self.down:
            raise StoreError("the store is down")
