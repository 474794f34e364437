"""Windows that are not up, told without a look at the windows of groups at rest."""

from __future__ import annotations

import asyncio

from dispatcher.store.base import StoreError
from gateway.config.groups import GroupSection
from gateway.windows.build import window_troubles
from gateway.windows.limits import GROUPS_NAMED
from gateway.windows.waiting_windows import WaitingWindows
from tests.rig.admin_parts import AdminStore
from tests.rig.node_parts import GROUP, Node, topology
from tests.rig.virtual_time import run, settle

REST_S = 1.5  # some ticks
LOADED_S = 20  # also after some failures


def test_one_that_opens_in_a_group_at_rest_waits_until_it_is_up() -> None:
    async def work() -> None:
        store = AdminStore()
        async with Node(topology=topology(1), store=store) as node:
            waiting = WaitingWindows(node.windows.table)

            def partitions() -> list[int]:
                return [window.partition.partition for window in waiting.all()]

            node.beat()
            await settle()
            await asyncio.sleep(REST_S)
            assert node.windows.table.ticks.rest_of(GROUP) is not None
            assert partitions() == []
            store.create_failures = [StoreError("away")] * 1_000
            node.change_topology(topology(2))
            node.fetch()
            await settle()
            assert partitions() == [1]
            await asyncio.sleep(REST_S)
            assert node.windows.table.ticks.rest_of(GROUP) is not None
            assert partitions() == [1], "known from before"
            store.create_failures.clear()
            await asyncio.sleep(LOADED_S)
            assert partitions() == []
            node.window(0).fail(RuntimeError("no room"))
            assert partitions() == [0]

    run(work())


def test_one_that_is_held_up_by_one_record_is_a_trouble() -> None:
    async def work() -> None:
        section = GroupSection(
            auto_offset_reset="earliest", span_max=4, held_max=0, session_timeout_ms=600_000
        )
        async with Node(section) as node:
            waiting = WaitingWindows(node.windows.table)
            node.log.produce(b"a", b"b", b"c")
            node.beat()
            await asyncio.sleep(REST_S)
            assert window_troubles(waiting, []) == []
            node.log.produce(b"d", b"e", b"f")
            await asyncio.sleep(REST_S)
            (trouble,) = window_troubles(waiting, [])
            assert f"group {GROUP}: " in trouble.text
            assert "at offset 0" in trouble.text
            assert trouble.serving

    run(work())


def test_of_many_groups_whose_commits_fail_some_are_named() -> None:
    """All fail, if the gateway lacks a right."""

    async def work() -> None:
        async with Node() as node:
            failing = [f"g{at:02}" for at in range(GROUPS_NAMED + 3)]
            said = window_troubles(WaitingWindows(node.windows.table), failing)
            named = [f"commits of group g{at:02} fail" for at in range(GROUPS_NAMED)]
            assert [one.text for one in said] == [*named, "so do those of 3 more groups"]

    run(work())
