"""Whose word about progress is not taken while a link is being switched."""

from __future__ import annotations

from dataclasses import replace

import pytest

from keyway.clusters.core.tree import ClusterName, Inner, Leaf, Level, Node, build_tree
from offsets.core.entries import MalformedEntry, key_of, read_body
from offsets.core.switches import (
    SWITCH,
    SwitchReport,
    decode_report,
    encode_report,
    unfinished_subtrees,
)
from offsets.core.topic_state import TopicState


def leaf(name: str) -> Node:
    return Leaf(ClusterName(name))


LOWER = Inner(Level(2), (leaf("B"), Inner(Level(1), (leaf("C"), leaf("D")))))
TREE = build_tree(Inner(Level(3), (leaf("A"), LOWER)))
ORDER = SwitchReport("A", 3, "A", generation=2, target="C", rewind=False, done=True, flags=4)


def unfinished(*told: SwitchReport) -> set[str]:
    by_place = {(switch.place, switch.source): switch for switch in told}
    return set(unfinished_subtrees(by_place, TREE).clusters)


def test_every_cluster_but_the_new_target_has_to_be_through() -> None:
    through = [replace(ORDER, source=cluster) for cluster in ("B", "D")]
    assert unfinished() == set()
    assert unfinished(ORDER) == {"B", "C", "D"}
    assert unfinished(ORDER, through[0]) == {"B", "C", "D"}
    assert unfinished(ORDER, *through) == set()
    again = replace(ORDER, generation=3)
    assert unfinished(again, *through) == {"B", "C", "D"}, "through with the one before"


def test_a_topic_that_has_stopped_is_unfinished_alone() -> None:
    b, d = (replace(ORDER, source=cluster) for cluster in ("B", "D"))
    d = replace(d, stopped=frozenset({"bad"}))
    told = {(one.place, one.source): one for one in (ORDER, b, d)}
    found = unfinished_subtrees(told, TREE)
    for cluster in ("B", "C", "D"):
        assert found.has(cluster, "bad")
        assert not found.has(cluster, "good")
    assert not found.has("A", "bad")
    assert unfinished(ORDER, d) == {"B", "C", "D"}, "B is to say something, too"
    text = encode_report(d)
    assert decode_report(d.place, "D", text) == d
    with pytest.raises(MalformedEntry):  # as earlier versions read it
        read_body(text)


def test_a_switch_that_copies_again_leaves_nothing_behind() -> None:
    assert unfinished(replace(ORDER, rewind=True)) == set()


@pytest.mark.parametrize(
    "order", [replace(ORDER, level=7), replace(ORDER, cluster="X", source="X")]
)
def test_a_link_that_the_tree_does_not_have_any_more(order: SwitchReport) -> None:
    assert unfinished(order) == set()


def test_a_switch_travels_and_is_news_once() -> None:
    state_topic = TopicState()
    key = key_of(SWITCH, ORDER.place, ORDER.source)
    for _ in range(2):
        state_topic.read(key, encode_report(ORDER))
    assert state_topic.news() == [ORDER]
    assert decode_report(ORDER.place, "A", encode_report(ORDER)) == ORDER
    with pytest.raises(MalformedEntry):
        decode_report(ORDER.place, "A", b'{"version":2}')
