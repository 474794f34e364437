"""The groups that metrics tell of."""

from __future__ import annotations

import pytest

from gateway.members import shown_groups
from gateway.members.shown_groups import ShownGroups
from tests.rig.node_parts import GROUP, Node
from tests.rig.virtual_time import now_ms, run


def test_of_groups_without_members_the_last_ones_are_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shown_groups, "EMPTY_GROUPS_SHOWN_MAX", 2)

    async def work() -> None:
        async with Node() as node:
            shown = ShownGroups(node.groups, lambda: node.evictions.empty_since_ms)
            for name in ("z", "a"):
                node.groups.ensure(name)
            node.beat("m1")
            await node.evictions.tick(now_ms())
            assert shown.left_out() == frozenset(), "so many have room"
            node.groups.ensure("b")
            await node.evictions.tick(now_ms() + 1_000)
            assert shown.left_out() == {"a"}, (
                "of two that are as old the names decide, always alike"
            )
            node.beat("m1", -1)
            await node.evictions.tick(now_ms() + 2_000)
            assert shown.left_out() == {"a", "z"}
            node.beat("m2")
            assert GROUP not in shown.left_out(), "it has members"
            assert shown.left_out() == {"a"}
            node.groups.ensure("elsewhere")
            assert shown.left_out() == {"a", "elsewhere"}, "nobody knows for how long"

    run(work())
