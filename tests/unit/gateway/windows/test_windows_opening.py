"""Who opens a window, and how many there may be."""

from __future__ import annotations

import pytest

from gateway.core.wire.errors import ErrorCode
from gateway.upstream.errors import Refused
from tests.rig.node_parts import GROUP, TOPIC, Node, ScriptedCommits, topology
from tests.rig.virtual_time import run, settle, until


def test_to_join_opens_no_window() -> None:
    async def work() -> None:
        async with Node(topology=topology(3)) as node:
            node.beat(fetches=False)
            await settle()
            assert node.windows.table.all() == []
            node.change_topology(topology(4))
            await settle()
            assert node.windows.table.all() == [], "nobody fetches"
            node.fetch()
            await until(
                lambda: all(window.dispatcher is not None for window in node.windows.table.all())
            )
            assert len(node.windows.table.all()) == 4

    run(work())


def test_a_group_that_fetches_gets_windows_of_new_partitions_at_once() -> None:
    async def work() -> None:
        async with Node(topology=topology(1)) as node:
            node.beat()
            await settle()
            node.groups.sessions.open((1, GROUP, "m1"), 1, acknowledges=False)
            node.change_topology(topology(2))
            assert len(node.windows.table.all()) == 2

    run(work())


def test_a_fetch_for_a_topic_that_the_member_does_not_subscribe_to_opens_nothing() -> None:
    async def work() -> None:
        async with Node() as node:
            assert node.windows.table.wanted(GROUP, TOPIC, 0, 1)
            assert node.windows.table.all() == []

    run(work())


@pytest.mark.parametrize("bound", ["WINDOWS_MAX", "CONNECTION_WINDOWS_MAX"])
def test_windows_have_a_bound(bound: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(f"gateway.windows.table.{bound}", 2)

    async def work() -> None:
        async with Node(topology=topology(3)) as node:
            node.beat(fetches=False)
            opened = [node.windows.table.wanted(GROUP, TOPIC, at, 1) for at in range(3)]
            assert opened == [True, True, False]
            assert node.windows.table.wanted(GROUP, TOPIC, 2, 7) is (bound != "WINDOWS_MAX")
            node.windows.table.drop(node.window(0).key)
            if bound == "WINDOWS_MAX":
                assert node.windows.table.wanted(GROUP, TOPIC, 2, 1)

    run(work())


@pytest.mark.parametrize(
    ("code", "asks"),
    [
        (ErrorCode.UNKNOWN_TOPIC_ID, True),
        (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, True),
        (ErrorCode.TOPIC_AUTHORIZATION_FAILED, False),
    ],
)
def test_a_window_of_a_topic_that_is_gone_has_the_topology_looked_at(
    code: ErrorCode, *, asks: bool
) -> None:
    """It was deleted since the last look; the topic that has its name now may have records."""

    async def work() -> None:
        commits = ScriptedCommits(refused={0: Refused(int(code), "committed offset")})
        async with Node(topology=topology(1), commits=commits) as node:
            node.beat()
            await settle()
            assert node.window().dispatcher is None
            assert (node.refreshes_requested > 0) is asks

    run(work())
