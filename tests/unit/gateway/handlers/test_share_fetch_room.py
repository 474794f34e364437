"""Share fetches while other clients leave their answers unread."""

from __future__ import annotations

import asyncio

from dispatcher.core.model import MemberId
from gateway.core.limits import LONG_STEP_BYTES
from gateway.listen.limits import ANSWER_BYTES_MIN
from tests.rig.node_parts import Node
from tests.rig.share_client import Client, offsets, story
from tests.rig.virtual_time import now_ms

OTHER = 999  # another client's connection


def test_an_answer_is_small_while_other_clients_do_not_read_theirs() -> None:
    async def tell(node: Node, client: Client) -> None:
        node.log.sizes = dict.fromkeys(range(3), ANSWER_BYTES_MIN // 2)
        bounds = client.connection.bounds
        bounds.hold_answer(OTHER, bounds.answers.bytes_max)
        assert offsets(await client.fetch()) == [0, 1], "a little is always sent"
        assert bounds.answers.held(client.connection.id) == ANSWER_BYTES_MIN - 1
        bounds.forget(OTHER)
        assert offsets(await client.fetch()) == [2]

    story(tell)


def test_large_records_wait_while_other_clients_do_not_read_theirs() -> None:
    """They are not acquired: no lock runs, and another member may have them."""

    async def tell(node: Node, client: Client) -> None:
        node.log.mean_bytes = 2 * ANSWER_BYTES_MIN
        bounds = client.connection.bounds
        bounds.hold_answer(OTHER, bounds.answers.bytes_max)
        assert offsets(await client.fetch(MaxWaitMs=500)) == []
        assert node.window().ready_for(MemberId(client.member), now_ms()) == 3
        async with asyncio.TaskGroup() as tasks:
            fetching = tasks.create_task(client.fetch(MaxWaitMs=60_000))
            await asyncio.sleep(1)
            assert not fetching.done()
            bounds.forget(OTHER)
        assert offsets(fetching.result()) == [0, 1, 2]

    story(tell)


def test_a_record_that_is_larger_than_was_thought_waits_for_room() -> None:
    """Of a partition whose last batch had small records. Answers of 90 MB for four groups at once
    took more memory than the node may have.
    """

    async def tell(node: Node, client: Client) -> None:
        large = 2 * LONG_STEP_BYTES
        node.log.sizes = {0: large}
        bounds = client.connection.bounds
        bounds.hold_answer(OTHER, bounds.answers.bytes_max - large + 2)
        async with asyncio.TaskGroup() as tasks:
            fetching = tasks.create_task(client.fetch(MaxRecords=1, MaxWaitMs=60_000))
            await asyncio.sleep(1)
            assert not fetching.done()
            assert bounds.answers.held(client.connection.id) == 0
            assert len(node.log.asked) == 1, "it is not cut out again and again"
            bounds.forget(OTHER)
        assert offsets(fetching.result()) == [0]
        assert bounds.answers.held(client.connection.id) > large - 100

    story(tell)
