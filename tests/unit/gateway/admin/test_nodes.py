"""REST of several nodes: the list, and an operator's orders with each refusal of the right kind."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import httpx

from gateway.config.admin import Role
from gateway.routing.limits import SESSION_MS
from gateway.routing.owners import SharedOwners
from tests.rig.admin_parts import Admin
from tests.rig.rest_parts import access, served, token
from tests.rig.table_in_memory import Shared, TableInMemory
from tests.rig.virtual_time import run

MOVED_S = 1.0  # a few beats
HEADERS = {"Authorization": "Bearer admin"}


def _owners(shared: Shared, name: str) -> SharedOwners:
    return SharedOwners(
        name,
        TableInMemory(shared, name),
        serves=lambda: {broker: {"clients": (name, 9200 + broker)} for broker in (1, 2)},
        agreed=dict,
        facts=lambda: {"admin": f"{name}:9180"},
    )


@asynccontextmanager
async def two_nodes(shared: Shared) -> AsyncIterator[dict[str, SharedOwners]]:
    """a owns virtual broker 1, b 2."""
    nodes = {name: _owners(shared, name) for name in "ab"}
    for node in nodes.values():
        await node.enter()
    async with asyncio.TaskGroup() as tasks:
        beating = [tasks.create_task(node.run()) for node in nodes.values()]
        for node in nodes.values():
            await node.join()
        await asyncio.sleep(MOVED_S)
        yield nodes
        for task in beating:
            task.cancel()


Story = Callable[[httpx.AsyncClient, dict[str, SharedOwners], Shared], Awaitable[None]]


def story(tell: Story) -> None:
    """Told to node a."""

    async def work() -> None:
        shared = Shared()
        guard = access(token("admin", Role.ADMIN), token("some", Role.ADMIN, ["orders-*"]))
        async with (
            two_nodes(shared) as nodes,
            served(Admin(), access=guard, nodes=nodes["a"]) as client,
        ):
            await tell(client, nodes, shared)

    run(work())


async def ordered(client: httpx.AsyncClient, verb: str, **body: object) -> tuple[int, object]:
    answer = await client.post(f"/v1/nodes/{verb}", json=body, headers=HEADERS)
    said = answer.json()
    return answer.status_code, said.get("title", said)


async def owns(client: httpx.AsyncClient) -> dict[str, list[int]]:
    answer = (await client.get("/v1/nodes", headers=HEADERS)).json()
    return {node["node"]: node["owns"] for node in answer["nodes"]}


def test_orders_are_taken_by_any_node_and_shown() -> None:
    async def tell(
        client: httpx.AsyncClient, _nodes: dict[str, SharedOwners], _shared: Shared
    ) -> None:
        assert await owns(client) == {"a": [1], "b": [2]}
        status, _ = await ordered(client, "drain", node="b")
        assert status == 200
        await asyncio.sleep(MOVED_S)
        assert await owns(client) == {"a": [1, 2], "b": []}
        answer = (await client.get("/v1/nodes", headers=HEADERS)).json()
        assert [node["drained"] for node in answer["nodes"]] == [False, True]
        assert (await ordered(client, "undrain", node="b"))[0] == 200
        assert (await ordered(client, "move", broker=1, node="b"))[0] == 200
        await asyncio.sleep(MOVED_S)
        answer = (await client.get("/v1/nodes", headers=HEADERS)).json()
        assert [node["placed"] for node in answer["nodes"]] == [[], [1]]
        assert 1 in (await owns(client))["b"]
        assert (await ordered(client, "move", broker=1, node=None))[0] == 200
        answer = await client.get("/v1/audit", headers=HEADERS)
        told = [
            (entry["action"], entry["target"], entry["outcome"]) for entry in answer.json()["audit"]
        ]
        assert told == [
            ("nodes.move", "1 to any", "done"),
            ("nodes.move", "1 to b", "done"),
            ("nodes.undrain", "b", "done"),
            ("nodes.drain", "b", "done"),
        ]

    story(tell)


def test_each_refusal_has_its_kind() -> None:
    async def tell(
        client: httpx.AsyncClient, nodes: dict[str, SharedOwners], shared: Shared
    ) -> None:
        unknown = (404, "no live node is named 'c'; alive: a, b")
        assert await ordered(client, "drain", node="c") == unknown
        assert await ordered(client, "undrain", node="c") == unknown
        assert await ordered(client, "move", broker=1, node="c") == unknown
        assert await ordered(client, "move", broker=7, node="b") == (
            404,
            "no node listens for virtual broker 7",
        )
        assert (await ordered(client, "drain", node="b"))[0] == 200
        status, said = await ordered(client, "drain", node="a")
        assert (status, str(said)[:43]) == (409, "node 'a' cannot be drained: no other node c")
        assert await ordered(client, "move", broker=1, node="b") == (
            409,
            "node 'b' is drained: undrain it first",
        )
        shared.down = True
        assert await ordered(client, "undrain", node="b") == (
            503,
            "the order is not confirmed: down",
        )
        shared.down = False
        assert (await ordered(client, "drain", node="a b"))[0] == 400
        assert (await ordered(client, "move", broker="1", node="b"))[0] == 400
        assert nodes["a"].routing.drained == {"b"}
        some = {"Authorization": "Bearer some"}
        answer = await client.post("/v1/nodes/drain", json={"node": "b"}, headers=some)
        assert answer.status_code == 403

    story(tell)


def test_a_node_that_is_gone_takes_nothing() -> None:
    async def tell(
        client: httpx.AsyncClient, nodes: dict[str, SharedOwners], _shared: Shared
    ) -> None:
        await nodes["b"].leave()
        await asyncio.sleep(SESSION_MS / 1000)
        status, said = await ordered(client, "move", broker=1, node="b")
        assert (status, said) == (404, "no live node is named 'b'; alive: a")

    story(tell)


def test_a_node_that_stands_alone_takes_no_orders() -> None:
    async def work() -> None:
        async with Admin().node, served(Admin()) as client:
            assert await ordered(client, "drain", node="a") == (
                409,
                "this node stands alone: it has no nodes.id",
            )
            assert (await client.get("/v1/nodes")).json()["nodes"] == []

    run(work())
