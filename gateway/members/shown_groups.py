"""The groups that metrics tell of.

A group without members has its lag there: one that stopped by accident must not be forgotten. But a
job that names its group anew with each run leaves thousands behind, and a scrape of all of them
takes longer than Prometheus waits, so it would get nothing at all. Of the groups without members
those tell of themselves that have been so for the shortest time. The others are counted.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from heapq import nlargest

from gateway.members.groups import Groups
from gateway.members.limits import EMPTY_GROUPS_SHOWN_MAX


@dataclass(frozen=True, slots=True)
class ShownGroups:
    """`empty_since_ms`: of groups that this node coordinates, once they were seen without
    members.
    """

    groups: Groups
    empty_since_ms: Callable[[], Mapping[str, int]]

    def left_out(self) -> frozenset[str]:
        """O(groups)."""
        empty = [group.name for group in self.groups.all() if not group.members]
        if len(empty) <= EMPTY_GROUPS_SHOWN_MAX:
            return frozenset()
        since_ms = self.empty_since_ms()

        def rank(name: str) -> tuple[int, str]:
            return since_ms.get(name, 0), name

        shown = nlargest(EMPTY_GROUPS_SHOWN_MAX, empty, key=rank)
        return frozenset(empty).difference(shown)
