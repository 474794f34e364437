"""The end of a member's share session: it closes it, says goodbye, or hangs up in the middle."""

from __future__ import annotations

import asyncio

import pytest

from dispatcher.store.base import StoreError
from gateway.config.groups import GroupSection
from gateway.core.wire.apis import ApiKey
from gateway.core.wire.errors import ErrorCode
from gateway.members.saved_members import SavedGroup
from tests.rig.node_parts import Node
from tests.rig.share_client import (
    ACCEPT,
    Client,
    ScriptedConnection,
    joined,
    offsets,
    row_error,
    story,
)
from tests.rig.virtual_time import now_ms, settle, until

ONE_DELIVERY = GroupSection(auto_offset_reset="earliest", deliveries_max=1)
GATES = ["group", "topics", "records", "store"]


def test_closing_gives_back_what_was_not_acknowledged() -> None:
    async def tell(_node: Node, client: Client) -> None:
        await client.fetch()
        answer = await client.acknowledge({0: [(0, 0, ACCEPT)]}, epoch=-1)
        assert row_error(answer) == ErrorCode.NONE
        client.epoch = 0
        assert offsets(await client.fetch()) == [1, 2]
        await client.fetch(epoch=-1)
        client.epoch = 0
        assert offsets(await client.fetch()) == [1, 2]

    story(tell)


@pytest.mark.parametrize("by_fetch", [False, True])
def test_so_it_does_if_the_window_is_being_loaded(by_fetch: bool) -> None:
    """Without a grace, and without an end to the budget of deliveries."""

    async def tell(node: Node, client: Client) -> None:
        assert offsets(await client.fetch()) == [0, 1, 2]
        window = node.window()
        window.fail(StoreError("away"))
        await (client.fetch(epoch=-1) if by_fetch else client.acknowledge({}, epoch=-1))
        client.hang_up()
        assert window.dispatcher is None
        await until(lambda: window.dispatcher is not None)
        other = await joined(node, member="m2")
        assert offsets(await other.fetch()) == [0, 1, 2]

    story(tell, ONE_DELIVERY)


def test_a_close_does_not_overtake_an_acknowledgement_that_waits_for_the_window() -> None:
    async def tell(node: Node, client: Client) -> None:
        assert offsets(await client.fetch()) == [0, 1, 2]
        node.window().fail(StoreError("away"))
        waits = node.tasks.create_task(client.acknowledge({0: [(0, 0, ACCEPT)]}))
        await settle()
        beside = Client(node, client.services, ScriptedConnection(77, 1), client.member)
        await beside.fetch(epoch=-1)
        assert row_error(await waits) == ErrorCode.NONE
        other = await joined(node, member="m2")
        assert offsets(await other.fetch()) == [1, 2]

    story(tell, ONE_DELIVERY)


def test_a_goodbye_may_overtake_the_last_acknowledgements() -> None:
    """Closing, librdkafka sends both at once, on two connections."""

    async def tell(node: Node, client: Client) -> None:
        assert offsets(await client.fetch()) == [0, 1, 2]
        assert (await client.heartbeat(-1))["ErrorCode"] == 0
        await settle()
        answer = await client.acknowledge({0: [(0, 1, ACCEPT)]}, epoch=-1)
        assert row_error(answer) == ErrorCode.NONE
        other = await joined(node, member="m2")
        assert offsets(await other.fetch()) == [2]

    story(tell)


def test_so_may_the_news_of_it_from_the_node_that_coordinates() -> None:
    async def tell(node: Node, client: Client) -> None:
        assert offsets(await client.fetch()) == [0, 1, 2]
        node.groups.copy(client.group, SavedGroup(2, []), now_ms())
        await settle()
        answer = await client.acknowledge({0: [(0, 2, ACCEPT)]}, epoch=-1)
        assert row_error(answer) == ErrorCode.NONE

    story(tell)


@pytest.mark.parametrize("gate", GATES)
@pytest.mark.parametrize("closing", [False, True])
def test_whoever_hangs_up_anywhere_loses_nothing(gate: str, closing: bool) -> None:
    """At every await of a fetch (closing: of the acknowledgement that ends the session)."""

    async def tell(node: Node, client: Client) -> None:
        await client.fetch(MaxRecords=2)
        node.log.produce(b"d")
        await settle()
        client.services.authoriser.connection_lost(client.connection.id)  # to be asked again
        blocked = asyncio.Event()
        keys = {"group": ApiKey.HEARTBEAT, "topics": ApiKey.METADATA}
        if gate in keys:
            client.connection.gates[keys[gate]] = blocked
        elif gate == "records":
            node.log.gate = blocked
        else:
            node.store.gate = blocked
        acks = {0: [(0, 0, ACCEPT)]}
        asked = client.acknowledge(acks, epoch=-1) if closing else client.fetch(acks=acks)
        request = node.tasks.create_task(asked)
        await settle()
        client.hang_up()
        request.cancel()
        await asyncio.wait([request])
        node.log.gate = node.store.gate = None
        blocked.set()
        assert len(node.ready) == 0
        assert len(node.groups.sessions) == 0
        await asyncio.sleep(4)  # the grace of its records
        again = await joined(node, member="m2")
        answer = await again.fetch()
        assert offsets(answer)[-3:] == [1, 2, 3], "well before any lock runs out"

    story(tell)
