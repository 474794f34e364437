"""A window at a batch that is too large when decompressed: each record given up counts once."""

from __future__ import annotations

from dispatcher.core.steps import Notice
from gateway.core.reading.fetching import ReadResult
from gateway.core.wire.errors import ErrorCode
from tests.rig.node_parts import Node
from tests.rig.virtual_time import run, settle


def test_a_late_refusal_of_what_an_operator_gave_up_counts_nothing() -> None:
    async def work() -> None:
        async with Node() as node:
            node.log.produce(b"a")
            node.beat()
            await settle()
            window = node.window()
            core = window.dispatcher
            assert core is not None
            start, end = core.read_position, core.read_position + 2
            refused = ReadResult(start, end, [], [], 0, end, ErrorCode.MESSAGE_TOO_LARGE)
            window.on_read(refused)
            await window.give_up(refused.end)
            assert core.read_position == refused.end
            window.on_read(refused)
            dropped = [noticed for noticed in node.noticed if noticed.notice is Notice.DROPPED]
            assert [noticed.count for noticed in dropped] == [2]

    run(work())
