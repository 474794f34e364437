"""The tree of clusters: its distributors, each with its cluster, bit, mask and targets.

Clusters are the leaves of a binary tree, every inner node has a level. On each cluster runs one
distributor per level above it. It copies records to one cluster of the *sibling* subtree at that
level, its target, which the distributors there carry further:

    bit  = 1 << (level - 1)       set by the distributor in the flags of each record it copies
    mask = (1 << level) - 1       it copies only where none of these bits is set: bit and all lower

So a record that crossed at a level is spread below it, and never goes up again. That holds if
levels sink on every path from the root, however far apart they are; equal levels in subtrees that
share no path are fine. With the bit alone as mask, no tree of four clusters delivers exactly once.

Source: the distribution model that shared the algorithm calls `copy flags`; the tables in
tests/unit/clusters/core/test_tree.py follow every record of a 4- and a 5-cluster tree.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import NewType, assert_never

from keyway.clusters.core.limits import CLUSTERS_MAX, LEVEL_MAX

ClusterName = NewType("ClusterName", str)
Level = NewType("Level", int)  # 1 to LEVEL_MAX, 1 nearest to the leaves
Flags = NewType("Flags", int)  # 32 bits; bits above the tree's levels are carried, never cleared

FRESH = Flags(0)


class TreeError(Exception):
    """The tree cannot distribute every record exactly once; the text names the node and why."""


class WrongLevel(TreeError):
    """A level is missing, outside 1 to 32, or not below the level above it."""


class WrongShape(TreeError):
    """An inner node does not have two children, or a cluster is not a leaf exactly once."""


class WrongTarget(TreeError):
    """A target is not in the subtree that its distributor copies to."""


class OneClusterTwice(TreeError):
    """Two names stand for one Kafka cluster: records would go round between them."""


@dataclass(frozen=True, slots=True)
class Leaf:
    """A cluster."""

    name: ClusterName


@dataclass(frozen=True, slots=True)
class Inner:
    """Two subtrees that exchange records at `level`. `targets`: the leaves of this subtree that
    take records from its sibling, the first that answers; empty: all of them, in tree order.
    """

    level: Level | None
    children: tuple[Node, ...]
    targets: tuple[ClusterName, ...] = ()


Node = Leaf | Inner


@dataclass(frozen=True, slots=True)
class Distributor:
    """The copier from one cluster at one level. `targets` are tried in order; `allowed` are all
    leaves of the sibling subtree, any of which it can be switched to.
    """

    source: ClusterName
    level: Level
    targets: tuple[ClusterName, ...]
    allowed: tuple[ClusterName, ...]

    @property
    def bit(self) -> Flags:
        return Flags(1 << (self.level - 1))

    @property
    def mask(self) -> Flags:
        return Flags((1 << self.level) - 1)

    def flags_of_copy(self, flags: Flags) -> Flags | None:
        """By the flags alone: of the copy of a record with `flags`; None: this record is not
        copied.
        """
        return Flags(flags | self.bit) if flags & self.mask == 0 else None

    def would_go_back(self, origin: str) -> bool:
        """Whether a record that was produced on `origin` came from the subtree that this
        distributor copies to. Its flags say so, too, unless the tree had other levels when it came.
        """
        return origin in self.allowed

    def flags_of_copy_from(self, origin: str, flags: Flags) -> Flags | None:
        """Of the copy of a record that was produced on `origin` and has `flags` now; None: this
        record is not copied.
        """
        return None if self.would_go_back(origin) else self.flags_of_copy(flags)

    def switched(self, target: ClusterName) -> Distributor:
        """With `target` alone. Raises WrongTarget if it is not in the sibling subtree."""
        _require_allowed(self, (target,))
        return replace(self, targets=(target,))


@dataclass(frozen=True, slots=True)
class Hop:
    """One copy of one record: from where, at which level, to where, and its flags on arrival."""

    source: ClusterName
    level: Level
    target: ClusterName
    flags: Flags


@dataclass(frozen=True, slots=True)
class Tree:
    """A tree that was checked: every record of every cluster reaches every other exactly once."""

    root: Inner
    clusters: tuple[ClusterName, ...]  # in tree order
    distributors: tuple[Distributor, ...]  # by cluster in tree order, then by level

    def of(self, cluster: ClusterName) -> tuple[Distributor, ...]:
        """The distributors that run on `cluster`, lowest level first."""
        return tuple(known for known in self.distributors if known.source == cluster)

    def distributor(self, cluster: ClusterName, level: Level) -> Distributor:
        """Raises TreeError if no distributor of that level runs on `cluster`."""
        for distributor in self.of(cluster):
            if distributor.level == level:
                return distributor
        has = ", ".join(str(distributor.level) for distributor in self.of(cluster))
        raise TreeError(
            f"no distributor of level {level} runs on {cluster}: its levels are {has}"
            if has
            else f"{cluster} is not in the tree"
        )

    def switched(self, cluster: ClusterName, level: Level, target: ClusterName) -> Tree:
        """The same tree with one distributor's target replaced. Raises TreeError, WrongTarget."""
        old = self.distributor(cluster, level)
        new = old.switched(target)
        distributors = (new if known == old else known for known in self.distributors)
        return replace(self, distributors=tuple(distributors))

    def hops(
        self,
        origin: ClusterName,
        target_of: Callable[[Distributor], ClusterName] = lambda link: link.targets[0],
    ) -> tuple[Hop, ...]:
        """Every copy of one fresh record of `origin`, parents before children."""
        found: list[Hop] = []
        waiting = [(origin, FRESH)]
        while waiting:
            cluster, flags = waiting.pop(0)
            for distributor in self.of(cluster):
                copied = distributor.flags_of_copy(flags)
                if copied is not None:
                    target = target_of(distributor)
                    found.append(Hop(cluster, distributor.level, target, copied))
                    waiting.append((target, copied))
        return tuple(found)


def build_tree(
    root: Node,
    *,
    targets: Mapping[tuple[ClusterName, Level], tuple[ClusterName, ...]] | None = None,
) -> Tree:
    """Checks `root` and names its distributors. `targets` replaces those of single distributors,
    by (cluster, level), in order of preference. Raises TreeError for a tree that would lose or
    repeat a record.
    """
    if isinstance(root, Leaf):
        raise WrongShape(f"the tree is the one cluster {root.name}: nothing to distribute to")
    if root.targets:
        raise WrongTarget("the top of the tree has targets, but no sibling that would copy to them")
    clusters = tuple(leaves(root))
    if len(clusters) > CLUSTERS_MAX:
        raise WrongShape(f"{len(clusters)} clusters in the tree, at most {CLUSTERS_MAX}")
    for name in clusters:
        if clusters.count(name) > 1:
            raise WrongShape(f"cluster {name} is {clusters.count(name)} times in the tree")
    found = list(_distributors(root, above=None))
    chosen = dict(targets or {})
    for at, distributor in enumerate(found):
        wanted = chosen.pop((distributor.source, distributor.level), ())
        if wanted:
            _require_allowed(distributor, wanted)
            found[at] = replace(distributor, targets=wanted)
    for cluster, level in chosen:
        levels = ", ".join(
            str(distributor.level) for distributor in found if distributor.source == cluster
        )
        raise WrongTarget(
            f"targets of {cluster} at level {level}: no distributor of that level runs there"
            f" (its levels: {levels or 'none'})"
        )
    order = {name: at for at, name in enumerate(clusters)}
    found.sort(key=lambda distributor: (order[distributor.source], distributor.level))
    return Tree(root=root, clusters=clusters, distributors=tuple(found))


def leaves(node: Node) -> Iterator[ClusterName]:
    """The clusters below `node`, in tree order."""
    match node:
        case Leaf():
            yield node.name
        case Inner():
            for child in node.children:
                yield from leaves(child)
        case _:
            assert_never(node)


def require_different_clusters(ids: Mapping[ClusterName, str]) -> None:
    """`ids`: each cluster's id by its own brokers (DescribeCluster). Raises
    OneClusterTwice if two names stand for one cluster.
    """
    name_of: dict[str, ClusterName] = {}
    for name, cluster_id in ids.items():
        if cluster_id in name_of:
            raise OneClusterTwice(
                f"{name_of[cluster_id]} and {name} are one Kafka cluster (cluster id {cluster_id}):"
                " each would copy its own records to itself"
            )
        name_of[cluster_id] = name


def _distributors(node: Inner, above: Level | None) -> Iterator[Distributor]:
    where = f"the node of {_listed(tuple(leaves(node)))}"
    if len(node.children) != 2:
        raise WrongShape(
            f"{where} has {len(node.children)} children, not two: put pairs below their own nodes"
        )
    level = _checked_level(node.level, above, where)
    left, right = node.children
    for here, sibling in ((left, right), (right, left)):
        allowed = tuple(leaves(sibling))
        targets = (sibling.targets if isinstance(sibling, Inner) else ()) or allowed
        for source in leaves(here):
            distributor = Distributor(source, level, targets, allowed)
            _require_allowed(distributor, targets)
            yield distributor
    for child in node.children:
        if isinstance(child, Inner):
            yield from _distributors(child, level)


def _checked_level(level: Level | None, above: Level | None, where: str) -> Level:
    if level is None:
        raise WrongLevel(f"{where} has no level: its clusters would never exchange records")
    if not 1 <= level <= LEVEL_MAX:
        raise WrongLevel(f"{where} has level {level}: levels are 1 to {LEVEL_MAX}, a bit each")
    if above is not None and level == above:
        raise WrongLevel(
            f"{where} has level {level}, which the node above it has too: records that came from"
            " there would not be copied on"
        )
    if above is not None and level > above:
        raise WrongLevel(
            f"{where} has level {level} and the node above it {above}: a child's level must be the"
            " lower one, or records arrive twice and others never"
        )
    return level


def _require_allowed(distributor: Distributor, targets: tuple[ClusterName, ...]) -> None:
    for target in targets:
        if target not in distributor.allowed:
            raise WrongTarget(
                f"{target} cannot be the target of {distributor.source} at level"
                f" {distributor.level}: it is not among {_listed(distributor.allowed)}"
            )
        if targets.count(target) > 1:
            raise WrongTarget(
                f"{target} is a target of {distributor.source} at level {distributor.level} twice"
            )


def _listed(names: tuple[ClusterName, ...]) -> str:
    return ", ".join(names) or "no cluster"
