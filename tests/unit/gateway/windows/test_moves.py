"""Windows that another node has taken over."""

from __future__ import annotations

import asyncio

import pytest

from dispatcher.core.model import Acquire, MemberId
from gateway.windows.failures import WindowUnavailable
from tests.rig.node_parts import GROUP, Node
from tests.rig.virtual_time import now_ms, run, settle


def test_a_node_that_is_fenced_asks_whether_the_leader_has_moved() -> None:
    """Else it claims the window back, again and again, until its next look at the topology."""

    async def work() -> None:
        async with Node() as node:
            node.log.produce(b"a")
            node.beat("m1")
            await settle()
            session = node.groups.sessions.open((1, GROUP, "m1"), 1, acknowledges=False)
            node.store.claim_now(node.window().key, "another node")
            event = Acquire(MemberId("m1"), session.session_id, 9, now_ms())
            acquired = node.window().acquire(event)
            assert acquired is not None
            assert node.refreshes_requested == 0
            with pytest.raises(WindowUnavailable):
                await asyncio.wait_for(acquired.persisted, 1)
            assert node.refreshes_requested == 1

    run(work())
