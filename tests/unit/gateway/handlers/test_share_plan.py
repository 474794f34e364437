"""The plan of a share session: nothing is looked up again until something has changed."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from gateway.core.wire.apis import ApiKey
from gateway.core.wire.errors import ErrorCode
from gateway.listen.limits import AUTHORISATION_MS_MAX
from gateway.windows.table import WindowTable
from gateway.windows.window import Window
from tests.rig.node_parts import TOPIC, Node
from tests.rig.share_client import ACCEPT, Client, error, row_error, story

Looked = list[tuple[bytes, int]]


@pytest.fixture
def looked_up(monkeypatch: pytest.MonkeyPatch) -> Looked:
    """The partitions that were looked up."""
    looked: Looked = []
    get = WindowTable.get

    def noted(table: WindowTable, group: str, topic_id: bytes, partition: int) -> Window | None:
        looked.append((topic_id, partition))
        return get(table, group, topic_id, partition)

    monkeypatch.setattr(WindowTable, "get", noted)
    return looked


def test_the_usual_request_looks_nothing_up(looked_up: Looked) -> None:
    async def tell(node: Node, client: Client) -> None:
        await client.fetch(partitions=[0, 1, 2], MaxRecords=3)
        await client.fetch()  # all windows are open now
        looked_up.clear()
        asked = len(client.connection.asked)
        for _ in range(3):
            answer = await client.fetch(acks={0: []}, MaxRecords=3)
            assert error(answer) == ErrorCode.NONE
        assert looked_up == []
        assert len(client.connection.asked) == asked
        node.windows.table.drop(node.window(1).key)
        await client.fetch()
        assert looked_up, "a window is another"

    story(tell, partitions=3)


def test_another_topology_partition_or_permission_is_looked_up(looked_up: Looked) -> None:
    async def tell(node: Node, client: Client) -> None:
        await client.fetch(partitions=[0])
        await client.fetch(acks={0: [(0, 2, ACCEPT)]})
        looked_up.clear()
        node.topology = replace(node.topology)
        await client.fetch()
        assert len(looked_up) == 1
        await client.fetch(partitions=[1])
        assert len(looked_up) == 3, "the session has another partition"
        await client.fetch()
        await client.fetch()
        looked_up.clear()
        await asyncio.sleep(AUTHORISATION_MS_MAX / 1000)
        client.connection.denied.add(TOPIC)
        client.connection.asked.clear()
        answer = await client.fetch()
        assert ApiKey.METADATA in client.connection.asked
        assert len(looked_up) == 2
        assert {row_error(answer, at) for at in (0, 1)} == {ErrorCode.TOPIC_AUTHORIZATION_FAILED}

    story(tell, partitions=2)
