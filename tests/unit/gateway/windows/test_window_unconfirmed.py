"""A store that applied a write whose answer was lost."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from dispatcher.core.model import Acquire, MemberId, SessionId
from dispatcher.store.base import StoreError, Write
from gateway.windows.failures import WindowUnavailable
from gateway.windows.window import Acquired, Window
from tests.rig.node_parts import Node, ScriptedStore
from tests.rig.virtual_time import now_ms, run, settle, until


class Deaf(ScriptedStore):
    lost = False

    async def apply(self, writes: Sequence[Write]) -> list[StoreError | None]:
        results = await super().apply(writes)
        return [StoreError("the answer was lost")] * len(writes) if self.lost else results


def acquire(window: Window, records_max: int) -> Acquired:
    acquired = window.acquire(Acquire(MemberId("m1"), SessionId("s1"), records_max, now_ms()))
    assert acquired is not None
    return acquired


def test_what_was_applied_and_not_sent_is_handed_out_again_at_once() -> None:
    """The store took the leases, its answer was lost: nobody has these records, and their keys must
    not wait for the locks.
    """

    async def work() -> None:
        store = Deaf()
        async with Node(store=store) as node:
            node.log.produce(b"a", b"b", b"c")
            node.beat()
            await settle()
            window = node.window()
            held = acquire(window, 1)
            await held.persisted
            store.lost = True
            acquired = acquire(window, 100)
            with pytest.raises(WindowUnavailable):
                await acquired.persisted
            store.lost = False
            began = now_ms()
            await until(lambda: window.dispatcher is not None)
            await settle()
            again = acquire(window, 100)
            assert (again.offsets, again.attempts) == (acquired.offsets, [1, 1])
            assert not set(again.offsets) & set(held.offsets), "records sent before are still held"
            assert now_ms() - began < 1_000

    run(work())
