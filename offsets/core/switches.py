"""Links that were switched to another target without a rewind, and have not finished the switch.

The old target may have records that it has not passed on. They reach the rest of the subtree after
newer records, so within one stream "processed up to here" is no single number there. Progress that
a cluster of that subtree tells is refused until every cluster of it but the new target has said
that its own links have passed on everything that its logs held after the switch. If nothing but
topics that have stopped keeps a link from that, the cluster names them, and progress is refused in
these alone.

The link's own cluster tells of the switch, and the other clusters tell that they are through. All
of this is in records of the topic `_keyway-offsets` that travel as entries do: key ["switch",
cluster, "", level, source].
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Final

from keyway.clusters.core.tree import ClusterName, Distributor, Level, Tree
from offsets.core.entries import VERSION, GroupPartition, MalformedEntry, read_body

SWITCH: Final = "switch"
# Of reports that name topics. Earlier versions of Keyway do not know them, and would take such a
# report for one without.
_WITH_TOPICS: Final = VERSION + 1


@dataclass(frozen=True, slots=True)
class SwitchReport:
    """`source` speaks of switch number `generation` of the link from `cluster` at `level`. `done`:
    if the link's own cluster says so, new records go to `target`; if another cluster does, it is
    through, but for `stopped`: logical topics.
    """

    cluster: str
    level: int
    source: str
    generation: int
    target: str
    rewind: bool
    done: bool
    flags: int = 0
    stopped: frozenset[str] = frozenset()

    @property
    def place(self) -> GroupPartition:
        return self.cluster, "", self.level

    def with_flags(self, flags: int) -> SwitchReport:
        return replace(self, flags=flags)


def encode_report(told: SwitchReport) -> bytes:
    names = ("generation", "target", "rewind", "done", "flags")
    body = {"version": VERSION} | {name: getattr(told, name) for name in names}
    if told.stopped:
        body |= {"version": _WITH_TOPICS, "stopped": sorted(told.stopped)}
    return json.dumps(body, separators=(",", ":")).encode()


def decode_report(place: GroupPartition, source: str, value: bytes) -> SwitchReport:
    """Raises MalformedEntry."""
    body = read_body(value, (VERSION, _WITH_TOPICS))
    try:
        return SwitchReport(
            place[0],
            place[2],
            source,
            int(body["generation"]),
            str(body["target"]),
            bool(body["rewind"]),
            bool(body["done"]),
            int(body["flags"]),
            frozenset(map(str, body.get("stopped", ()))),
        )
    except (KeyError, TypeError, ValueError) as error:
        raise MalformedEntry(f"switch of {place}: {error!r}") from error


def orders(told: Iterable[SwitchReport], tree: Tree) -> list[tuple[SwitchReport, Distributor]]:
    """Switches without a rewind, of links that the tree has."""
    return [
        (switch, link)
        for switch in told
        if switch.source == switch.cluster and not switch.rewind
        if (link := _link(tree, switch)) is not None
    ]


def _link(tree: Tree, told: SwitchReport) -> Distributor | None:
    links = tree.of(ClusterName(told.cluster)) if told.cluster in tree.clusters else ()
    return next((link for link in links if link.level == Level(told.level)), None)


@dataclass(frozen=True, slots=True)
class Unfinished:
    """The clusters whose progress is not believed now, and those of which it is not believed in
    some topics.
    """

    clusters: frozenset[str] = frozenset()
    topics: frozenset[tuple[str, str]] = frozenset()  # cluster, topic

    def has(self, cluster: str, topic: str) -> bool:
        return cluster in self.clusters or (cluster, topic) in self.topics


def unfinished_subtrees(
    told: Mapping[tuple[GroupPartition, str], SwitchReport], tree: Tree
) -> Unfinished:
    clusters: set[str] = set()
    topics: set[tuple[str, str]] = set()
    for order, link in orders(told.values(), tree):
        others = [target for target in link.allowed if target != order.target]
        said = [told.get((order.place, target)) for target in others]
        through = [one for one in said if one is not None and one.generation >= order.generation]
        if len(through) < len(others):
            clusters.update(link.allowed)
        stopped = {topic for one in through for topic in one.stopped}
        topics |= {(cluster, topic) for cluster in link.allowed for topic in stopped}
    return Unfinished(frozenset(clusters), frozenset(topics))
