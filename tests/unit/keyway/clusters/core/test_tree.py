"""The tables of a 4- and a 5-cluster tree, hop by hop, and every tree that is refused."""

from __future__ import annotations

import itertools
from collections import Counter

import pytest

from keyway.clusters.core.tree import (
    ClusterName,
    Distributor,
    Flags,
    Inner,
    Leaf,
    Level,
    Node,
    OneClusterTwice,
    Tree,
    TreeError,
    WrongLevel,
    WrongShape,
    WrongTarget,
    build_tree,
    require_different_clusters,
)


def inner(level: int | None, *children: Node | str, targets: tuple[str, ...] = ()) -> Inner:
    nodes = tuple(
        Leaf(ClusterName(child)) if isinstance(child, str) else child for child in children
    )
    return Inner(
        None if level is None else Level(level),
        nodes,
        tuple(ClusterName(target) for target in targets),
    )


FOUR = build_tree(inner(3, inner(1, "C1", "C2"), inner(1, "C3", "C4")))
FIVE = build_tree(inner(3, inner(2, "C1", inner(1, "C2", "C3")), inner(1, "C4", "C5")))

FOUR_TABLE = {
    "C1": "C1 L1 C2 0001, C1 L3 C3 0100, C3 L1 C4 0101",
    "C2": "C2 L1 C1 0001, C2 L3 C3 0100, C3 L1 C4 0101",
    "C3": "C3 L1 C4 0001, C3 L3 C1 0100, C1 L1 C2 0101",
    "C4": "C4 L1 C3 0001, C4 L3 C1 0100, C1 L1 C2 0101",
}
FIVE_TABLE = {
    "C1": "C1 L2 C2 0010, C2 L1 C3 0011, C1 L3 C4 0100, C4 L1 C5 0101",
    "C2": "C2 L1 C3 0001, C2 L2 C1 0010, C2 L3 C4 0100, C4 L1 C5 0101",
    "C3": "C3 L1 C2 0001, C3 L2 C1 0010, C3 L3 C4 0100, C4 L1 C5 0101",
    "C4": "C4 L1 C5 0001, C4 L3 C1 0100, C1 L2 C2 0110, C2 L1 C3 0111",
    "C5": "C5 L1 C4 0001, C5 L3 C1 0100, C1 L2 C2 0110, C2 L1 C3 0111",
}


def hops(tree: Tree, origin: str) -> set[str]:
    return {
        f"{hop.source} L{hop.level} {hop.target} {hop.flags:04b}"
        for hop in tree.hops(ClusterName(origin))
    }


@pytest.mark.parametrize("origin", FOUR_TABLE)
def test_four_clusters(origin: str) -> None:
    assert hops(FOUR, origin) == set(FOUR_TABLE[origin].split(", "))


@pytest.mark.parametrize("origin", FIVE_TABLE)
def test_five_clusters(origin: str) -> None:
    assert hops(FIVE, origin) == set(FIVE_TABLE[origin].split(", "))


def test_five_clusters_with_another_target() -> None:
    other = FIVE.switched(ClusterName("C4"), Level(3), ClusterName("C2"))
    assert hops(other, "C4") == {
        "C4 L1 C5 0001",
        "C4 L3 C2 0100",
        "C2 L1 C3 0101",
        "C2 L2 C1 0110",
    }
    assert hops(other, "C5") == set(FIVE_TABLE["C5"].split(", "))


def test_bits_and_masks() -> None:
    shown = [
        (
            distributor.source,
            distributor.level,
            distributor.bit,
            distributor.mask,
            distributor.targets[0],
        )
        for distributor in FOUR.distributors
    ]
    assert shown == [
        ("C1", 1, 0b001, 0b001, "C2"),
        ("C1", 3, 0b100, 0b111, "C3"),
        ("C2", 1, 0b001, 0b001, "C1"),
        ("C2", 3, 0b100, 0b111, "C3"),
        ("C3", 1, 0b001, 0b001, "C4"),
        ("C3", 3, 0b100, 0b111, "C1"),
        ("C4", 1, 0b001, 0b001, "C3"),
        ("C4", 3, 0b100, 0b111, "C1"),
    ]
    assert len(FIVE.distributors) == 12
    levels = {name: [distributor.level for distributor in FIVE.of(name)] for name in FIVE.clusters}
    assert levels == {"C1": [2, 3], "C2": [1, 2, 3], "C3": [1, 2, 3], "C4": [1, 3], "C5": [1, 3]}


def every_choice(tree: Tree) -> itertools.product[tuple[ClusterName, ...]]:
    return itertools.product(*(distributor.allowed for distributor in tree.distributors))


@pytest.mark.parametrize(("tree", "choices"), [(FOUR, 16), (FIVE, 144)], ids=["four", "five"])
def test_every_permutation_of_targets_delivers_once(tree: Tree, choices: int) -> None:
    seen = 0
    for chosen in every_choice(tree):
        seen += 1
        target_of = dict(zip(tree.distributors, chosen, strict=True))
        for origin in tree.clusters:
            reached = Counter(hop.target for hop in tree.hops(origin, target_of.__getitem__))
            assert reached == Counter(set(tree.clusters) - {origin})
    assert seen == choices


def test_with_the_bit_alone_as_mask_no_tree_works() -> None:
    # Why the mask has all lower bits, too: the test above could not tell without this one.
    def copies(through: Distributor, flags: int) -> int | None:
        return flags | through.bit if flags & through.bit == 0 else None

    reached: Counter[str] = Counter()
    waiting: list[tuple[ClusterName, int]] = [(ClusterName("C1"), 0)]
    while waiting:
        cluster, flags = waiting.pop()
        for distributor in FOUR.of(cluster):
            copied = copies(distributor, flags)
            if copied is not None:
                reached[distributor.targets[0]] += 1
                waiting.append((distributor.targets[0], copied))
    assert max(reached.values()) == 2


@pytest.mark.parametrize(
    ("flags", "reached"),
    [("0001", {"C1"}), ("0101", {"C1"}), ("0100", {"C1", "C2"}), ("0000", set(FOUR.clusters))],
)
def test_what_stale_flags_would_do(flags: str, reached: set[str]) -> None:
    # The reason for the seal: an application at C1 that kept the flags of its input.
    found = {"C1"}
    waiting = [(ClusterName("C1"), Flags(int(flags, 2)))]
    while waiting:
        cluster, stale = waiting.pop()
        for distributor in FOUR.of(cluster):
            copied = distributor.flags_of_copy(stale)
            if copied is not None:
                found.add(distributor.targets[0])
                waiting.append((distributor.targets[0], copied))
    assert found == reached


def test_unknown_high_bits_are_carried() -> None:
    level_1 = FOUR.distributor(ClusterName("C1"), Level(1))
    assert level_1.flags_of_copy(Flags(0x8000_0000)) == 0x8000_0001
    assert level_1.flags_of_copy(Flags(0x8000_0001)) is None


def test_a_record_goes_back_to_no_cluster_of_the_subtree_that_it_came_from() -> None:
    # The level of its node was 3, and is 2 now: the flags of copies from that time lack the bit.
    link = FIVE.distributor(ClusterName("C4"), Level(3))
    assert [name for name in FIVE.clusters if link.would_go_back(name)] == ["C1", "C2", "C3"]


def test_flags_alone_keep_every_record_from_going_back() -> None:
    for tree in (FOUR, FIVE):
        for origin in tree.clusters:
            for hop in tree.hops(origin):
                assert not tree.distributor(hop.source, hop.level).would_go_back(origin)


def test_targets_of_a_subtree() -> None:
    tree = build_tree(inner(3, inner(1, "C1", "C2", targets=("C2", "C1")), inner(1, "C3", "C4")))
    assert tree.distributor(ClusterName("C3"), Level(3)).targets == ("C2", "C1")
    assert tree.distributor(ClusterName("C1"), Level(3)).targets == ("C3", "C4")
    only = build_tree(inner(3, inner(1, "C1", "C2", targets=("C2",)), inner(1, "C3", "C4")))
    level_3 = only.distributor(ClusterName("C4"), Level(3))
    assert (level_3.targets, level_3.allowed) == (("C2",), ("C1", "C2"))
    assert level_3.switched(ClusterName("C1")).targets == ("C1",)


def test_targets_of_one_distributor() -> None:
    chosen = {(ClusterName("C4"), Level(3)): (ClusterName("C2"),)}
    tree = build_tree(FOUR.root, targets=chosen)
    assert tree.distributor(ClusterName("C4"), Level(3)).targets == ("C2",)
    assert tree.distributor(ClusterName("C3"), Level(3)).targets == ("C1", "C2")


PAIR = inner(1, "C1", "C2")
REFUSED = {
    "inverted": (inner(1, inner(2, "C1", "C2"), "C3"), WrongLevel, "the lower one"),
    "inverted deep": (
        inner(4, inner(3, inner(1, "C1", "C2"), "C3"), inner(2, inner(3, "C4", "C5"), "C6")),
        WrongLevel,
        "the node of C4, C5 has level 3 and the node above it 2",
    ),
    "reused on a path": (inner(2, inner(2, "C1", "C2"), "C3"), WrongLevel, "node above it has too"),
    "missing": (inner(3, inner(None, "C1", "C2"), "C3"), WrongLevel, "C1, C2 has no level"),
    "zero": (inner(0, "C1", "C2"), WrongLevel, "levels are 1 to 32"),
    "wider than the flags": (inner(33, "C1", "C2"), WrongLevel, "levels are 1 to 32"),
    "target elsewhere": (
        inner(3, inner(1, "C1", "C2", targets=("C3",)), inner(1, "C3", "C4")),
        WrongTarget,
        "C3 cannot be the target of C3 at level 3: it is not among C1, C2",
    ),
    "target unknown": (
        inner(3, inner(1, "C1", "C2", targets=("C9",)), inner(1, "C3", "C4")),
        WrongTarget,
        "C9 cannot be the target",
    ),
    "target twice": (
        inner(3, inner(1, "C1", "C2", targets=("C1", "C1")), "C3"),
        WrongTarget,
        "twice",
    ),
    "target of the top": (inner(1, "C1", "C2", targets=("C1",)), WrongTarget, "top of the tree"),
    "three children": (inner(1, "C1", "C2", "C3"), WrongShape, "3 children"),
    "one child": (inner(3, inner(1, "C1"), "C2"), WrongShape, "1 children"),
    "cluster twice": (inner(3, PAIR, "C1"), WrongShape, "cluster C1 is 2 times"),
    "one cluster": (Leaf(ClusterName("C1")), WrongShape, "nothing to distribute to"),
}


@pytest.mark.parametrize(("root", "error", "reason"), REFUSED.values(), ids=REFUSED)
def test_refused(root: Node, error: type[TreeError], reason: str) -> None:
    with pytest.raises(error, match=reason):
        build_tree(root)


def test_too_many_clusters() -> None:
    names = [f"C{at}" for at in range(65)]
    root: Node = Leaf(ClusterName(names[0]))
    for at, name in enumerate(names[1:], start=1):
        root = inner(at, root, name)
    with pytest.raises(WrongShape, match="65 clusters"):
        build_tree(root)


def test_refused_targets_of_one_distributor() -> None:
    with pytest.raises(WrongTarget, match="it is not among C3, C4"):
        build_tree(FOUR.root, targets={(ClusterName("C1"), Level(3)): (ClusterName("C2"),)})
    with pytest.raises(WrongTarget, match="no distributor of that level runs there"):
        build_tree(FOUR.root, targets={(ClusterName("C1"), Level(2)): (ClusterName("C2"),)})


def test_refused_switches() -> None:
    with pytest.raises(WrongTarget, match="C2 cannot be the target of C1 at level 3"):
        FOUR.switched(ClusterName("C1"), Level(3), ClusterName("C2"))
    with pytest.raises(TreeError, match="its levels are 1, 3"):
        FOUR.switched(ClusterName("C1"), Level(2), ClusterName("C2"))
    with pytest.raises(TreeError, match="C9 is not in the tree"):
        FOUR.switched(ClusterName("C9"), Level(1), ClusterName("C2"))


def test_one_cluster_under_two_names() -> None:
    ids = {ClusterName("C1"): "abc", ClusterName("C2"): "def"}
    require_different_clusters(ids)
    with pytest.raises(
        OneClusterTwice, match=r"C2 and C3 are one Kafka cluster \(cluster id def\)"
    ):
        require_different_clusters({**ids, ClusterName("C3"): "def"})
