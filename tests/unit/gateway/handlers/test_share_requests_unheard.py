"""A node that does not reach the store of the owners: others may have what it had."""

from __future__ import annotations

from typing import Any

from gateway.core.wire.errors import ErrorCode
from gateway.handlers.limits import UNHEARD_MS
from gateway.routing.owners import Alone
from tests.rig.node_parts import Node
from tests.rig.share_client import Client, ScriptedConnection, rows, services
from tests.rig.virtual_time import now_ms, run, settle


class Unheard(Alone):
    """`known`: the other nodes that lived when it last heard."""

    def __init__(self, *known: str) -> None:
        self.known = known
        self.heard = True

    def certain(self) -> bool:
        return self.heard

    def others(self) -> tuple[str, ...]:
        return self.known


async def asked(owners: Unheard, age_ms: int) -> tuple[int, int, bool]:
    """The errors of a heartbeat and of a fetch without records, and whether the connection ends."""
    async with Node(owners=owners) as node:
        connection = ScriptedConnection(1)
        connection.facts.since_ms = now_ms() - age_ms
        client = Client(node, services(node), connection)
        assert (await client.heartbeat())["ErrorCode"] == 0
        await client.fetch()
        await settle()
        owners.heard = False
        beat = await client.heartbeat(1)
        fetched: dict[Any, Any] = rows(await client.fetch(MaxWaitMs=100))
        error = fetched[0]["ErrorCode"] if 0 in fetched else 0
        return beat["ErrorCode"], error, connection.drained


def test_its_clients_are_sent_to_look_for_the_owners() -> None:
    errors = (ErrorCode.NOT_COORDINATOR, ErrorCode.NOT_LEADER_OR_FOLLOWER)
    assert run(asked(Unheard("b"), UNHEARD_MS)) == (*errors, True)


def test_a_client_that_has_just_come_back_is_let_be() -> None:
    """Perhaps nobody reaches the store: clients must not run from node to node."""
    assert run(asked(Unheard("b"), UNHEARD_MS - 1)) == (0, 0, False)


def test_without_another_node_they_stay() -> None:
    assert run(asked(Unheard(), UNHEARD_MS)) == (0, 0, False)
