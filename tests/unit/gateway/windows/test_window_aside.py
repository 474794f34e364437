"""What the reader keeps for a window whose slow records stay behind its front."""

from __future__ import annotations

from dispatcher.core.model import Acknowledge, AckType, Acquire, MemberId, SessionId
from gateway.windows.limits import FORGET_OFFSETS, KEPT_ASIDE_OFFSETS
from gateway.windows.window import Window
from tests.rig.node_parts import Node
from tests.rig.virtual_time import now_ms, run, settle

M1, S1 = MemberId("m1"), SessionId("s1")
AT_ONCE = 500


async def work_off(window: Window, records: int) -> None:
    """The member takes and accepts so many, whatever it got before."""
    for _ in range(0, records, AT_ONCE):
        acquired = window.acquire(Acquire(M1, S1, AT_ONCE, now_ms()))
        assert acquired is not None
        await acquired.persisted
        accepted = [(offset, offset, bytes([AckType.ACCEPT])) for offset in acquired.offsets]
        await window.ask(Acknowledge(M1, S1, accepted, now_ms()))
        await settle()


def test_records_aside_are_kept_for_a_span() -> None:
    """Members that are slower than others ask for them soon: each of their fetches read a whole
    batch again for a few records.
    """

    async def tell() -> None:
        async with Node() as node:
            keys = [b"key-%d" % (at % (2 * AT_ONCE)) for at in range(2 * KEPT_ASIDE_OFFSETS)]
            node.log.produce(b"slow", *keys)
            node.beat()
            await settle()
            window = node.window()
            slow = window.acquire(Acquire(M1, S1, 1, now_ms()))
            assert slow is not None
            core = window.dispatcher
            assert core is not None
            await work_off(window, 2 * KEPT_ASIDE_OFFSETS)
            assert core.cursor == 0
            (forgotten,) = node.log.forgotten.values()
            kept = core.front - forgotten
            assert KEPT_ASIDE_OFFSETS <= kept <= KEPT_ASIDE_OFFSETS + FORGET_OFFSETS

    run(tell())
