"""ShareGroupDescribe: bounds of an answer."""

from __future__ import annotations

import pytest

from gateway.core.share.membership import ShareGroup
from gateway.core.wire.apis import ApiKey
from gateway.core.wire.errors import ErrorCode
from gateway.core.wire.schema import Message
from gateway.handlers import share_group_describe
from gateway.handlers.share_group_describe import rows_of
from gateway.members.groups import Groups
from tests.rig.node_parts import GROUP, TOPIC, Node, topology
from tests.rig.share_client import Client, joined, story
from tests.rig.virtual_time import run

PARTITIONS = 64
ROWS_OF_A_MEMBER = 1 + 1 + 4  # itself, its topic, 16 partitions each


async def described(client: Client, *names: str) -> list[Message]:
    asked = {"GroupIds": list(names), "IncludeAuthorizedOperations": False}
    groups: list[Message] = (await client.ask(ApiKey.SHARE_GROUP_DESCRIBE, asked))["Groups"]
    return groups


def test_a_group_is_described_once_however_often_it_is_named() -> None:
    async def tell(_node: Node, client: Client) -> None:
        rows = await described(client, GROUP, "no-such", GROUP, GROUP, "no-such")
        assert [row["GroupId"] for row in rows] == [GROUP, "no-such"]

    story(tell)


def test_groups_beyond_the_bound_are_asked_for_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(share_group_describe, "DESCRIBED_ROWS_MAX", 2 * ROWS_OF_A_MEMBER)
    later = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS

    async def work() -> None:
        async with Node(topology=topology(PARTITIONS)) as node:
            client = await joined(node)
            for name in ("two", "three"):
                client.group = name
                assert (await client.heartbeat())["ErrorCode"] == 0
            names = [GROUP, "two", "three", "no-such"]
            assert rows_of(group_of(node.groups, GROUP)) == ROWS_OF_A_MEMBER
            rows = await described(client, *names)
            errors = [row["ErrorCode"] for row in rows]
            assert errors == [0, 0, later, ErrorCode.GROUP_ID_NOT_FOUND]
            assert [len(row["Members"]) for row in rows] == [1, 1, 0, 0]
            (row,) = await described(client, "three")
            assert (row["ErrorCode"], len(row["Members"])) == (0, 1)

    run(work())


def test_one_group_may_be_more_than_that_but_has_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(share_group_describe, "DESCRIBED_ROWS_MAX", ROWS_OF_A_MEMBER)
    most = 3 * ROWS_OF_A_MEMBER
    monkeypatch.setattr(share_group_describe, "DESCRIBED_GROUP_ROWS_MAX", most)

    async def work() -> None:
        async with Node(topology=topology(PARTITIONS)) as node:
            client = await joined(node)
            for at in range(2, 4):
                node.beat(f"m{at}", 0, TOPIC, fetches=False)
            (row,) = await described(client, GROUP)
            assert (row["ErrorCode"], len(row["Members"])) == (0, 3)
            node.beat("m4", 0, TOPIC, fetches=False)
            (row,) = await described(client, GROUP)
            assert (row["ErrorCode"], row["Members"]) == (ErrorCode.INVALID_REQUEST, [])
            assert f"more than {most}" in row["ErrorMessage"]

    run(work())


def group_of(groups: Groups, name: str) -> ShareGroup:
    found = groups.get(name)
    assert found is not None
    return found
