"""Random trees of 2 to 9 clusters: every record reaches every cluster exactly once, even if targets
are chosen anew for every record and every hop.
"""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from keyway.clusters.core.tree import (
    ClusterName,
    Flags,
    Inner,
    Leaf,
    Level,
    Node,
    Tree,
    WrongLevel,
    build_tree,
    leaves,
)


@st.composite
def nodes(draw: st.DrawFn, names: tuple[str, ...], level_max: int) -> Node:
    """A subtree of all `names`, of any shape, with any levels that sink."""
    if len(names) == 1:
        return Leaf(ClusterName(names[0]))
    level = draw(st.integers(len(names) - 1, level_max))  # room for the longest path below
    cut = draw(st.integers(1, len(names) - 1))
    left = draw(nodes(names[:cut], level - 1))
    right = draw(nodes(names[cut:], level - 1))
    below = tuple(leaves(left)) + tuple(leaves(right))
    targets = draw(st.lists(st.sampled_from(below), unique=True))
    top = level_max == 32
    return Inner(Level(level), (left, right), () if top else tuple(targets))


@st.composite
def trees(draw: st.DrawFn) -> Tree:
    count = draw(st.integers(2, 9))
    return build_tree(draw(nodes(tuple(f"C{at}" for at in range(1, count + 1)), 32)))


def spread(tree: Tree, origin: ClusterName, flags: Flags, data: st.DataObject) -> Counter[str]:
    """How often each cluster receives one record. The rule is written out here once more."""
    reached: Counter[str] = Counter()
    waiting = [(origin, int(flags))]
    while waiting:
        cluster, held = waiting.pop()
        for distributor in tree.of(cluster):
            level = distributor.level
            if held % (1 << level) == 0:
                target = data.draw(st.sampled_from(distributor.allowed))
                reached[target] += 1
                waiting.append((target, held + (1 << (level - 1))))
        assert sum(reached.values()) <= 100, "records go round"
    return reached


@given(trees(), st.data())
def test_every_cluster_exactly_once(tree: Tree, data: st.DataObject) -> None:
    for origin in tree.clusters:
        others = Counter(set(tree.clusters) - {origin})
        assert spread(tree, origin, Flags(0), data) == others
        assert Counter(hop.target for hop in tree.hops(origin)) == others


@given(trees())
def test_one_distributor_for_every_level_above(tree: Tree) -> None:
    def levels_above(node: Node, name: ClusterName) -> list[int]:
        if isinstance(node, Leaf):
            return []
        (child,) = (below for below in node.children if name in leaves(below))
        assert node.level is not None
        return [*levels_above(child, name), node.level]

    for name in tree.clusters:
        assert [distributor.level for distributor in tree.of(name)] == levels_above(tree.root, name)
        for distributor in tree.of(name):
            assert name not in distributor.allowed
            assert set(distributor.targets) <= set(distributor.allowed)


@given(trees(), st.data())
def test_a_level_that_does_not_sink_is_refused(tree: Tree, data: st.DataObject) -> None:
    paths = [
        (node, child) for node in inners(tree.root) for child in node.children if is_inner(child)
    ]
    if not paths:
        return
    parent, child = data.draw(st.sampled_from(paths))
    assert parent.level is not None
    wrong = Level(data.draw(st.integers(parent.level, 32)))
    with pytest.raises(WrongLevel):
        build_tree(with_level(tree.root, child, wrong))


def is_inner(node: Node) -> bool:
    return isinstance(node, Inner)


def inners(node: Node) -> list[Inner]:
    if isinstance(node, Leaf):
        return []
    return [node, *(inner for child in node.children for inner in inners(child))]


def with_level(node: Node, changed: Node, level: Level) -> Node:
    if isinstance(node, Leaf):
        return node
    children = tuple(with_level(child, changed, level) for child in node.children)
    return Inner(level if node is changed else node.level, children, node.targets)
