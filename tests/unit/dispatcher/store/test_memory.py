from collections.abc import Callable

import pytest

from dispatcher.store.base import StoreError, Write
from dispatcher.store.memory import MemoryStore
from tests.rig.store_contract import (
    FULL,
    KEY,
    STEP,
    StoreContract,
    Stores,
    in_loop,
    opened,
)


class TestMemoryStore(StoreContract):
    @pytest.fixture
    def store(self) -> MemoryStore:
        return MemoryStore()

    @pytest.fixture
    def stores(self, store: MemoryStore) -> Stores:
        return Stores(lambda: store)

    @pytest.fixture
    def flush(self, store: MemoryStore) -> Callable[[], None]:
        return store.flush

    @in_loop
    async def test_a_store_that_is_down_fails_every_call_and_forgets_nothing(
        self, store: MemoryStore
    ) -> None:
        fence = await opened(store)
        store.down = True
        assert [type(r) for r in await store.apply([Write(KEY, fence, STEP)] * 2)] == [
            StoreError
        ] * 2
        for call in (store.claim(KEY, "two"), store.create(KEY, fence, FULL), store.delete(KEY)):
            with pytest.raises(StoreError):
                await call
        store.down = False
        assert await store.apply([Write(KEY, fence, STEP)]) == [None]
